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
	// ErrDiskFull refuses a submit because the disk of the store is nearly full. Submits are taken again once there is room.
	ErrDiskFull = errors.New("the disk of the coordinator is nearly full: new tasks are refused until there is room; existing tasks continue")
)

// ErrFull refuses a submit by which the tenant would have more tasks than Config.MaxTasks. Nothing was changed.
var ErrFull = errors.New("the tenant has reached its limit of tasks")

// Space names a workspace of a tenant. Whatever must be atomic, or be counted together, lies within one space.
type Space struct {
	Tenant    string
	Workspace string
}

// Granted is a new and durable lease, to be handed to its holder.
type Granted struct {
	Task    *lease.Task // Task.Lease is the new lease; Task.Spec.Payload may be nil, and must then be read from the store
	LeaseID string
	Token   uint64 // fencing token
	Bytes   int    // size of its assignment, payload and checkpoint included; an estimate that is rather too high than too low
	Again   bool   // the holder may have received this lease before
}

// Notice tells the holder of a lease to stop.
type Notice struct {
	Task    lease.TaskID
	LeaseID string
	Reason  lease.Reason
	Detail  string
	Grace   time.Duration // 0: the lease is lost
}

// Wants says which tasks a worker takes.
type Wants struct {
	Space  Space
	Worker string
	Queues []string
	Types  []string // empty: every type
	// What the worker has, compared with what tasks require (W12).
	Capabilities lease.Capabilities
	TypeLimits   map[string]uint32 // most live leases of each type; a type without an entry has no limit
	SingleFlight bool              // the worker runs at most one task of a concurrency key at a time (W12)
	MaxBytes     uint64            // most bytes of payloads and checkpoints of its live leases together; 0: no limit
}

// LeaseRequest is a unary request for work.
type LeaseRequest struct {
	Wants
	Max     int
	Wait    time.Duration
	Request string // request id: a repeat of the request returns the same live leases; empty: none
}

// Member is a session as the engine sees it: a receiver of work with a number of slots. The engine calls its callbacks on the committer,
// after the commit; they must not block.
type Member struct {
	Session string
	Wants   Wants
	Slots   int // most live leases at once
	// Redeliver asks the engine to deliver again the leases that an earlier session of the same instance never acknowledged.
	Redeliver bool
	// Backlog counts the bytes that wait to be sent to the member; while there are too many it gets no new work. May be nil.
	Backlog *Backlog
	// Deliver hands over new leases.
	Deliver func([]Granted)
	// Notify says which leases the worker must stop.
	Notify func([]Notice)
	// Displaced says that a newer stream of the same instance has taken over.
	Displaced func()
}

