package lease

import (
	"fmt"
	"time"
)

// Rules decide. They hold what does not change while a coordinator runs; all state comes in through a View and leaves in a
// Step.
type Rules struct {
	Authority *Authority
	Limits    Limits
	// Entropy returns 64 random bits, for lease ids and jitter. It must be unpredictable in production.
	Entropy func() uint64
	// AckWithin is the time in which a dispatch on a stream must be acknowledged (W5).
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
	// Committed returns an attempt's committed report that is not its task's Outcome: of an earlier attempt or round, or of a task
	// that is gone.
	Committed(TaskID, uint32) *Committed
	// Key returns the task that an idempotency key made, and the digest of its spec.
	Key(space uint32, key string) (TaskID, Digest, bool)
	// Queue returns what there is to know of a queue; the zero Queue where there is none.
	Queue(space uint32, name string) Queue
	// Holders counts the live leases of the space whose tasks have the concurrency key.
	Holders(space uint32, key string) Holders
	// Discarded returns a result that is kept of a task's attempt, or nil (V15).
	Discarded(TaskID, uint32) *Result
	// NextSeq draws the next sequence of a space. Numbers drawn in vain are lost, which harms nothing.
	NextSeq(space uint32) uint64
}

// Step is what a command did. Everything in it must be durable before any of it is told (A6, A10).
type Step struct {
	// Answers are the verdicts on the reports of a Say, in their order.
	Answers []Answer
	// Err refuses a command that is not a report: *FieldError, *StateError, *ExistsError or ErrNotFound.
	Err error
	// Blocked is why a Grant of a READY task gave no lease.
	Blocked Block
	// Submitted has one entry per spec of a Submit; ErrSpec is the index of the spec that Err is about.
	Submitted []Submitted
	ErrSpec   int
	// Changes are the new versions of tasks, at most one per task.
	Changes []Change
}

