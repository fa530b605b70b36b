package lease

import (
	"fmt"
	"slices"
	"time"
)

// Rules decide every command. They hold only what does not change while a coordinator runs: a Step reads all state from a View, and returns
// the changed state.
type Rules struct {
	Authority *Authority
	Limits    Limits
	// Entropy returns 64 random bits, for lease ids and jitter. It must be unpredictable in production.
	Entropy func() uint64
	// AckWithin is how long a worker has to acknowledge a dispatch on a stream (W5).
	AckWithin time.Duration
}

// Constants of the rules.
const (
	DefaultAckWithin    = 5 * time.Second // W5
	DefaultResourceWait = time.Minute     // W12: how long a task waits for the worker that holds its resources
	MaxUnacked          = 6               // W5: unacknowledged grants in a row after which a task is FAILED
	FreeReleases        = 2               // T5: releases in a row that have no backoff
	LedgerAfterDelete   = time.Hour       // A10: how long COMMITTED is replayed for a deleted task
	Jitter              = 0.2             // T3: fraction by which a backoff is randomly longer or shorter
)

// View is the state that the rules may read: tasks, and what cannot be computed from one task.
type View interface {
	// Task returns the newest version of a task, or nil. The rules do not write to it.
	Task(TaskID) *Task
	// Committed returns the committed report of an attempt from the ledger, or nil. The ledger holds the committed reports that are not the
	// Outcome of their task: those of earlier attempts or rounds, and those of tasks that are gone.
	Committed(TaskID, uint32) *Committed
	// Key returns the task that was submitted with an idempotency key, and the digest of its spec; false if there is none.
	Key(space uint32, key string) (TaskID, Digest, bool)
	// Queue returns the state of a queue; the zero Queue if there is no such queue.
	Queue(space uint32, name string) Queue
	// Holders counts the live leases of the space whose tasks have the concurrency key.
	Holders(space uint32, key string) Holders
	// Discarded returns the discarded result that is kept for an attempt of a task, or nil (V15).
	Discarded(TaskID, uint32) *Result
	// NextSeq returns the next sequence number of a space. An unused number leaves a gap, which does no harm.
	NextSeq(space uint32) uint64
}

// Step is the result of a command. All of it must be durable before anybody may learn any part of it (A6, A10).
type Step struct {
	// Answers are the verdicts on the reports of a Judge, in their order.
	Answers []Answer
	// Err is set if a command other than Judge is refused: *FieldError, *StateError, *ExistsError or ErrNotFound.
	Err error
	// Blocked says why a Grant of a READY task made no lease.
	Blocked Block
	// Submitted has one entry for each spec of a Submit. ErrSpec is the index of the spec to which Err refers.
	Submitted []Submitted
	ErrSpec   int
	// Changes are the new versions of tasks, at most one per task.
	Changes []Change
}

// Change is the new version of a task, with what is stored beside it. Old is nil for a new task. New is nil for a removed task.
type Change struct {
	Old, New *Task
	// Row is set if the task itself changed, and not only its live lease.
	Row bool
	// Ledger holds committed reports to add to the ledger, because they are not the Outcome of the task.
	Ledger []Committed
	// Result, Failure and Checkpoint are stored beside the task unless they are nil.
	Result     *Result
	Failure    *Failure
	Checkpoint []byte
	// Kept are discarded results to store, each under its attempt. After that, remove the results of the attempts in Dropped, except those
	// that New still keeps: a worker can report a dropped result again, and the result is then kept again (V15).
	Kept    []Kept
	Dropped []uint32
	// Key is the digest of the spec of a new task with an idempotency key. Store it under that key.
	Key Digest
	// ForgetAt is when the ledger of a removed task may be removed; 0: the task has no ledger.
	ForgetAt Instant
	// Lost is a lease that ended, but not by a report of its holder: the holder must be told. LostCause is the cause of the end.
	Lost      *Lease
	LostCause Reason
	// CancelAsked is true if the holder of the live lease must be told to stop.
	CancelAsked bool
}

// Subject returns the id and spec of the task that changed. No change alters them.
func (c *Change) Subject() (TaskID, *Spec) {
	if c.New == nil {
		return c.Old.ID, c.Old.Spec
	}
	return c.New.ID, c.New.Spec
}

// Kept is the discarded result of an attempt (V15).
type Kept struct {
	Attempt uint32
	Result  *Result
}

