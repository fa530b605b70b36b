package engine

import (
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
	// ErrOverloaded means that too many commands of the tenant wait.
	ErrOverloaded = errors.New("too many commands are waiting")
)

// Errors of submits alone. They are no verdicts either.
var (
	// ErrStoreGone refuses a submit because the file of the store was moved or removed, so that the
	// next start would not find the tasks.
	ErrStoreGone = errors.New("the file of the coordinator's store was moved or removed: no tasks are accepted, because the next start would not find them")
	// ErrDiskFull refuses a submit because the disk of the store is nearly full. Submits are taken
	// again once there is room.
	ErrDiskFull = errors.New("the disk of the coordinator is nearly full: new tasks are refused until there is room; running tasks continue")
)

// ErrTaskLimit refuses a submit or a retry after which the tenant would have more tasks than
// Config.MaxTasks allows. Nothing was changed, except that timers that were due were applied. It
// comes as a *TaskLimitError.
var ErrTaskLimit = errors.New("the tenant has reached its limit of tasks")

// TaskLimitError is an ErrTaskLimit with its numbers.
type TaskLimitError struct {
	Used  uint64 // tasks of the tenant that have not ended
	Asked uint64 // tasks that were to be added to them
}

func (e *TaskLimitError) Error() string { return ErrTaskLimit.Error() }

// Is reports whether target is ErrTaskLimit.
func (e *TaskLimitError) Is(target error) bool { return target == ErrTaskLimit }

// Space names a workspace of a tenant. Tasks that must be changed in one step, or counted together,
// are in the same space.
type Space struct {
	Tenant    string
	Workspace string
}

// Granted is a new and durable lease, to be handed to its holder.
type Granted struct {
	// Task.Lease is the new lease; Task.Spec.Payload may be nil, and must then be read from the
	// store
	Task    *lease.Task
	LeaseID string
	Token   uint64 // fencing token
	Bytes   int    // estimated size of its assignment, with payload and checkpoint; rather too high than too low
	Again   bool   // the holder may have received this lease before
}

// Notice tells the holder of a lease to stop.
type Notice struct {
	Task      lease.TaskID
	LeaseID   string
	Reason    lease.Reason
	Detail    string
	GraceEnds lease.Instant // when the holder must have stopped; 0: the lease is lost
	// Silent: the lease ended because its holder was silent, which gets no work until it sends a
	// frame (W5, W9).
	Silent bool
}

// Wants says which tasks a worker takes.
type Wants struct {
	Space  Space
	Worker string
	Queues []string
	Types  []string // empty: every type
	// Capabilities of the worker; tasks may require some of them (W12).
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
	// Deliver passes granted tasks on to the caller; nil: there is nothing to do. It may block. If
	// it returns an error, the caller must not have received the tasks.
	Deliver func([]Granted) error
}

// Member is a session as the engine sees it: a receiver of work with a number of slots. The engine
// calls its callbacks on the committer, after the commit; they must not block.
type Member struct {
	Session string
	Wants   Wants
	Slots   int // most live leases at once
	// Redeliver asks the engine to deliver again what was granted to this very session before and
	// never acknowledged, because no frame has it any more. What was granted to other sessions of
	// the instance is always delivered again.
	Redeliver bool
	// Backlog counts the bytes that wait to be sent to the member; while there are too many, the
	// member gets no new work. May be nil.
	Backlog *Backlog
	// WhyNoSlots says why the member has no slots although the worker offers some, in a sentence
	// about "it"; "" if it offers none. The loop calls it, so it must not wait for anything. May be
	// nil.
	WhyNoSlots func() string
	// Deliver passes new leases on.
	Deliver func([]Granted)
	// Notify says which leases the worker must stop.
	Notify func([]Notice)
	// Displaced is called when a newer stream of the same instance, or another instance, has taken
	// over. why says which of them.
	Displaced func(why string)
}

