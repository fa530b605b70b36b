package lease

import "time"

// Task is one version of a task. Versions are values: the rules never write to a version that they
// were given, but return a new one. So any goroutine may read a version, and two versions can be
// compared.
type Task struct {
	ID        TaskID
	Tenant    string
	Workspace string
	Spec      *Spec

	// Rest is the state of the task without regard to a lease: Scheduled, Ready or a final state.
	// While Lease is set, Rest is Ready. State returns the state that users see.
	Rest   State
	Reason Reason // why the task ended, if it ended without an outcome
	Parked bool   // READY, but not in its line until its concurrency key has room (T11)

	Round    uint32 // 1, and one more with each retry by an operator
	Attempts uint32 // grants that have ended
	Failures uint32 // of this round (T5)
	Losses   uint32 // of this round (T5)
	Releases uint32 // in a row
	Unacked  uint32 // unacknowledged grants in a row (W5); several in a row to one worker process count once
	// UnackedBy is the worker process of the last unacknowledged grant; see InstanceOf.
	UnackedBy string

	CreatedAt  Wall
	FinishedAt Wall
	Deadline   Wall   // of this round; 0: none
	Place      uint64 // place in its line, lower first; a task keeps its place from attempt to attempt (T2)
	// ReadyAt is, while the task is READY, the present less how long it has been so: a lease of
	// which its worker gave no sign interrupts this time and does not end it (T6), so the task may
	// have been LEASED since. While LEASED, it is what it was before the grant.
	ReadyAt Instant
	RunAt   Wall    // while SCHEDULED: when the task becomes READY, on the wall clock; else 0
	RetryAt Instant // while SCHEDULED: when the task becomes READY, on the serving clock; else 0

	Cancel *CancelRequest
	// Lease is the live lease, or nil (A1).
	Lease *Lease
	// Last describes the lease that ended last. Its Attempt is 0 until a lease has ended.
	Last Ended
	// Outcome is the report that ended the round (A5), or nil.
	Outcome *Committed

	// History holds the newest events, except those of the live lease, which are in Lease.Events.
	// Events returns both.
	History []Event
	Dropped uint32 // number of older events that the task does not keep any more

	// CheckpointBits is 0 without a stored checkpoint. Otherwise none that the task has saved has
	// more than CheckpointBound bytes.
	CheckpointBits uint8
	ErrorCategory  Category // of the error of the last failed attempt, which is stored; NoCategory: there is none
	// Discarded describes the results that came too late and are kept for an operator, oldest first
	// (V15).
	Discarded []Discarded
}

// Lease is the right to report one attempt. It is stored apart from its task, so that a renewal
// rewrites little.
type Lease struct {
	Epoch   uint32 // epoch of the store at the grant; in a later epoch the lease is not live
	Attempt uint32
	Nonce   uint64 // random part of the lease id
	ID      string // the lease id; it is not stored, so it is empty for a lease that was granted before a restart
	Worker  string
	Session string // session that last used the lease; empty for a unary grant that no session has used
	// Request is the id of the unary Lease request that got the lease. A repeat of the request gets
	// the same lease again.
	Request string

	GrantedAt   Wall
	AckedAt     Wall // first ack, Start or heartbeat, or an outcome with Started; 0 before that (W5)
	StartedAt   Wall // first Start, or an outcome with Started; 0 before that
	HeartbeatAt Wall // last heartbeat; 0 before the first

	ExpiresAt Instant // without regard to attempt_timeout and the deadline; see Task.ExpiresAt
	AckBy     Instant // by when the worker must acknowledge the grant; 0: it need not
	AttemptBy Instant // end of attempt_timeout; 0: none
	CancelBy  Instant // end of cancel_grace; 0: no cancel was asked
	// Stalled is by how much stalls of the coordinator have extended the lease since its last
	// renewal (A8).
	Stalled Instant

	Events []Event
}

// AwaitsAck reports whether the worker is still to acknowledge the grant (W5).
func (l *Lease) AwaitsAck() bool { return l.AckBy != 0 && l.AckedAt == 0 }

// EndedInSilence reports whether the lease has ended, for this cause, because its holder was
// silent: it expired, or no sign of the holder had come when a timer ended it (W5).
func (l *Lease) EndedInSilence(cause Reason) bool {
	switch cause {
	case LeaseExpired, DispatchUnacked:
		return true
	case DeadlineExceeded, CancelTimeout:
		return l.AwaitsAck()
	}
	return false
}

// Ended describes a lease that has ended. Its cause never changes (A3). The other fields say what
// its holder had sent until then (S6).
type Ended struct {
	Attempt uint32
	Cause   Reason
	Nonce   uint64
	At      Wall

	Worker      string
	GrantedAt   Wall
	AckedAt     Wall // 0: never
	StartedAt   Wall // 0: never
	HeartbeatAt Wall // the last one; 0: none
}

// CancelRequest is a cancel that somebody asked for in this round.
type CancelRequest struct {
	Reason string
	By     string
	At     Wall
}

// Committed is a report that got COMMITTED. It is kept so that a repeat of the report gets the same
// answer (V4, V14).
type Committed struct {
	Attempt uint32
	Nonce   uint64 // of the lease: after a restore, another lease can have had the same attempt number
	Kind    Kind
	Digest  Digest
	State   State // of the task after the report
	RetryAt Wall  // retry_at of the answer; 0: none
	At      Wall
}