// Submitted is the task of one spec of a Submit. Created is false if an earlier submit with the same idempotency key made the task.
type Submitted struct {
	Task    *Task
	Created bool
}

// StateError refuses a command in the task's state (T9).
type StateError struct {
	Task  TaskID
	State State
	Why   string // why the command is refused, in words
}

func (e *StateError) Error() string {
	return fmt.Sprintf("task %s is %s; %s", e.Task, e.State, e.Why)
}

// ExistsError refuses a spec whose idempotency key was used with another spec (T1).
type ExistsError struct {
	Field string
	Key   string
	Task  TaskID // the task of the other spec; zero if the other spec is in the same batch, which then makes no task
}

func (e *ExistsError) Error() string {
	if e.Task == (TaskID{}) {
		return fmt.Sprintf("%s: %q is used by two different specs of this batch", e.Field, e.Key)
	}
	return fmt.Sprintf("%s: %q was already used by task %s with a different spec", e.Field, e.Key, e.Task)
}

type notFoundError struct{}

func (notFoundError) Error() string { return "no such task" }

// ErrNotFound refuses a command on a task that the tenant does not have. It is the same if another tenant has the task.
var ErrNotFound error = notFoundError{}

// Command is one of Submit, Grant, Unpark, LoseResource, Judge, Requeue, Cancel, Retry, Delete, Adopt, Expire and Stall.
type Command interface{ command() }

// Submit makes tasks in one space: all of them or none.
type Submit struct {
	Space     uint32
	Tenant    string
	Workspace string
	Specs     []*Spec
	// Digests are the digests of the specs as they were sent. Only the specs with an idempotency key need one.
	Digests []Digest
}

// Grant leases a READY task to a worker. If the task is not READY any more, or is blocked, Changes has no new lease. A task that is blocked by
// its concurrency key becomes parked.
type Grant struct {
	Task    TaskID
	Worker  string
	Session string // empty: unary, which needs no acknowledgement (W5)
	Request string
	// Behind says that a task before this one in its line is parked under the same concurrency key. Then this task is parked as well, even
	// if there is room for it: otherwise a task with a small concurrency_limit could be overtaken for ever (T2, T11).
	Behind bool
}

// Unpark puts a parked task back in its line. The caller does so when the task's concurrency key may have room again.
type Unpark struct{ Task TaskID }

// LoseResource fails a READY task if the worker to which it is pinned has been gone for too long (W12). It does not change a task that is not
// READY or is pinned to another worker.
type LoseResource struct {
	Task   TaskID
	Worker string
	After  time.Duration // how long the worker has been gone; recorded in the history
}

// Judge asks for verdicts on what workers of the tenant send about one task: reports, Starts, Heartbeats and acknowledgements with the same
// task id. The rules judge them in order, each on the state after the previous one, as if each came alone. Together they make one Change.
type Judge struct {
	Tenant  string
	Reports []*Report
}

// Requeue ends a lease for a reason that is not the fault of the task, such as the holder's goodbye, and puts the task back in its old place.
// It counts neither as a failure nor as a loss.
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

// Adopt makes a kept discarded result the outcome of a task that is not leased and whose round has no outcome (V15).
type Adopt struct {
	Tenant  string
	Task    TaskID
	Attempt uint32 // 0: the newest that is kept
	By      string
}

// Expire applies the due timers of a task and does nothing else (T8). Every other command on a task also applies them before it is decided.
type Expire struct{ Task TaskID }

// Stall extends a lease because the coordinator itself stood still for By and could not receive heartbeats in that time (A8).
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

// Step decides one command at now.
func (r *Rules) Step(now Now, view View, c Command) Step { return r.StepOn(Memory{}, now, view, c) }

// Memory holds the slices for the Changes and Answers of a Step. The caller may pass it to the next step when it no longer needs those of the
// previous one.
type Memory struct {
	Changes []Change
	Answers []Answer
}

// StepOn is Step, but puts the Changes and Answers into memory instead of allocating.
func (r *Rules) StepOn(memory Memory, now Now, view View, c Command) Step {
	s := &step{rules: r, now: now, view: view, out: Step{Changes: memory.Changes[:0], Answers: memory.Answers[:0]}}
	switch c := c.(type) {
	case Submit:
		s.submit(c)
	case Grant:
		s.grant(c)
	case Unpark:
		s.unpark(c)
	case LoseResource:
		s.loseResource(c)
	case Judge:
		s.judgeAll(c)
	case Requeue:
		s.requeue(c)
	case Cancel:
		s.out.Err = s.cancel(c)
	case Retry:
		s.out.Err = s.retry(c)
	case Delete:
		s.out.Err = s.delete(c)
	case Adopt:
		s.out.Err = s.adopt(c)
	case Expire:
		s.open(c.Task)
	case Stall:
		s.stall(c)
	default:
		panic("lease: unknown command") // to print the command would make every command escape to the heap
	}
	s.close()
	return s.out
}

