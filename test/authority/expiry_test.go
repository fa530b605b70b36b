//go:build faults

package authority

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// TestCompleteAtExpiry: a Complete that arrives when its lease expires is either COMMITTED, and the
// task is never granted again, or refused, and the task is granted again (A3, A4). It is aimed at
// the expiry within 3 ms. On a busy machine more tries are needed until both outcomes are frequent
// enough.
func TestCompleteAtExpiry(t *testing.T) {
	const lanes, runs, most = 80, 5, 100
	r := newRig(t)
	r.c.Start()
	var mu sync.Mutex
	committed, outcomes := map[string]bool{}, map[bool]int{}
	enough := func() bool {
		mu.Lock()
		defer mu.Unlock()
		return min(outcomes[true], outcomes[false]) >= lanes*runs/10
	}
	var busy sync.WaitGroup
	for i := range lanes {
		l := &lane{rig: r, queue: fmt.Sprintf("expiry%d", i)}
		busy.Go(func() {
			for i := 0; i < runs || i < most && !enough(); i++ {
				id, first, err := l.run()
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				committed[id] = first
				outcomes[first]++
				mu.Unlock()
			}
		})
	}
	busy.Wait()
	r.check(committed)
	t.Logf("%d completes at the expiry: %d committed, %d refused and granted again",
		len(committed), outcomes[true], outcomes[false])
	if !enough() {
		t.Errorf("one of the two outcomes came less than %d times: the Completes did not arrive at the expiry", lanes*runs/10)
	}
}

// lane makes one attempt after another in its own queue, and learns when to send its Complete.
type lane struct {
	*rig
	queue string
	// early is how long before the expiry a Complete must be sent to arrive at the expiry.
	early time.Duration
	// last is the last outcome, and same how many before it were the same, without a break.
	last bool
	same int
}

// briefTTL is the heartbeat timeout: longer than a commit on a slow disk, so that the Start comes
// in time. After six grants in a row without a Start, the task would be FAILED (W5).
const briefTTL = 600 * time.Millisecond

// How precisely a lane aims, and by how much each outcome corrects it.
const (
	aimJitter = 3 * time.Millisecond
	aimStep   = time.Millisecond
)

// correct corrects the aim after an outcome. Many of the same mean that it is far off, as on a slow
// disk: the answer to a Start, by which the lane knows the expiry, comes a whole commit late there.
// Then the steps grow.
func (l *lane) correct(committed bool) {
	if l.same++; committed != l.last {
		l.last, l.same = committed, 0
	}
	const few, most = 3, 6
	step := aimStep << min(max(0, l.same-few), most)
	if committed {
		step = -step
	}
	l.early += step
}

// run lets the first Complete of a task arrive at the expiry of its lease, and makes sure that the
// task is completed in the end.
func (l *lane) run() (id string, committed bool, err error) {
	m, err := l.tasks().SubmitTask(l.ctx, &lessorv1.SubmitTaskRequest{Task: spec(l.queue, briefTTL)})
	if err != nil {
		return "", false, err
	}
	id = m.GetTask().GetTaskId()
	a, err := l.lease(l.queue)
	if err != nil {
		return id, false, err
	}
	before := time.Now()
	s, err := l.start(a)
	if err != nil {
		return id, false, err
	}
	expiry := before.Add(time.Since(before) / 2).Add(s.GetExpiresIn().AsDuration())
	time.Sleep(time.Until(expiry.Add(-l.early - aimJitter + rand.N(2*aimJitter))))
	done, err := l.complete(a)
	switch {
	case err != nil:
		return id, false, err
	case done.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED:
		l.correct(true)
		return id, true, nil
	case done.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED:
		return id, false, fmt.Errorf("A3: Complete at the expiry = %v, want COMMITTED or LEASE_EXPIRED", done)
	}
	l.correct(false)
	return id, false, l.completeLater(id)
}

// completeLater leases the refused task until a Complete is in time. The queue has no other task.
func (l *lane) completeLater(id string) error {
	for {
		a, err := l.lease(l.queue)
		if err != nil {
			return err
		}
		if a.GetTask().GetTaskId() != id {
			return fmt.Errorf("A4: task %s was refused, and %s granted", id, a.GetTask().GetTaskId())
		}
		// without a Start this would count as an unacknowledged grant, and six of those are too
		// many (W5)
		if _, err := l.start(a); err != nil {
			return err
		}
		m, err := l.complete(a)
		if err != nil || m.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
			return err
		}
	}
}

// check checks that each task was completed once, and was granted only once if its first Complete
// was COMMITTED.
func (r *rig) check(committed map[string]bool) {
	r.t.Helper()
	for id, first := range committed {
		task, err := r.get(id)
		must(r, task, err)
		grants := count(task, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED)
		completions := count(task, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED)
		if task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || completions != 1 || first != (grants == 1) {
			r.t.Errorf("A4: the first complete was committed: %v; granted %d times, completed %d times: %v",
				first, grants, completions, task)
		}
	}
}
