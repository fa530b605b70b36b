package lease

import (
	"fmt"
	"time"
)

// Rules decide every command. They hold only what does not change while a coordinator runs: all state comes in through a View and leaves in
// a Step.
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
	MaxUnacked          = 6               // W5: grants in a row before a task is given up
	FreeReleases        = 2               // T5: releases in a row that cost no wait
	LedgerAfterDelete   = time.Hour       // A10: how long COMMITTED is replayed for a task that is gone
	Jitter              = 0.2             // T3: of a backoff, to either side
)

// View is what the rules may look at: tasks, and the indexes that cannot be computed from one task.
type View interface {
	// Task returns the newest version, or nil. It must not be changed.
	Task(TaskID) *Task
	// Committed returns the committed report of an attempt from the ledger, or nil. The ledger holds those that are not the Outcome of
	// their task: of an earlier attempt or round, or of a task that is gone.
	Committed(TaskID, uint32) *Committed
	// Key returns the task that an idempotency key made, and the digest of its spec.
	Key(space uint32, key string) (TaskID, Digest, bool)
	// Queue returns the state of a queue; the zero Queue if there is no such queue.
	Queue(space uint32, name string) Queue
	// Holders counts the live leases of the space whose tasks have the concurrency key.
	Holders(space uint32, key string) Holders
	// Discarded returns the discarded result that is kept for an attempt of a task, or nil (V15).
	Discarded(TaskID, uint32) *Result
	// NextSeq draws the next sequence number of a space. A number that is drawn and not used is lost, which harms nothing.
	NextSeq(space uint32) uint64
}

// Step is what a command did. Everything in it must be durable before anybody is told any of it (A6, A10).
type Step struct {
	// Answers are the verdicts on the reports of a Judge, in their order.
	Answers []Answer
	// Err refuses a command that is not a report: *FieldError, *StateError, *ExistsError or ErrNotFound.
	Err error
	// Blocked says why a Grant of a READY task gave no lease.
	Blocked Block
	// Submitted has one entry for each spec of a Submit. ErrSpec is the index of the spec to which Err refers.
	Submitted []Submitted
	ErrSpec   int
	// Changes are the new versions of tasks, at most one per task.
	Changes []Change
}

// Change is a task's new version with what is stored beside it. Old is nil for a new task, New for one that is gone.
type Change struct {
	Old, New *Task
	// Row is set if the task itself changed, and not only its live lease.
	Row bool
	// Ledger holds committed reports to add to the ledger, because the task itself does not carry them.
	Ledger []Committed
	// Result, Failure and Checkpoint are stored beside the task unless they are nil.
	Result     *Result
	Failure    *Failure
	Checkpoint []byte
	// Kept are discarded results to store, each under its attempt. After that, the results of the attempts in Dropped are removed, except
	// those that New still keeps: a result that was dropped can be reported, and kept, again (V15).
	Kept    []Kept
	Dropped []uint32
	// Key is the digest of the spec, to store under the idempotency key of a new task that has one.
	Key Digest
	// ForgetAt is when the ledger of a removed task may be removed, too; 0: the task has no ledger.
	ForgetAt Instant
	// Lost is a lease that ended in another way than by a report of its holder, who has to be told. LostTo is the cause.
	Lost   *Lease
	LostTo Reason
	// CancelAsked is set when the holder of the live lease is to be told to stop.
	CancelAsked bool
}

// Kept is the discarded result of an attempt (V15).
type Kept struct {
	Attempt uint32
	Result  *Result
}

// Submitted is the task that one spec of a Submit made, or had made before.
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
	Task  TaskID // the task that the other spec made; zero if the other spec is in the same batch, of which no task is made
}

func (e *ExistsError) Error() string {
	if e.Task == (TaskID{}) {
		return fmt.Sprintf("%s: %q is used by two different specs of this batch", e.Field, e.Key)
	}
	return fmt.Sprintf("%s: %q was already used by task %s with a different spec", e.Field, e.Key, e.Task)
}

type notFoundError struct{}

func (notFoundError) Error() string { return "no such task" }

// ErrNotFound refuses a command on a task that the tenant does not have, whether or not another tenant does.
var ErrNotFound error = notFoundError{}

// Command is one of Submit, Grant, Unpark, LoseResource, Judge, Requeue, Cancel, Retry, Delete, Adopt, Expire and Stall.
type Command interface{ command() }