// Change is a task's new version with what is stored beside it. Old is nil for a new task, New for one that is gone.
type Change struct {
	Old, New *Task
	// Row is set when more than the lease changed.
	Row bool
	// Ledger are committed reports that the task itself no longer carries.
	Ledger []Committed
	// Stored beside the task when not nil.
	Result     *Result
	Failure    *Failure
	Checkpoint []byte
	// Kept are discarded results to store by their attempts; then those of the attempts in Dropped go that New does not keep (V15): one may be
	// said again.
	Kept    []Kept
	Dropped []uint32
	// Key is the idempotency digest to keep for a new task that has a key.
	Key Digest
	// ForgetAt is when the ledger of a task that is gone may go too; 0: it has none.
	ForgetAt Instant
	// Lost is the lease that ended otherwise than by its holder's report, for the holder to be told; LostTo says why.
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

// Submitted is the fate of one spec.
type Submitted struct {
	Task    *Task
	Created bool
}

// StateError refuses a command in the task's state (T9).
type StateError struct {
	Task  TaskID
	State State
	Want  string // the states in which it would do
}

func (e *StateError) Error() string {
	return fmt.Sprintf("task %s is %s; this needs %s", e.Task, e.State, e.Want)
}

// ExistsError refuses a spec whose idempotency key stands for another spec (T1).
type ExistsError struct {
	Field string
	Key   string
	Task  TaskID // made of the other spec; zero if that lies in the same batch, of which nothing is made
}

func (e *ExistsError) Error() string {
	if e.Task == (TaskID{}) {
		return fmt.Sprintf("%s: %q stands for two specs of this batch", e.Field, e.Key)
	}
	return fmt.Sprintf("%s: %q made task %s from another spec", e.Field, e.Key, e.Task)
}

type notFoundError struct{}

func (notFoundError) Error() string { return "no such task" }

// ErrNotFound refuses a command on a task that the tenant does not have, whether or not another tenant does.
var ErrNotFound error = notFoundError{}

// Command is one of Submit, Grant, Unpark, LoseResource, Say, Requeue, Cancel, Retry, Delete, Adopt, Expire and Stall.
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

// Grant leases a waiting task. A task that does not wait any more, or is blocked, is not leased, and Changes shows no new lease; one that is
// blocked by its concurrency key is parked.
type Grant struct {
	Task    TaskID
	Worker  string
	Session string // empty: unary, which needs no acknowledgement (W5)
	Request string
	// Behind is set when a task that is before this one in its line is parked under the same concurrency key. Then it is parked, too, or a
	// task that needs the key for itself would be overtaken for ever (T2, T11).
	Behind bool
}

// Unpark puts a parked task back in its line. The caller does so when the task's concurrency key may have room again.
type Unpark struct{ Task TaskID }

// LoseResource gives up a READY task whose pinned worker has been gone for too long (W12). A task that does not wait, or is pinned to another
// worker, stays as it is.
type LoseResource struct {
	Task   TaskID
	Worker string
	After  time.Duration // how long it was waited for
}

// Say is what workers of the tenant say of one task: a report, Start, Heartbeat or acknowledgement, or several of them with the same task id. Each is
// judged on what the one before it left, as if it came alone; but the task changes once, for all of them.
type Say struct {
	Tenant  string
	Reports []*Report
}

// Requeue ends a lease for the coordinator's own reasons and puts the task back in its old place, no budget touched: the holder
// said goodbye, or was gone before the hand-over.
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

// Adopt makes a kept discarded result the outcome of a task that is not leased and whose round has none (V15).
type Adopt struct {
	Tenant  string
	Task    TaskID
	Attempt uint32 // 0: the newest that is kept
	By      string
}

// Expire applies the due timers of a task. Every other command does so too for its own task, so this only makes it happen without
// one (T8).
type Expire struct{ Task TaskID }

// Stall tells that the coordinator itself stood still for By, so that the holder of the lease could not have been heard (A8).
type Stall struct {
	Task TaskID
	By   time.Duration
}

func (Submit) command()       {}
func (Grant) command()        {}
func (Unpark) command()       {}
func (LoseResource) command() {}
func (Say) command()          {}
func (Requeue) command()      {}
func (Cancel) command()       {}
func (Retry) command()        {}
func (Delete) command()       {}
func (Adopt) command()        {}
func (Expire) command()       {}
func (Stall) command()        {}

// Step decides one command at now.
func (r *Rules) Step(now Now, view View, c Command) Step { return r.StepOn(Memory{}, now, view, c) }

// Memory is where a Step has its Changes and Answers. Its caller may use it again once it has taken them in.
type Memory struct {
	Changes []Change
	Answers []Answer
}

// StepOn is Step with memory.
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
	case Say:
		s.say(c)
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
		panic("lease: unknown command") // to name it would have every command made on the heap
	}
	s.close()
	return s.out
}

// step is one decision under way. All commands but Submit concern one task, the one that is open.
type step struct {
	rules *Rules
	now   Now
	view  View
	out   Step

	opened bool  // a task was looked for
	old    *Task // as it was found
	task   *Task // newest version; nil when there is none (any more)
	fresh  bool  // task is this step's own and may be written
	change Change
}

// open loads a task and applies its due timers (A3). It returns nil when there is no such task, or none any more.
func (s *step) open(id TaskID) *Task { return s.openFound(s.newest(id)) }

// newest is the version of the task that this step is about: as it was found, or as the step has left it so far.
func (s *step) newest(id TaskID) *Task {
	if s.opened {
		return s.task
	}
	return s.view.Task(id)
}

// openFound is open for a task that was looked at before.
func (s *step) openFound(newest *Task) *Task {
	if !s.opened {
		s.opened, s.old, s.task = true, newest, newest
	}
	if s.task != nil {
		s.settle()
	}
	return s.task
}

// of is open for a tenant: another tenant's task does not exist.
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

// note records an event of the open task. It is called after the change that it tells of.
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