// Submission is one task to be made.
type Submission struct {
	Space  Space
	Spec   *lease.Spec
	Digest lease.Digest // of the spec as it was sent; needed if it has an idempotency key
}

// SubmitResult is the result of a Submission: a task, or an error as from Submit.
type SubmitResult struct {
	lease.Submitted
	Err error
}

// QueueInfo is a queue with its settings and counts. Ready includes Parked: the READY tasks that
// wait for their concurrency key. Completed, Failed and Cancelled are the ended tasks that are
// there, without those that were submitted before the store had format 10.
type QueueInfo struct {
	Name                             string
	CreatedAt                        lease.Wall
	Settings                         lease.Settings
	Ready, Scheduled, Leased, Parked uint64
	Completed, Failed, Cancelled     uint64
	Takers                           int // number of sessions and waiting requests that want its tasks
	Blocker                          Blocker
	// Lines in which its tasks wait, as many as the call asks for: those first from which none was
	// granted for the longest. It is empty in what UpdateQueue returns.
	Lines []lease.Line
	// MoreLines says that there are more lines than those.
	MoreLines bool
}

// Blocker is the oldest lease that holds a concurrency key under which tasks of a queue are parked.
// It is zero if no task is parked, if the tasks of too many other queues wait for older leases
// (mostBlockers), and in what UpdateQueue returns.
type Blocker struct {
	Since lease.Wall // when the lease was granted
	Task  lease.TaskID
}

// Counts are the numbers of tasks of all tenants that have not ended. Each task counts in exactly
// one field: Parked counts the READY tasks that wait for their concurrency key, Ready counts the
// other READY tasks.
type Counts struct{ Ready, Parked, Scheduled, Leased uint64 }

// TenantCounts are the numbers of what a tenant has in all its workspaces. The fields are as in
// QueueInfo; Workspaces counts those that ever had a task or a queue with settings.
type TenantCounts struct {
	Name                             string
	Workspaces                       int
	Ready, Scheduled, Leased, Parked uint64
	Completed, Failed, Cancelled     uint64
}

// Unended returns how many tasks have not ended.
func (n *TenantCounts) Unended() uint64 { return n.Ready + n.Scheduled + n.Leased }

// Watching says what to watch: a task, or a run of a space. Neither the run nor the space needs to
// have a task yet.
type Watching struct {
	Task  lease.TaskID
	Space Space
	Run   string
}

// News is one event for a watcher: a committed version of a task, or volatile news (progress,
// output) of its attempt.
type News struct {
	Task *lease.Task // the committed version; for volatile news the version at that time; nil: the task was deleted
	ID   lease.TaskID
	Feed *Feed           // the volatile news; nil for a committed version
	Sum  *lease.Feedback // for volatile news: everything that the attempt has reported so far, except its output
	// Later is the lowest sequence of an event of the same run that the same batch made and that
	// comes with later news; 0: there is none, or nobody watches the run.
	Later uint64
}

// size estimates how many bytes the news takes: the version of the task, and what can be long.
func (n *News) size() (bytes int) {
	bytes = 1 << 10
	if n.Feed != nil {
		bytes = n.Feed.Size()
	}
	if n.Task != nil {
		bytes += len(n.Task.Spec.Payload) + historySize(n.Task.History)
	}
	return bytes
}

// Feed is volatile news of a running attempt. A field that is nil or empty means no change.
type Feed struct {
	TaskID   string
	LeaseID  string
	Fraction *float64
	Stage    string
	Message  string
	Metrics  map[string]float64
	Chunks   []lease.Chunk
	Lost     int // how many items of news of the attempt were dropped right before this one
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

// says reports whether the news has anything besides Lost.
func (f *Feed) says() bool { return f.Progresses() || len(f.Chunks) > 0 }

// Progresses reports whether the news contains progress, and not only output.
func (f *Feed) Progresses() bool {
	return f.Fraction != nil || f.Stage != "" || f.Message != "" || f.Metrics != nil
}
