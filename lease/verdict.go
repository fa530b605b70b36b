package lease

// State is where a task stands; see doc.go for who may move it.
type State uint8

// The states. Scheduled, Ready and the final three are states of rest; the others hold while a worker has the lease.
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

func (s State) String() string {
	return [...]string{"UNSPECIFIED", "SCHEDULED", "READY", "LEASED", "RUNNING", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"}[s]
}

// Verdict is the one answer to anything a worker says.
type Verdict uint8

// The verdicts. Their names carry the prefix since Cancelled is also a state.
const (
	VerdictCommitted Verdict = iota + 1
	VerdictCancelled
	VerdictRejected
)

func (v Verdict) String() string {
	return [...]string{"UNSPECIFIED", "COMMITTED", "CANCELLED", "REJECTED"}[v]
}

// Reason says why a verdict fell, why a lease ended or why a task failed without an outcome.
type Reason uint8

// The reasons, in the order and with the numbers of the wire.
const (
	NoReason Reason = iota
	None
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

// Verdict that is given for the reason; 0 for one that only ends tasks.
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
		"UNSPECIFIED", "NONE", "INVALID_REQUEST", "UNKNOWN_TASK", "INVALID_LEASE", "DUPLICATE_REPORT", "ALREADY_REPORTED",
		"COORDINATOR_RECOVERED", "TASK_GONE", "SUPERSEDED", "LEASE_EXPIRED", "DISPATCH_UNACKED", "TASK_CANCELLED",
		"CANCEL_TIMEOUT", "DEADLINE_EXCEEDED", "REVOKED", "RESULT_TOO_LARGE", "HEARTBEAT_TIMEOUT", "START_TIMEOUT",
		"DISPATCH_UNAVAILABLE", "REPORTED", "RESOURCE_GONE",
	}[r]
}

// Category is the kind of a failure (T4).
type Category uint8

// The categories, with the numbers of the wire.
const (
	NoCategory Category = iota // read as UserCode
	UserCode
	DataQuality
	Infrastructure
	Configuration
	Timeout
	CategoryCancelled
)

func (c Category) String() string {
	return [...]string{"UNSPECIFIED", "USER_CODE", "DATA_QUALITY", "INFRASTRUCTURE", "CONFIGURATION", "TIMEOUT", "CANCELLED"}[c]
}

// retried is the default of T4.
func (c Category) retried() bool {
	switch c {
	case DataQuality, Configuration, CategoryCancelled:
		return false
	}
	return true
}

// Answer is a verdict with all that the worker is told beside it.
type Answer struct {
	Verdict Verdict
	Reason  Reason
	// State of the task; 0 where the caller may not know it.
	State State
	// Replayed marks a verdict that had been given before (V4).
	Replayed bool
	// CurrentAttempt is the task's newest attempt, where it is not the caller's.
	CurrentAttempt uint32
	Detail         string // names the field or the cause, for people
	// ShouldCancel tells the worker to stop (V18); CancelReason is the word of whoever asked.
	ShouldCancel bool
	CancelReason string
	// ExpiresAt is the end of a lease that is live after a Start or Heartbeat; 0 otherwise.
	ExpiresAt Instant
	// Holding is what a lease is of that is live after a Start or Heartbeat; zero otherwise.
	Holding Holding
	// RetryAt is when the next attempt may be granted; 0 when there is none or no wait.
	RetryAt Wall
}

// Holding says what a live lease is of. It is small, so that answers that wait for a slow reader hold no task.
type Holding struct {
	Tenant    string
	Workspace string
	Run       string
	Ticket    Ticket
}
