//go:build faults

package authority

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// stallTTL is much longer than what a busy machine adds to a pause.
const stallTTL = 4 * time.Second

// heartbeater sends one heartbeat after another under a lease, until one is not COMMITTED.
type heartbeater struct {
	a      *lessorv1.Assignment
	beats  int
	since  atomic.Int64  // when the heartbeat under way was sent, in ns since the epoch; 0 if there is none
	waited time.Duration // the longest that one heartbeat took
	last   *lessorv1.HeartbeatResponse
	err    error
	ended  chan struct{}
}

func (w *watch) startHeartbeats(a *lessorv1.Assignment) *heartbeater {
	b := &heartbeater{a: a, ended: make(chan struct{})}
	workers := w.workers()
	go func() {
		defer close(b.ended)
		for ; b.err == nil && b.last.GetVerdict() <= lessorv1.Verdict_VERDICT_COMMITTED; time.Sleep(stallTTL / 40) {
			askedAt := time.Now()
			b.since.Store(askedAt.UnixNano())
			b.last, b.err = workers.Heartbeat(w.ctx,
				&lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
			b.since.Store(0)
			b.waited = max(b.waited, time.Since(askedAt))
			b.beats++
		}
	}()
	return b
}

// pause stops the coordinator for d, beginning when a heartbeat waits for it.
func (w *watch) pause(d time.Duration, b *heartbeater) {
	w.t.Helper()
	w.c.Process().Pause()
	for from := time.Now(); ; time.Sleep(time.Millisecond) {
		if at := b.since.Load(); at > 0 && time.Since(time.Unix(0, at)) >= stallTTL/40 {
			break
		}
		if time.Since(from) > harness.Patience {
			w.t.Fatal("no heartbeat waits for a coordinator that stands still")
		}
	}
	time.Sleep(d)
	w.c.Process().Resume()
}

// TestCoordinatorPaused: a coordinator that stood still gives the leases that time back, once, and
// no more than one TTL. It handles the heartbeats that waited before it expires anything (A8).
func TestCoordinatorPaused(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, tt := range []struct {
		pause time.Duration
		keeps bool
	}{
		{stallTTL / 2, true},
		{stallTTL * 5 / 4, true}, // one TTL is given back, so 3/4 of a TTL are left
		{stallTTL * 5 / 2, false},
	} {
		t.Run(fmt.Sprintf("%v of a lease of %v", tt.pause, stallTTL), func(t *testing.T) {
			t.Parallel()
			w := newWatch(newRig(t), stallTTL)
			w.startCoordinator()
			held, _ := w.take("held", stallTTL)
			b := w.startHeartbeats(held)
			silent, askedAt := w.take("silent", stallTTL)
			w.pause(tt.pause, b)
			if !tt.keeps {
				w.checkLost(b)
				return
			}
			w.checkKept(tt.pause, b, silent, askedAt)
		})
	}
}

// checkLost checks that the lease ended as expired, and that its task is granted again.
func (w *watch) checkLost(b *heartbeater) {
	w.t.Helper()
	select {
	case <-b.ended:
	case <-time.After(harness.Patience):
		w.t.Fatal("A8: a lease lives on after more than two TTL of silence")
	}
	if b.err != nil || b.last.GetVerdict() != lessorv1.Verdict_VERDICT_CANCELLED || b.last.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED {
		w.t.Errorf("V10: the heartbeat that waited was answered %v, %v; want CANCELLED / LEASE_EXPIRED", b.last, b.err)
	}
	a, err := w.lease("held")
	if must(w.rig, a, err).GetAttempt() != b.a.GetAttempt()+1 {
		w.t.Errorf("the next attempt is %v, want attempt %d", a, b.a.GetAttempt()+1)
	}
	w.t.Logf("%d heartbeats, one of which waited %v", b.beats, b.waited.Round(time.Millisecond))
}

// checkKept checks that the lease was kept over the pause, and that the lease of a silent worker
// was extended by the pause.
func (w *watch) checkKept(pause time.Duration, b *heartbeater, silent *lessorv1.Assignment, askedAt time.Time) {
	w.t.Helper()
	for gone := false; !gone; time.Sleep(stallTTL / 100) {
		task, err := w.get(silent.GetTask().GetTaskId())
		gone = must(w.rig, task, err).GetLease() == nil
	}
	if lived, least := time.Since(askedAt), stallTTL+min(pause, stallTTL); lived < least-stallTTL/10 {
		w.t.Errorf("A8: the lease of a silent worker ended %v after it was renewed last, %v before its time", lived, least-lived)
	}
	m, err := w.complete(b.a)
	if must(w.rig, m, err).GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		w.t.Errorf("A8: Complete of a worker whose heartbeat waited for %v = %v, want COMMITTED", b.waited, m)
	}
	<-b.ended // the last heartbeat comes after the report
	if b.err != nil || b.last.GetReason() != lessorv1.Reason_REASON_ALREADY_REPORTED {
		w.t.Errorf("its last heartbeat = %v, %v; want ALREADY_REPORTED", b.last, b.err)
	}
	if b.waited < pause*9/10 {
		w.t.Errorf("the longest heartbeat took %v, want at least 9/10 of the pause of %v", b.waited, pause)
	}
	w.t.Logf("%d heartbeats, one of which waited %v", b.beats, b.waited.Round(time.Millisecond))
}

