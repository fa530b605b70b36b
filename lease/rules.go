package lease

import "time"

// Rules decide every command. They hold only what does not change while a coordinator runs: a Step
// reads all state from a View, and returns the changed state.
type Rules struct {
	Authority *Authority
	Limits    Limits
	// Entropy returns 64 random bits, for lease ids and jitter. It must be unpredictable in
	// production.
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
)

// View is the state that the rules may read: tasks, and what cannot be computed from one task.
type View interface {
	// Task returns the newest version of a task, or nil. The rules do not write to it.
	Task(TaskID) *Task
	// Payload returns the payload of a task whose newest version does not have it in memory.
	Payload(TaskID) []byte
	// Committed returns the committed report of an attempt from the ledger, or nil. The ledger
	// holds the committed reports that are not the Outcome of their task: those of earlier attempts
	// or rounds, and those of tasks that are gone.
	Committed(TaskID, uint32) *Committed
	// Key returns the task that was submitted with an idempotency key, and the digest of its spec;
	// false if there is none.
	Key(space uint32, key string) (TaskID, Digest, bool)
	// Queue returns the state of a queue; the zero Queue if there is no such queue.
	Queue(space uint32, name string) Queue
	// Holders counts the live leases of the space whose tasks have the concurrency key.
	Holders(space uint32, key string) Holders
	// Discarded returns the discarded result that is kept for an attempt of a task, or nil (V15).
	Discarded(TaskID, uint32) *Result
	// NextSeq returns the next sequence number of a space. An unused number leaves a gap, which
	// does no harm.
	NextSeq(space uint32) uint64
}

// Step is the result of a command. All of it must be durable before anybody may learn any part of
// it (A6, A10).
type Step struct {
	// Answers are the verdicts on the reports of a Judge, in their order.
	Answers []Answer
	// Err is set if a command other than Judge is refused: *FieldError, *StateError, *ExistsError
	// or ErrNotFound.
	Err error
	// Blocked says why a Grant of a READY task made no lease.
	Blocked Block
	// Submitted has one entry for each spec of a Submit. ErrSpec is the index of the spec to which
	// Err refers.
	Submitted []Submitted
	ErrSpec   int
	// Changes are the new versions of tasks, at most one per task.
	Changes []Change
}

// Change is the new version of a task, with what is stored beside it. Old is nil for a new task.
// New is nil for a removed task.
type Change struct {
	Old, New *Task
	// Row is set if the task itself changed, and not only its live lease.
	Row bool
	// Ledger holds committed reports to add to the ledger, because they are not the Outcome of the
	// task.
	Ledger []Committed
	// Result, Failure and Checkpoint are stored beside the task unless they are nil.
	Result     *Result
	Failure    *Failure
	Checkpoint []byte
	// Kept are discarded results to store, each under its attempt. After that, remove the results
	// of the attempts in Dropped, except those that New still keeps: a worker can report a dropped
	// result again, and the result is then kept again (V15).
	Kept    []Kept
	Dropped []uint32
	// Key is the digest of the spec of a new task with an idempotency key. Store it under that key.
	Key Digest
	// ForgetAt is when the ledger of a removed task may be removed; 0: the task has no ledger.
	ForgetAt Instant
	// Lost is a lease that ended, but not by a report of its holder: the holder must be told.
	// LostCause is the cause of the end.
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

// Submitted is the task of one spec of a Submit. Created is false if an earlier submit with the
// same idempotency key made the task.
type Submitted struct {
	Task    *Task
	Created bool
}

// Step decides one command at now.
func (r *Rules) Step(now Now, view View, c Command) Step { return r.StepOn(Memory{}, now, view, c) }

// Memory holds the slices for the Changes and Answers of a Step. The caller may pass it to the next
// step when it no longer needs those of the previous one.
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
