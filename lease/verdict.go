package lease

// State is the state of a task; see the package comment for who may move it.
type State uint8

// The states. In Leased, Running and Cancelling a worker has the lease; in the others nobody has.
const (
	Scheduled State = iota + 1
	Ready
	Leased
	Running
	Cancelling
	Completed
	Failed
	Cancelled
)

// Final reports whether the round is over.
func (s State) Final() bool { return s >= Completed }

// Held reports whether a worker has the lease.
func (s State) Held() bool { return Leased <= s && s <= Cancelling }

func (s State) String() string {
	return [...]string{
		"UNSPECIFIED", "SCHEDULED", "READY", "LEASED", "RUNNING", "CANCELLING", "COMPLETED",
		"FAILED", "CANCELLED",
	}[s]
}

// Verdict is the answer to anything that a worker sends about a lease.
type Verdict uint8

// The verdicts. They have a prefix because Cancelled is also the name of a State.
const (
	VerdictCommitted Verdict = iota + 1
	VerdictCancelled
	VerdictRejected
)

func (v Verdict) String() string {
	return [...]string{"UNSPECIFIED", "COMMITTED", "CANCELLED", "REJECTED"}[v]
}

// Reason says why a verdict was given, why a lease ended, or why a task failed without an outcome.
type Reason uint8

// The reasons, in the order and with the numbers of the wire. Add a new one at the end, and to
// Verdict and String below.
const (
	NoReason Reason = iota // not set
	None                   // of COMMITTED
	InvalidRequest
	UnknownTask
	InvalidLease
	DuplicateReport
	AlreadyReported
	CoordinatorRecovered
	TaskGone
	Superseded
	LeaseExpired
	DispatchUnacked
	TaskCancelled
	CancelTimeout
	DeadlineExceeded
	Revoked
	ResultTooLarge
	HeartbeatTimeout
	StartTimeout
	DispatchUnavailable
	Reported
	ResourceGone
)

// EndsTasks reports whether a task can end for the reason, without an outcome.
func (r Reason) EndsTasks() bool {
	switch r {
	case TaskCancelled, CancelTimeout, DeadlineExceeded, HeartbeatTimeout, StartTimeout, DispatchUnavailable,
		ResourceGone:
		return true
	}
	return false
}

// Verdict returns the verdict that has the reason; 0 for a reason that no answer to a report has.
func (r Reason) Verdict() Verdict {
	switch r {
	case None:
		return VerdictCommitted
	case InvalidRequest, UnknownTask, InvalidLease, DuplicateReport, ResultTooLarge:
		return VerdictRejected
	case NoReason, HeartbeatTimeout, StartTimeout, DispatchUnavailable, Reported, ResourceGone:
		return 0
	}
	return VerdictCancelled
}

func (r Reason) String() string {
	return [...]string{
		"UNSPECIFIED", "NONE", "INVALID_REQUEST", "UNKNOWN_TASK", "INVALID_LEASE", "DUPLICATE_REPORT",
		"ALREADY_REPORTED",
		"COORDINATOR_RECOVERED", "TASK_GONE", "SUPERSEDED", "LEASE_EXPIRED", "DISPATCH_UNACKED", "TASK_CANCELLED",
		"CANCEL_TIMEOUT", "DEADLINE_EXCEEDED", "REVOKED", "RESULT_TOO_LARGE", "HEARTBEAT_TIMEOUT", "START_TIMEOUT",
		"DISPATCH_UNAVAILABLE", "REPORTED", "RESOURCE_GONE",
	}[r]
}

// Category is the kind of a failure (T4).
type Category uint8

// The categories have the same numbers as on the wire.
const (
	NoCategory Category = iota // treated as UserCode
	UserCode
	DataQuality
	Infrastructure
	Configuration
	Timeout
	CategoryCancelled
	UnknownCategory // of an error in the record of a task that an older build has written; not on the wire
)

func (c Category) String() string {
	return [...]string{
		"UNSPECIFIED", "USER_CODE", "DATA_QUALITY", "INFRASTRUCTURE", "CONFIGURATION",
		"TIMEOUT", "CANCELLED", "UNKNOWN",
	}[c]
}

// retried reports whether a failure of the category is retried by default (T4).
func (c Category) retried() bool {
	switch c {
	case DataQuality, Configuration, CategoryCancelled:
		return false
	}
	return true
}

// Answer is a verdict and everything else in the answer to the worker.
type Answer struct {
	Verdict Verdict
	Reason  Reason
	// State is the state of the task; 0 if the caller may not know it.
	State State
	// Replayed is true if the same report got this verdict before (V4).
	Replayed bool
	// CurrentAttempt is, with VerdictCancelled, the task's newest attempt if that is not the
	// caller's own; else 0.
	CurrentAttempt uint32
	Detail         string // names the field or the cause, for people
	// ShouldCancel tells the worker to stop (V18). CancelReason is the reason that was given for
	// the cancel of the task.
	ShouldCancel bool
	CancelReason string
	// ExpiresAt is when the lease ends, if it is still live after a Start, Heartbeat or
	// acknowledgement; else 0.
	ExpiresAt Instant
	// CancelBy is the end of cancel_grace, if the lease is still live after a Start, Heartbeat or
	// acknowledgement and a cancel was asked (T7); else 0.
	CancelBy Instant
	// Holding describes the lease, if it is still live after a Start, Heartbeat or acknowledgement;
	// else it is zero.
	Holding Holding
	// RetryAt is when the next attempt may be granted; 0 if there is none, or if it may be granted
	// at once.
	RetryAt Wall
}

// Holding identifies a live lease and its owner. It is small, so that an answer that waits for a
// slow reader does not keep the whole task in memory.
type Holding struct {
	Tenant    string
	Workspace string
	Run       string
	Ticket    Ticket
}