// slowTTL is for leases on a slow disk, and much longer than what a busy machine adds. shortTTL is
// for leases that are shorter than a commit.
const (
	slowTTL  = 4 * time.Second
	shortTTL = time.Second
)

// slowDisk starts the coordinator with slow syncs, after it has made the store with quick ones.
func (w *watch) slowDisk(sync time.Duration) {
	w.t.Helper()
	w.startCoordinator()
	w.kill()
	w.c.Under = harness.Strace(w.t, fmt.Sprintf("fdatasync:delay_enter=%d", sync.Microseconds()))
	w.launch()
	w.c.Start("--http", "127.0.0.1:0")
	w.last().answered = time.Now()
}

// TestSlowDisk: on a disk whose commits take less than a lease lives, answers are late, but no
// lease of a worker that sends heartbeats is lost, and the lease of a silent worker ends (A8).
func TestSlowDisk(t *testing.T) {
	t.Parallel()              // it mostly waits
	const sync = slowTTL / 10 // a commit has two syncs
	w := newWatch(newRig(t), slowTTL)
	w.slowDisk(sync)
	held, _ := w.take("held", slowTTL)
	b := w.startHeartbeats(held)
	silent, _ := w.take("silent", slowTTL)
	for from, gone := time.Now(), false; !gone || time.Since(from) < 2*slowTTL; time.Sleep(slowTTL / 20) {
		task, err := w.get(silent.GetTask().GetTaskId())
		gone = must(w.rig, task, err).GetLosses() == 1
	}
	m, err := w.complete(held)
	if must(w.rig, m, err).GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Errorf("A8: Complete of a worker that was never silent = %v, want COMMITTED", m)
	}
	<-b.ended
	task, err := w.get(held.GetTask().GetTaskId())
	if must(w.rig, task, err).GetLosses() != 0 {
		t.Errorf("A8: the task with heartbeats has lost %d leases, want none", task.GetLosses())
	}
	if b.waited < sync {
		t.Errorf("the longest heartbeat took %v, want at least the sync of %v", b.waited, sync)
	}
	t.Logf("%d heartbeats, the longest of which took %v", b.beats, b.waited.Round(time.Millisecond))
}

// TestDiskSlowerThanLeases: if a commit takes longer than a lease lives, leases may expire, since
// no more than one TTL is given back. No wrong answer is given, /readyz says that the disk is slow,
// and after a restart on a quick disk all verdicts are the same (A6, A8, A10).
func TestDiskSlowerThanLeases(t *testing.T) {
	t.Parallel() // it mostly waits
	for _, sync := range []time.Duration{shortTTL, 2 * shortTTL} {
		t.Run(sync.String(), func(t *testing.T) {
			t.Parallel()
			w := newWatch(newRig(t), shortTTL)
			w.slowDisk(sync)
			answer := w.pollReadyz()
			w.submit(1, spec("slow", shortTTL))
			a, err := w.lease("slow")
			must(w.rig, a, err)
			m, err := w.complete(a)
			switch must(w.rig, m, err).GetVerdict() {
			case lessorv1.Verdict_VERDICT_COMMITTED:
			case lessorv1.Verdict_VERDICT_CANCELLED:
				if m.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED && m.GetReason() != lessorv1.Reason_REASON_SUPERSEDED {
					t.Errorf("Complete of a late result = %v, want LEASE_EXPIRED or SUPERSEDED", m)
				}
			default:
				t.Errorf("Complete = %v, want COMMITTED or CANCELLED", m)
			}
			if text := <-answer; !strings.Contains(text, "the disk is slow") {
				t.Errorf("/readyz answered %q, want that the disk is slow", text)
			}
			w.kill()
			w.c.Under = nil
			w.startCoordinator()
			w.checkSameVerdict(a, m)
		})
	}
}

// pollReadyz polls /readyz until its answer is not "ready", and returns that answer.
func (w *watch) pollReadyz() <-chan string {
	answer := make(chan string, 1)
	url := "http://" + w.c.HTTP() + "/readyz"
	go func() {
		defer close(answer)
		for ; w.ctx.Err() == nil; time.Sleep(shortTTL / 10) {
			res, err := http.Get(url)
			if err != nil {
				return
			}
			text, err := io.ReadAll(res.Body)
			_ = res.Body.Close()
			if err == nil && string(text) != "ready\n" {
				answer <- string(text)
				return
			}
		}
	}()
	return answer
}

// checkSameVerdict checks that the report is answered as before the crash, and that the task has an
// outcome, or can get one.
func (w *watch) checkSameVerdict(a *lessorv1.Assignment, first *lessorv1.CompleteResponse) {
	w.t.Helper()
	m, err := w.complete(a)
	if must(w.rig, m, err).GetVerdict() != first.GetVerdict() {
		w.t.Errorf("A10: a report was told %v, and %v after a crash", first, m)
	}
	if m.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
		return
	}
	for { // until a result comes in time: if the machine stood still for a whole lease, that takes another attempt
		before := time.Now()
		next, err := w.lease("slow")
		must(w.rig, next, err)
		m, err := w.complete(next)
		if must(w.rig, m, err).GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
			return
		}
		if time.Since(before) < shortTTL {
			w.t.Fatalf("Complete on a quick disk = %v, want COMMITTED", m)
		}
	}
}