// Submit makes tasks of one space, all or none.
type Submit struct {
	Space     uint32
	Tenant    string
	Workspace string
	Specs     []*Spec
	// Digests are of the specs as they were sent; needed where a spec has an idempotency key.
	Digests []Digest
}

// Grant leases a READY task to a worker. If the task is not READY any more, or is blocked, Changes shows no new lease. A task that its
// concurrency key blocks is parked.
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

// LoseResource gives up a READY task whose pinned worker has been gone for too long (W12). A task that does not wait, or is pinned to another
// worker, stays as it is.
type LoseResource struct {
	Task   TaskID
	Worker string
	After  time.Duration // for how long the worker was waited for; it goes into the history
}

// Judge asks for verdicts on what workers of the tenant say about one task: reports, Starts, Heartbeats and acknowledgements that all name the same task id.
// They are judged in order, each on the state that the one before it left, as if it came alone; but together they make one Change.
type Judge struct {
	Tenant  string
	Reports []*Report
}

// Requeue ends a lease for a reason of the coordinator's own, such as the holder's goodbye, and puts the task back in its old place. It
// touches no budget.
type Requeue struct {
	Task    TaskID
	Attempt uint32
	Cause   Reason // Revoked, or CoordinatorRecovered after a recovery
	Detail  string
}

// Cancel asks a task to end (T7).
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

// Expire applies the due timers of a task and does nothing else (T8). Every other command on a task applies them first, too.
type Expire struct{ Task TaskID }

// Stall says that the coordinator itself stood still for By, and could not hear the holder of the lease in that time (A8).
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

// Memory is room for the Changes and Answers of a Step. The caller may pass it to the next step once it is done with those of this one.
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
		panic("lease: unknown command") // without its name: that would make every command escape to the heap
	}
	s.close()
	return s.out
}

// step is one decision under way. Every command but Submit concerns one task, which is called the open task.
type step struct {
	rules *Rules
	now   Now
	view  View
	out   Step

	opened bool  // the open task was looked up
	old    *Task // the open task as it was found; nil: there was none
	task   *Task // its newest version; nil: there is none, or it was removed
	fresh  bool  // task is this step's own copy and may be written to
	change Change
}

// open loads a task and applies its due timers (A3). It returns nil when there is no such task, or none any more.
func (s *step) open(id TaskID) *Task { return s.openFound(s.newest(id)) }

// newest returns the task as this step has left it so far, or as the view has it if the step has not opened a task yet.
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
		s.settle()
	}
	return s.task
}

// of is open on behalf of a tenant. For a tenant the tasks of others do not exist: the error is ErrNotFound.
func (s *step) of(tenant string, id TaskID) (*Task, error) {
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

// write returns the task for writing.
func (s *step) write() *Task {
	s.change.Row = true
	return s.version()
}

// writeLease returns the live lease for writing, and leaves the task's own row as it is.
func (s *step) writeLease() *Lease {
	t := s.version()
	if s.old == nil || t.Lease == s.old.Lease {
		l := *t.Lease
		l.Events = l.Events[:len(l.Events):len(l.Events)]
		t.Lease = &l
	}
	return t.Lease
}

func (s *step) version() *Task {
	if !s.fresh {
		t := *s.task
		t.History = t.History[:len(t.History):len(t.History)]
		s.task, s.fresh = &t, true
	}
	return s.task
}

// note records an event of the open task. Call it after the change that it describes: the event carries the state after the change.
func (s *step) note(typ EventType, at Wall, actor string, reason Reason, detail string) {
	s.record(Event{Type: typ, At: at, Attempt: s.task.Attempt(), Actor: actor, Reason: reason, Detail: detail})
}

// record gives an event its number and keeps it, on the lease while it is live.
func (s *step) record(e Event) {
	e.Seq, e.Detail, e.State = s.view.NextSeq(s.task.ID.Space), clip(e.Detail, maxDetail), s.task.State()
	if s.task.Lease != nil {
		l := s.writeLease()
		l.Events = append(l.Events, e)
		return
	}
	t := s.write()
	t.History = append(t.History, e)
	t.trim()
}

// trim keeps the history within its bound.
func (t *Task) trim() {
	if over := len(t.History) - MaxHistory; over > 0 {
		t.History = t.History[over:]
		t.Dropped += uint32(over)
	}
}