// Discarded describes a result that was reported after the end of its lease, and is kept. The
// result itself is stored beside the task.
type Discarded struct {
	Attempt uint32
	Nonce   uint64
	Worker  string // the worker that reported the result
	At      Wall
	Reason  Reason // of the verdict
	Size    int    // in bytes
}

// Event is one durable event in the history of a task (T10). Its small fields stand together, as in
// Task, Ended and Answer, so that padding wastes little memory: allocating versions is a large part
// of the cost of a command.
type Event struct {
	Seq     uint64
	At      Wall
	Actor   string
	Detail  string
	Attempt uint32
	Type    EventType
	Reason  Reason
	State   State // of the task after the event
	Kind    Kind  // of an EventRefused: the kind of the refused report; else 0
}

// EventType says what happened.
type EventType uint8

// The event types have the same numbers as on the wire.
const (
	EventSubmitted EventType = iota + 1
	EventGranted
	EventAcknowledged
	EventStarted
	EventCompleted
	EventFailed
	EventReleased
	EventLeaseEnded
	EventCancelRequested
	EventRetried
	EventReady
	EventEnded
	EventRefused
	EventAdopted
)

// MaxHistory is how many events a task and its live lease keep (T10), MaxDiscarded how many
// discarded results it keeps (V15), and maxDetail how many bytes the detail of an event may have.
const (
	MaxHistory   = 100
	MaxDiscarded = 16
	maxDetail    = 256
)

// State returns the state that users see.
func (t *Task) State() State {
	switch {
	case t.Lease == nil:
		return t.Rest
	case t.Cancel != nil:
		return Cancelling
	case t.Lease.StartedAt != 0:
		return Running
	}
	return Leased
}

// HasCheckpoint reports whether a checkpoint is stored.
func (t *Task) HasCheckpoint() bool { return t.CheckpointBits > 0 }

// CheckpointBound returns how many bytes the stored checkpoint has at most, less than twice as many
// as the largest that the task has saved.
func (t *Task) CheckpointBound() int { return 1<<t.CheckpointBits - 1 }

// HasFailure reports whether the error of a failed attempt is stored.
func (t *Task) HasFailure() bool { return t.ErrorCategory != NoCategory }

// ExpiresAt returns when the live lease ends unless its holder renews it: when it expires, or at
// the end of attempt_timeout or the deadline if that comes first. Answers carry this time to the
// holder. In CANCELLING neither of the two applies (A3, T7).
func (t *Task) ExpiresAt(now Now) Instant {
	until := t.Lease.ExpiresAt
	if t.Cancel != nil {
		return until
	}
	if by := t.Lease.AttemptBy; by != 0 {
		until = min(until, by)
	}
	if t.Deadline != 0 {
		until = min(until, now.Serving.Add(time.Duration(t.Deadline-now.Wall)))
	}
	return until
}

// Holding describes the live lease, which must not be nil.
func (t *Task) Holding() Holding {
	return Holding{
		Tenant:    t.Tenant,
		Workspace: t.Workspace,
		Run:       t.Spec.RunID,
		Ticket:    t.Lease.ticket(t.ID),
	}
}

func (l *Lease) ticket(task TaskID) Ticket {
	return Ticket{Epoch: l.Epoch, Task: task, Attempt: l.Attempt, Nonce: l.Nonce}
}

// Attempt returns the number of the newest grant; 0 before the first.
func (t *Task) Attempt() uint32 {
	if t.Lease != nil {
		return t.Lease.Attempt
	}
	return t.Attempts
}

// Events returns the history of the task, oldest first, including that of the live lease. It begins
// with an EventSubmitted unless older events were dropped. That event is not stored: Events makes
// it from the task.
func (t *Task) Events() []Event {
	all := make([]Event, 0, 1+MaxHistory)
	if t.Dropped == 0 {
		first := Event{Seq: t.ID.Seq, Type: EventSubmitted, At: t.CreatedAt, State: Ready}
		if t.Spec != nil && t.Spec.RunAt > t.CreatedAt {
			first.State = Scheduled
		}
		all = append(all, first)
	}
	all = append(all, t.History...)
	if t.Lease != nil {
		all = append(all, t.Lease.Events...)
	}
	return all
}

// LastSeq returns the sequence number of the newest event.
func (t *Task) LastSeq() uint64 {
	if t.Lease != nil && len(t.Lease.Events) > 0 {
		return t.Lease.Events[len(t.Lease.Events)-1].Seq
	}
	if n := len(t.History); n > 0 {
		return t.History[n-1].Seq
	}
	return t.ID.Seq
}

// Line identifies a set of READY tasks that are equal for every worker: a worker that may take one
// of them may take any of them. A grant examines only the first task of a line and never scans the
// rest (T2).
type Line struct {
	Queue    string
	Type     string
	Fairness string
	Class    Class // empty: any worker of the queue and type may take the tasks
}

// Line returns the line to which the task belongs.
func (t *Task) Line() Line {
	return Line{Queue: t.Spec.Queue, Type: t.Spec.Type, Fairness: t.Spec.FairnessKey, Class: t.Spec.Class()}
}

// Due returns when the next timer of the task is due on each clock; 0: never. It depends on the
// task alone, so an index of timers can be checked against the tasks in it.
func (t *Task) Due() (serving Instant, wall Wall) {
	t.timers(func(tm timer) {
		if tm.serving != 0 && (serving == 0 || tm.serving < serving) {
			serving = tm.serving
		}
		if tm.wall != 0 && (wall == 0 || tm.wall < wall) {
			wall = tm.wall
		}
	})
	return serving, wall
}
