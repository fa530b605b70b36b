package worker_test

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// W1: one session from the handshake over register, start and complete to goodbye, with the fields
// of its frames and the states that OnState is told.
func TestHappyPath(t *testing.T) {
	t.Attr("rules", "W1")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{Version: "1.2", PoolID: "gpu"}, echo)
		s := c.accept()
		checkOpening(t, s)

		s.dispatch("t1")
		s.started("t1")
		f, report := s.outcome()
		got := report.GetComplete()
		if string(got.GetOutput()) != "in-t1" || got.GetAttempt() != 1 || got.GetWorkerId() != "w1" || got.GetLeaseId() != "lease-t1" {
			t.Errorf("complete = %v, want output in-t1, attempt 1, worker w1 and lease-t1", got)
		}
		s.commit(f)
		synctest.Wait() // a worker that has nothing left may end while the hook of its drain is still called

		r.stop()
		s.next("goodbye", isGoodbye)
		if err := r.done(); err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		want := []worker.State{
			worker.StateHandshaking, worker.StateRegistered, worker.StateHeartbeating, worker.StateDraining, worker.StateClosed,
		}
		if !slices.Equal(r.states, want) {
			t.Errorf("states = %v, want %v", r.states, want)
		}
	})
}

func checkOpening(t *testing.T, s *stream) {
	t.Helper()
	h := s.handshake
	if h.GetTenant() != "default" || h.GetSender().GetRole() != "worker" || h.GetSender().GetId() != "w1" {
		t.Errorf("envelope of the first frame = %v, want tenant default, role worker and id w1", h)
	}
	if i := h.GetHandshake(); i.GetProtocol() != 1 || i.GetWorker().GetName() != "w1" || i.GetWorker().GetVersion() != "1.2" {
		t.Errorf("handshake = %v, want protocol 1, name w1 and version 1.2", i)
	}
	reg := s.register.GetRegister()
	if !slices.Equal(reg.GetQueues(), []string{"q"}) || !slices.Equal(reg.GetCapabilities().GetTypes(), []string{"work"}) ||
		reg.GetCapabilities().GetConcurrency().GetMaxParallel() != 1 || reg.GetPoolId() != "gpu" {
		t.Errorf("register = %v, want queue q, type work, max_parallel 1 and pool gpu", reg)
	}
}

// W9: an idle worker sends a heartbeat at the interval that accept states.
func TestIdleHeartbeat(t *testing.T) {
	t.Attr("rules", "W9")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		r := c.run(worker.Config{}, echo)
		s := c.accept()
		isBeat := func(f *lessorv1.SessionRequest) bool { return f.GetHeartbeat() != nil }
		s.next("first heartbeat", isBeat)
		for range 3 {
			before := time.Now()
			f := s.next("heartbeat", isBeat)
			if got := time.Since(before); got != interval {
				t.Errorf("heartbeat after %v, want %v", got, interval)
			}
			if !f.GetHeartbeat().GetHealthy() {
				t.Errorf("heartbeat = %v, want healthy", f)
			}
		}
		r.shutdown()
	})
}

// S7: the coordinator decides how large a task may be. The worker takes a task that is larger than
// its own MaxMessageBytes, which limits only what it sends.
func TestLargeTaskIsTaken(t *testing.T) {
	t.Attr("rules", "S7")
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		sizes := make(chan int, 1)
		r := c.run(worker.Config{MaxMessageBytes: 256 << 10}, func(_ context.Context, task *worker.Task) ([]byte, error) {
			sizes <- len(task.Payload)
			return nil, nil
		})
		s := c.accept()
		d := dispatchOf("t1")
		d.GetDispatch().Assignments[0].Task.Spec.Payload = make([]byte, 8<<20)
		s.send(d)
		s.started("t1")
		f, _ := s.outcome()
		s.commit(f)
		if size := <-sizes; size != 8<<20 {
			t.Errorf("the handler got a payload of %d bytes, want %d", size, 8<<20)
		}
		r.shutdown()
	})
}
