package engine

import (
	"context"
	"errors"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Errors of every call. None of them is a verdict: the caller may repeat the call unchanged.
var (
	// ErrStopped means that the engine no longer takes commands.
	ErrStopped = errors.New("the coordinator is stopping")
	// ErrStore means that a commit failed, so that its outcome is unknown until the next start.
	ErrStore = errors.New("the store failed")
	// ErrOverloaded means that too many commands wait.
	ErrOverloaded = errors.New("too many commands are waiting")
	// ErrDiskFull means that no tasks are made until the disk of the store has room again.
	ErrDiskFull = errors.New("the disk of the coordinator is nearly full: no tasks are taken in until there is room; those that are there go on")
)

// ErrFull refuses a submit by which the tenant would have more tasks than Config.MaxTasks. Nothing was changed.
var ErrFull = errors.New("the tenant has as many tasks as it may have")

// Space names a workspace of a tenant, the unit that everything atomic or counted together lies in.
type Space struct {
	Tenant    string
	Workspace string
}

// Granted is one new lease, durable, on its way to its holder.
type Granted struct {
	Task    *lease.Task // its Spec carries the payload only where that is in memory; Lease is the new lease
	LeaseID string
	Token   uint64 // fencing token
	Bytes   int    // about what its assignment has, payload and checkpoint included; rather too many than too few
	Again   bool   // it may have come to its holder before
}

// Notice tells the holder of a lease to stop.
type Notice struct {
	Task    lease.TaskID
	LeaseID string
	Reason  lease.Reason
	Detail  string
	Grace   time.Duration // 0: the lease is lost
}

// Wants is what a worker takes.
type Wants struct {
	Space  Space
	Worker string
	Queues []string
	Types  []string // empty: every type
	// What the worker has, compared with what tasks require (W12).
	Capabilities lease.Capabilities
	TypeLimits   map[string]uint32 // live leases of a type at most; a type without an entry is not limited
	SingleFlight bool              // one task of a concurrency key at a time on this worker (W12)
	MaxBytes     uint64            // payloads and checkpoints of its live leases at most; 0: no limit
}

// LeaseRequest is a unary request for work.
type LeaseRequest struct {
	Wants
	Max     int
	Wait    time.Duration
	Request string // id that makes a repeat return the same live leases; empty: none
}

// Member is a session as the engine sees it: a place to send work to, with a number of free slots. Its callbacks run on the
// engine's committer, after the commit; they must not block.
type Member struct {
	Session string
	Wants   Wants
	Slots   int // live leases at most
	// Redeliver asks for the leases that its instance never acknowledged.
	Redeliver bool
	// Backlog is what waits to be sent to it: while that is too much, it gets no new work. May be nil.
	Backlog *Backlog
	// Deliver hands over new leases.
	Deliver func([]Granted)
	// Notify tells of leases to stop.
	Notify func([]Notice)
	// Displaced tells that a newer stream of the same instance has taken over.
	Displaced func()
}

// Calls lists what the engine offers to the edge. Every call returns after its effect is durable.
type Calls interface {
	// Submit makes tasks of one space, all or none. On refusal the error is a *lease.FieldError or *lease.ExistsError, and the int the
	// index of the spec that it is about; or it is ErrFull.
	Submit(ctx context.Context, space Space, specs []*lease.Spec, digests []lease.Digest) ([]lease.Submitted, int, error)
	// SubmitEach makes tasks that are independent of each other. It does not wait: after gets the fates, in order, on the committer, or the
	// error that means that nobody knows. It must not block.
	SubmitEach(tenant string, all []Submission, after func([]Fate, error)) error
	// Say judges reports of one tenant; the answers are in their order.
	Say(ctx context.Context, tenant string, reports []*lease.Report) ([]lease.Answer, error)
	// Lease grants waiting tasks, waiting for the first if asked to. If ctx ends before the hand-over, what was granted is
	// requeued at once (W5).
	Lease(ctx context.Context, r LeaseRequest) ([]Granted, error)
	// Cancel, Retry and Delete change one task and return its new version, nil once deleted. Errors: lease.ErrNotFound,
	// *lease.StateError, *lease.FieldError.
	Cancel(ctx context.Context, c lease.Cancel) (*lease.Task, error)
	Retry(ctx context.Context, c lease.Retry) (*lease.Task, error)
	Delete(ctx context.Context, c lease.Delete) error
	// Adopt makes a discarded result the outcome of its task (V15). Errors: lease.ErrNotFound, *lease.StateError.
	Adopt(ctx context.Context, c lease.Adopt) (*lease.Task, error)
	// Sweep runs a bulk command on the tasks of a space, from the oldest on: in bounded steps, each durable before the next, a bounded number
	// in one call. If ctx ends, what was done is done.
	Sweep(ctx context.Context, s Sweep) (Swept, error)

	// Now reads both clocks.
	Now() lease.Now
	// Epoch of the store.
	Epoch() uint32
	// SpaceNumber finds the number of a space in the store; ok is false before its first task.
	SpaceNumber(space Space) (number uint32, ok bool)
	// LastSequence is the newest sequence of a space; lease.ErrNotFound if the tenant has none such.
	LastSequence(ctx context.Context, tenant string, space uint32) (uint64, error)
	// Queues lists the queues of a space by name, after a name, at most limit.
	Queues(ctx context.Context, space Space, after string, limit int) ([]QueueInfo, error)
	// Queue shows one queue, if there is one of the name.
	Queue(ctx context.Context, space Space, name string) (info QueueInfo, found bool, err error)
	// UpdateQueue lets change work on the settings of a queue, which is made if it is not there, and puts them in force. change gets a copy
	// whose map it must not write to. The error may be a *lease.FieldError; then nothing has changed.
	UpdateQueue(ctx context.Context, space Space, name string, change func(*lease.Settings)) (QueueInfo, error)
	// Explain tells why a task is where it is; lease.ErrNotFound if the tenant has none such.
	Explain(ctx context.Context, tenant string, id lease.TaskID) (lease.Explanation, error)
	// Watch subscribes to what happens to a task (Task set) or a run (Run set) from now on. The channel of a slow reader never
	// blocks: it loses what waits in it, and the news after that say how much. Close it when done.
	Watch(w Watching) *Subscription
	// Feed passes volatile news of a running attempt to watchers, if the lease is live. It does not wait: done is called, by a goroutine of the engine, when
	// the news can be read or never will be; it must not block.
	Feed(tenant string, f Feed, done func())
	// Volatile returns what the attempt of a live lease has said of itself so far; nil: nothing.
	Volatile(id lease.TaskID) *lease.Feedback
}

// Submission is one task to be made.
type Submission struct {
	Space  Space
	Spec   *lease.Spec
	Digest lease.Digest // of the spec as sent; needed where it has an idempotency key
}

// Fate is what became of a submission: a task, or a *lease.FieldError or *lease.ExistsError.
type Fate struct {
	lease.Submitted
	Err error
}

// QueueInfo is a queue with its settings and counts; Parked of the Ready tasks wait for their concurrency key.
type QueueInfo struct {
	Name                             string
	CreatedAt                        lease.Wall
	Settings                         lease.Settings
	Ready, Scheduled, Leased, Parked uint64
	Takers                           int // sessions and waiting requests that want its tasks
}

// Counts are the tasks of all tenants that have not ended, each in one of them: Parked are READY, and kept back by their concurrency key.
type Counts struct{ Ready, Parked, Scheduled, Leased uint64 }

// Watching says what to watch: a task, or a run of a space.
type Watching struct {
	Task  lease.TaskID
	Space uint32
	Run   string
}

// News is one thing that happened: a committed version of a task, or volatile news of its attempt.
type News struct {
	Task    *lease.Task // newest version, or with volatile news the one of that time; nil: deleted
	ID      lease.TaskID
	Feed    *Feed           // set for volatile news
	Sum     *lease.Feedback // with volatile news: all that the attempt has said, but for its output
	Skipped int             // news lost right before this one, since the reader was slow; what is durable of them is in the store
}

// Feed is volatile news of a running attempt. What is nil or empty stays as it was.
type Feed struct {
	TaskID   string
	LeaseID  string
	Fraction *float64
	Stage    string
	Message  string
	Metrics  map[string]float64
	Chunks   []lease.Chunk
	Lost     int // news that were dropped right before this one
}

// Size is about how many bytes the news has.
func (f *Feed) Size() int {
	n := 256 + len(f.TaskID) + len(f.LeaseID) + len(f.Stage) + len(f.Message)
	for name := range f.Metrics {
		n += len(name) + 8
	}
	for i := range f.Chunks {
		n += 64 + f.Chunks[i].Size()
	}
	return n
}

// says reports whether the news is more than that others were dropped.
func (f *Feed) says() bool { return f.Progresses() || len(f.Chunks) > 0 }

// Progresses reports whether the news is of progress, and not of output alone.
func (f *Feed) Progresses() bool {
	return f.Fraction != nil || f.Stage != "" || f.Message != "" || f.Metrics != nil
}
