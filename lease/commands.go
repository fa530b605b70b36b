package lease

import "time"

// Command is one of Submit, Grant, Unpark, LoseResource, Judge, Requeue, Cancel, Retry, Delete,
// Adopt, Expire and Stall.
type Command interface{ command() }

// Submit makes tasks in one space: all of them or none.
type Submit struct {
	Space     uint32
	Tenant    string
	Workspace string
	Specs     []*Spec
	// Digests are the digests of the specs as they were sent. Only the specs with an idempotency
	// key need one.
	Digests []Digest
}

// Grant leases a READY task to a worker. If the task is not READY any more, or is blocked, Changes
// has no new lease. A task that is blocked by its concurrency key becomes parked.
type Grant struct {
	Task    TaskID
	Worker  string
	Session string // empty: unary, which needs no acknowledgement (W5)
	Request string
	// Behind says that a task before this one in its line is parked under the same concurrency key.
	// Then this task is parked as well, even if there is room for it: otherwise a task with a small
	// concurrency_limit could be overtaken for ever (T2, T11).
	Behind bool
}

// Unpark puts a parked task back in its line. The caller does so when the task's concurrency key
// may have room again.
type Unpark struct{ Task TaskID }

// LoseResource fails a READY task if the worker to which it is pinned has been gone for too long
// (W12). It does not change a task that is not READY or is pinned to another worker.
type LoseResource struct {
	Task   TaskID
	Worker string
	After  time.Duration // how long the worker has been gone; recorded in the history
}

// Judge asks for verdicts on what workers of the tenant send about one task: reports, Starts,
// Heartbeats and acknowledgements with the same task id. The rules judge them in order, each on the
// state after the previous one, as if each came alone. Together they make one Change.
type Judge struct {
	Tenant  string
	Reports []*Report
}

// Requeue ends a lease for a reason that is not the fault of the task, such as the holder's
// goodbye, and puts the task back in its old place. It counts neither as a failure nor as a loss.
type Requeue struct {
	Task    TaskID
	Attempt uint32
	Cause   Reason // Revoked, or CoordinatorRecovered after a recovery
	Detail  string
}

// Cancel ends a task that no worker holds, and asks the worker that holds it to stop (T7).
type Cancel struct {
	Tenant string
	Task   TaskID
	Reason string
	By     string
}

// Retry opens a new round (T9).
type Retry struct {
	Tenant   string
	Task     TaskID
	Deadline Wall // 0: keep
	By       string
}

// Delete removes a task (T9).
type Delete struct {
	Tenant string
	Task   TaskID
	Force  bool
}

// Adopt makes a kept discarded result the outcome of a task that is not leased and whose round has
// no outcome (V15).
type Adopt struct {
	Tenant  string
	Task    TaskID
	Attempt uint32 // 0: the newest that is kept
	By      string
}

// Expire applies the due timers of a task and does nothing else (T8). Every other command on a task
// also applies them before it is decided.
type Expire struct{ Task TaskID }

// Stall extends a lease because the coordinator itself stood still for By and could not receive
// heartbeats in that time (A8).
type Stall struct {
	Task TaskID
	By   time.Duration
}

func (Submit) command()       {}
func (Grant) command()        {}
func (Unpark) command()       {}
func (LoseResource) command() {}
func (Judge) command()        {}
func (Requeue) command()      {}
func (Cancel) command()       {}
func (Retry) command()        {}
func (Delete) command()       {}
func (Adopt) command()        {}
func (Expire) command()       {}
func (Stall) command()        {}