// step is the state of one decision. Every command but Submit concerns one task, which the comments call the open task.
type step struct {
	rules *Rules
	now   Now
	view  View
	out   Step

	opened bool  // the open task was looked up
	old    *Task // the open task before the step; nil: there was none
	task   *Task // its newest version; nil: there is none, or it was removed
	fresh  bool  // task is a copy that this step made, so the step may write to it
	change Change
}

// open loads a task and applies its due timers (A3). It returns nil if there is no such task, or if a timer removed it.
func (s *step) open(id TaskID) *Task { return s.openFound(s.newest(id)) }

// newest returns the newest version of the open task, or the version in the view if the step has not opened a task yet.
func (s *step) newest(id TaskID) *Task {
	if s.opened {
		return s.task
	}
	return s.view.Task(id)
}

// openFound is open for a task that the caller has looked up already.
func (s *step) openFound(newest *Task) *Task {
	if !s.opened {
		s.opened, s.old, s.task = true, newest, newest
	}
	if s.task != nil {
		s.applyDueTimers()
	}
	return s.task
}

// openForTenant opens a task of the tenant. If the tenant does not have the task, the error is ErrNotFound, even if another tenant has it.
func (s *step) openForTenant(tenant string, id TaskID) (*Task, error) {
	if t := s.open(id); t == nil || t.Tenant != tenant {
		return nil, ErrNotFound
	}
	return s.task, nil
}

// close adds the open task to the result if it changed.
func (s *step) close() {
	if s.task == s.old {
		return
	}
	s.change.Old, s.change.New = s.old, s.task
	s.out.Changes = append(s.out.Changes, s.change)
}

// write returns a version of the task to which the step may write, and marks the row of the task as changed.
func (s *step) write() *Task {
	s.change.Row = true
	return s.newVersion()
}

// writeLease returns a version of the live lease to which the step may write. It does not mark the row of the task as changed.
func (s *step) writeLease() *Lease {
	t := s.newVersion()
	if s.old == nil || t.Lease == s.old.Lease {
		l := *t.Lease
		l.Events = slices.Clip(l.Events)
		t.Lease = &l
	}
	return t.Lease
}

// newVersion copies the task once per step, and returns the copy.
func (s *step) newVersion() *Task {
	if !s.fresh {
		t := *s.task
		t.History = slices.Clip(t.History)
		s.task, s.fresh = &t, true
	}
	return s.task
}

// note records an event of the open task. Call it after the change that it describes: the event carries the state after the change.
func (s *step) note(typ EventType, at Wall, actor string, reason Reason, detail string) {
	s.record(Event{Type: typ, At: at, Attempt: s.task.Attempt(), Actor: actor, Reason: reason, Detail: detail})
}

// record gives an event its sequence number and adds it: to the live lease if there is one, else to the task. The history is trimmed during a lease too,
// because refusals can add events without end: a result that is kept may drop another one, which can then be reported and kept again.
func (s *step) record(e Event) {
	e.Seq, e.Detail, e.State = s.view.NextSeq(s.task.ID.Space), clip(e.Detail, maxDetail), s.task.State()
	if s.task.Lease != nil {
		l := s.writeLease()
		l.Events = append(l.Events, e)
		if len(s.task.History)+len(l.Events) > MaxHistory {
			s.write().trim()
		}
		return
	}
	t := s.write()
	t.History = append(t.History, e)
	t.trim()
}

// trim drops the oldest events if there are more than MaxHistory, including those of the live lease. The step must have made that lease writable.
func (t *Task) trim() {
	over := len(t.History) - MaxHistory
	if t.Lease != nil {
		over += len(t.Lease.Events)
	}
	if over <= 0 {
		return
	}
	ofTask := min(over, len(t.History))
	t.History = t.History[ofTask:]
	if ofLease := over - ofTask; ofLease > 0 {
		t.Lease.Events = t.Lease.Events[ofLease:]
	}
	t.Dropped += uint32(over)
}
