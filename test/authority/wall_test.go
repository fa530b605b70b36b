//go:build faults

package authority

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/test/harness"
)

// TestWallClockJumps: the wall clock of the machine jumps while leases are held, under a running
// coordinator and during a restart. No lease ends early or late by that (A8).
func TestWallClockJumps(t *testing.T) {
	t.Parallel() // it mostly waits
	const year = 365 * 24 * time.Hour
	wall := newWallClock(t)
	w := newWatch(newRig(t), time.Second)
	w.c.Env = []string{wallFile + "=" + wall.path}
	w.startCoordinator()
	w.holdLease()
	jumps := 0
	for _, restart := range []bool{false, true} {
		for _, shift := range []time.Duration{time.Hour, -time.Hour, 10 * year, 0} {
			w.addSilentLease()
			if restart {
				w.kill()
			}
			wall.set(shift)
			if restart {
				w.startCoordinator()
			}
			w.checkWallClock(shift)
			for w.check() > 0 {
				time.Sleep(20 * time.Millisecond)
			}
			if jumps++; restart {
				jumps = 0 // it did not run
			}
			if n := strings.Count(w.c.Process().Stderr(), "the wall clock was set"); n != jumps {
				t.Errorf("the coordinator has logged %d jumps of the wall clock, want %d", n, jumps)
			}
		}
	}
	m, err := w.complete(w.held)
	if must(w.rig, m, err).GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
		t.Errorf("A8: Complete under the held lease = %v, want COMMITTED", m)
	}
	t.Logf("%d jumps, %d silent leases of %v; the longest was seen alive after at least %v of serving time",
		len(w.silent), w.ended, w.ttl,
		w.longest.Round(time.Millisecond))
}

// TestWallClockMovesTheCalendar: the wall clock jumps forward, under a coordinator that has nothing
// else to do and during a restart. A task becomes READY at its run_at and another one fails at its
// deadline as soon as the clock says so. While the clock is set back, neither happens.
func TestWallClockMovesTheCalendar(t *testing.T) {
	const at = 30 * time.Minute
	wall := newWallClock(t)
	r := newRig(t)
	r.c.Env = []string{wallFile + "=" + wall.path}
	r.c.Start()
	for _, restart := range []bool{false, true} {
		due, late := spec("calendar", time.Minute), spec("calendar", time.Minute)
		due.RunAt, late.Deadline = timestamppb.New(time.Now().Add(at)), timestamppb.New(time.Now().Add(at))
		tasks := []*calendarTask{
			{r.submitOne(due), lessorv1.TaskState_TASK_STATE_SCHEDULED, lessorv1.TaskState_TASK_STATE_READY},
			{r.submitOne(late), lessorv1.TaskState_TASK_STATE_READY, lessorv1.TaskState_TASK_STATE_FAILED},
		}
		for _, shift := range []time.Duration{-2 * at, 2 * at} {
			if restart {
				r.c.Kill()
			}
			wall.set(shift)
			if restart {
				r.c.Start()
			}
			for _, task := range tasks {
				if shift > 0 {
					r.waitForState(task.id, task.after)
				} else if m, err := r.get(task.id); must(r, m, err).GetState() != task.before {
					t.Errorf("with a clock that is off by %v, task %s is %v, want %v", shift, task.id, m.GetState(), task.before)
				}
			}
		}
		wall.set(0)
	}
}

type calendarTask struct {
	id            string
	before, after lessorv1.TaskState
}

func (r *rig) submitOne(s *lessorv1.TaskSpec) (id string) {
	r.t.Helper()
	m, err := r.tasks().SubmitTask(r.ctx, &lessorv1.SubmitTaskRequest{Task: s})
	return must(r, m, err).GetTask().GetTaskId()
}

// waitForState waits until a task has a state. It only watches, so that the coordinator has nothing
// to do.
func (r *rig) waitForState(id string, want lessorv1.TaskState) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.ctx, harness.Patience)
	defer cancel()
	watch, err := r.tasks().WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: id})
	for must(r, watch, err); ; {
		m, err := watch.Recv()
		if must(r, m, err).GetTaskState() == want {
			return
		}
	}
}

// checkWallClock fails the test if the coordinator does not see the jump.
func (w *watch) checkWallClock(shift time.Duration) {
	w.t.Helper()
	m, err := lessorv1.NewAdminServiceClient(w.c.Conn()).GetStatus(w.ctx, &lessorv1.GetStatusRequest{})
	at := must(w.rig, m, err).GetServerTime().AsTime()
	if off := time.Until(at) - shift; off.Abs() > time.Minute {
		w.t.Fatalf("the coordinator's time is %v, want that its wall clock is off by %v", at, shift)
	}
}

// wallFile is the environment variable with the name of the file that sets how far the wall clock
// of a coordinator built with the tag faults is off.
const wallFile = "LESSOR_FAULT_WALL"

type wallClock struct {
	t    *testing.T
	path string
}

func newWallClock(t *testing.T) *wallClock {
	t.Helper()
	c := &wallClock{t: t, path: filepath.Join(t.TempDir(), "wall")}
	c.set(0)
	return c
}

// set replaces the file atomically, so that the coordinator never reads part of it.
func (c *wallClock) set(shift time.Duration) {
	c.t.Helper()
	err := os.WriteFile(c.path+".new", []byte(shift.String()), 0o600)
	if err == nil {
		err = os.Rename(c.path+".new", c.path)
	}
	if err != nil {
		c.t.Fatal(err)
	}
}