// Calls lists what the engine offers to the edge. A call that changes something returns after the change is durable.
type Calls interface {
	// Submit makes tasks of one space, all or none. A refusal is a *lease.FieldError or a *lease.ExistsError, and the int is then the index
	// of the refused spec; or it is ErrFull or ErrDiskFull.
	Submit(ctx context.Context, space Space, specs []*lease.Spec, digests []lease.Digest) ([]lease.Submitted, int, error)
	// SubmitEach makes tasks that are independent of each other. It does not wait: the committer calls after once, either with the results,
	// in order, or with an error, which means that nobody knows what was made. after must not block. If SubmitEach itself returns an error,
	// nothing was made and after is not called.
	SubmitEach(tenant string, all []Submission, after func([]SubmitResult, error)) error
	// Judge judges reports of one tenant and returns the answers in the same order.
	Judge(ctx context.Context, tenant string, reports []*lease.Report) ([]lease.Answer, error)
	// Lease grants waiting tasks. If there are none it waits for the first, for at most r.Wait. If ctx ends before the hand-over, what was
	// granted is requeued at once (W5).
	Lease(ctx context.Context, r LeaseRequest) ([]Granted, error)
	// Cancel, Retry and Delete change one task; Cancel and Retry return its new version. Errors: lease.ErrNotFound, *lease.StateError, and
	// of Retry also *lease.FieldError and ErrFull.
	Cancel(ctx context.Context, c lease.Cancel) (*lease.Task, error)
	Retry(ctx context.Context, c lease.Retry) (*lease.Task, error)
	Delete(ctx context.Context, c lease.Delete) error
	// Adopt makes a discarded result the outcome of its task (V15). Errors: lease.ErrNotFound, *lease.StateError.
	Adopt(ctx context.Context, c lease.Adopt) (*lease.Task, error)
	// Sweep runs a bulk command on the tasks of a space, oldest first, in bounded steps. Each step is durable before the next begins. One
	// call makes a bounded number of steps. If ctx ends, the steps that were made stay.
	Sweep(ctx context.Context, s Sweep) (Swept, error)

	// Now reads both clocks.
	Now() lease.Now
	// Epoch of the store.
	Epoch() uint32
	// SpaceNumber finds the number of a space in the store; ok is false before its first task.
	SpaceNumber(space Space) (number uint32, ok bool)
	// Sequences tells which sequences the tasks and events of a space may have. The error is lease.ErrNotFound if the tenant has no such space.
	Sequences(ctx context.Context, tenant string, space uint32) (Sequences, error)
	// Queues lists at most limit queues of a space, in the order of their names, beginning behind the name after.
	Queues(ctx context.Context, space Space, after string, limit int) ([]QueueInfo, error)
	// Queue shows one queue; found is false if there is none of that name.
	Queue(ctx context.Context, space Space, name string) (info QueueInfo, found bool, err error)
	// UpdateQueue calls change with a copy of the settings of a queue, and puts the changed copy in force. It makes the queue if there is
	// none. change may set fields of the copy, but must not write to its map. The error may be a *lease.FieldError; then nothing has changed.
	UpdateQueue(ctx context.Context, space Space, name string, change func(*lease.Settings)) (QueueInfo, error)
	// Explain tells why a task is where it is. The error is lease.ErrNotFound if the tenant has no such task.
	Explain(ctx context.Context, tenant string, id lease.TaskID) (lease.Explanation, error)
	// Watch subscribes to what happens from now on to a task (Task set) or a run (Run set). A slow reader blocks nobody: when its channel is
	// full, all news that wait in it are dropped, and the next one tells how many. Close the subscription when done.
	Watch(w Watching) *Subscription
	// Feed passes volatile news of a running attempt to watchers, if the lease is live. It does not wait: a goroutine of the engine calls done
	// when watchers can read the news, or never will. done must not block.
	Feed(tenant string, f Feed, done func())
	// LiveFeedback returns what the attempt of a live lease has said of itself so far; nil if it has said nothing.
	LiveFeedback(id lease.TaskID) *lease.Feedback
}

// Submission is one task to be made.
type Submission struct {
	Space  Space
	Spec   *lease.Spec
	Digest lease.Digest // of the spec as it was sent; needed if it has an idempotency key
}

// SubmitResult is what became of a Submission: a task, or an error as of Submit.
type SubmitResult struct {
	lease.Submitted
	Err error
}

// QueueInfo is a queue with its settings and counts. Ready includes Parked: the READY tasks that wait for their concurrency key.
type QueueInfo struct {
	Name                             string
	CreatedAt                        lease.Wall
	Settings                         lease.Settings
	Ready, Scheduled, Leased, Parked uint64
	Takers                           int // number of sessions and waiting requests that want its tasks
}

// Counts are the numbers of tasks of all tenants that have not ended. Each task is in one of them: Parked counts the READY tasks that wait for
// their concurrency key, Ready the other READY tasks.
type Counts struct{ Ready, Parked, Scheduled, Leased uint64 }

// Watching says what to watch: a task, or a run of a space.
type Watching struct {
	Task  lease.TaskID
	Space uint32
	Run   string
}

// News is one thing that happened: a committed version of a task, or volatile news of its attempt.
type News struct {
	Task    *lease.Task // the committed version; of volatile news the version at that time; nil: the task was deleted
	ID      lease.TaskID
	Feed    *Feed           // of volatile news; else nil
	Sum     *lease.Feedback // of volatile news: everything that the attempt has said so far, except its output
	Skipped int             // how many news were dropped right before this one because the reader was slow; durable ones are in the store
	Gone    int             // how many of those said that a task was deleted, which the store does not tell
}

// Feed is volatile news of a running attempt. A field that is nil or empty says nothing new.
type Feed struct {
	TaskID   string
	LeaseID  string
	Fraction *float64
	Stage    string
	Message  string
	Metrics  map[string]float64
	Chunks   []lease.Chunk
	Lost     int // how many news of the attempt were dropped right before this one
}

// Size returns roughly how many bytes the news has.
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

// says reports whether the news says anything beside Lost.
func (f *Feed) says() bool { return f.Progresses() || len(f.Chunks) > 0 }

// Progresses reports whether the news tells of progress, and not only of output.
func (f *Feed) Progresses() bool {
	return f.Fraction != nil || f.Stage != "" || f.Message != "" || f.Metrics != nil
}
