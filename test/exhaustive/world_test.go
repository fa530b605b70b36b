package exhaustive

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

const (
	taskCount = 2
	slots     = 4 // attempts of a task: those of the largest scope, and one for drains
	tick      = lease.Instant(time.Second)
	ttl       = 2 * tick
	tenant    = "tenant"
)

// now never changes. When a tick passes, all times of the serving clock move one tick closer to now
// instead. So worlds that differ only in their age are one.
var now = lease.Now{Serving: 1000 * tick, Wall: lease.Wall(1000 * tick)}

// world is the state of everything.
type world struct {
	memory, disk database
	workerView   [taskCount][slots]workerView // what the workers know
	batch        []pendingNews                // will be told once the batch is durable
	steps        int                          // in the batch
	clockBehind  lease.Instant                // how far the stored serving clock is behind
	epoch        uint32
	crashes      int
	cancels      int
	adoptions    int
}

// database is what a coordinator knows; what is on disk survives a crash.
type database struct {
	tasks  [taskCount]*lease.Task // those beyond scope.tasks are completed from the beginning
	ledger [taskCount][slots]*lease.Committed
	kept   [taskCount][slots]bool
}

func id(task int) lease.TaskID { return lease.TaskID{Space: 1, Seq: uint64(task + 1)} }

func newWorld(s *scope) *world {
	w := &world{epoch: 1}
	for i := range taskCount {
		w.memory.tasks[i] = newTask(s, i)
	}
	w.disk = w.memory
	return w
}

func newTask(s *scope, i int) *lease.Task {
	spec := &lease.Spec{
		Queue: "q", HeartbeatTimeout: time.Duration(ttl), CancelGrace: time.Duration(2 * tick), Retention: lease.MaxRetention,
		Retry: lease.RetryPolicy{ // with its smallest jitter, the backoff takes one tick
			MaxAttempts: 2, MaxLosses: 2, InitialBackoff: time.Second * 5 / 4, Multiplier: 1, MaxBackoff: time.Second * 5 / 4,
		},
	}
	if s.keyed {
		spec.ConcurrencyKey, spec.ConcurrencyLimit = "key", 1
	}
	t := &lease.Task{ID: id(i), Tenant: tenant, Spec: spec, Round: 1, Rest: lease.Ready, Place: 1, CreatedAt: now.Wall}
	if i >= s.tasks {
		t.Rest, t.FinishedAt = lease.Completed, now.Wall
	}
	return t
}

// clone copies what a move may change. Versions of tasks never change, so they are shared.
func (w *world) clone() *world {
	c := *w
	c.batch = append([]pendingNews(nil), w.batch...)
	return &c
}

// The methods of lease.View.

func (d *database) Task(id lease.TaskID) *lease.Task { return d.tasks[id.Seq-1] }

func (d *database) Payload(id lease.TaskID) []byte { return d.Task(id).Spec.Payload }

func (d *database) Committed(id lease.TaskID, attempt uint32) *lease.Committed {
	if attempt == 0 || attempt > slots {
		return nil
	}
	return d.ledger[id.Seq-1][attempt-1]
}

func (d *database) Discarded(id lease.TaskID, attempt uint32) *lease.Result {
	if attempt > 0 && d.kept[id.Seq-1][attempt-1] {
		return &lease.Result{}
	}
	return nil
}

func (d *database) Holders(uint32, string) lease.Holders {
	var h lease.Holders
	for _, t := range d.tasks {
		if t.Lease != nil {
			h.Count++
			h.Limit = t.Spec.ConcurrencyLimit
		}
	}
	return h
}

func (d *database) Key(uint32, string) (lease.TaskID, lease.Digest, bool) {
	return lease.TaskID{}, lease.Digest{}, false
}

func (d *database) Queue(uint32, string) lease.Queue { return lease.Queue{} }

func (d *database) NextSeq(uint32) uint64 { return 1 }
