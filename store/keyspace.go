package store

import "fmt"

// Keyspace is one ordered range of keys. The package comment says what each one holds. Its number
// is part of every seal and must not change.
type Keyspace uint8

// The keyspaces.
const (
	Meta Keyspace = iota
	Space
	Queue
	Line // used by format 1 only; empty since
	Spec
	Task
	Lease
	Ready
	Timer
	Idempotency
	Ledger
	Output
	Failure
	Checkpoint
	Discarded
	Parked
	Settings
	Mounted
	Feedback
	SigningKey
	Token
	Audit
	Run
	KeyLog
	KeySegment
	TimerLog

	// NumKeyspaces is the number of keyspaces.
	NumKeyspaces = int(iota)
)

var keyspaceNames = [NumKeyspaces]string{
	Meta:        "meta",
	Space:       "space",
	Queue:       "queue",
	Line:        "line",
	Spec:        "spec",
	Task:        "task",
	Lease:       "lease",
	Ready:       "ready",
	Timer:       "timer",
	Idempotency: "idempotency",
	Ledger:      "ledger",
	Output:      "output",
	Failure:     "failure",
	Checkpoint:  "checkpoint",
	Discarded:   "discarded",
	Parked:      "parked",
	Settings:    "settings",
	Mounted:     "mounted",
	Feedback:    "feedback",
	SigningKey:  "signingkey",
	Token:       "token",
	Audit:       "audit",
	Run:         "run",
	KeyLog:      "keylog",
	KeySegment:  "keysegment",
	TimerLog:    "timerlog",
}

// String is the name under which a store on disk keeps the keyspace.
func (ks Keyspace) String() string {
	if int(ks) < NumKeyspaces {
		return keyspaceNames[ks]
	}
	return fmt.Sprintf("Keyspace(%d)", uint8(ks))
}

// TaskParts are the keyspaces beside Spec in which a task has at most one record, under its id. A
// task without a record in Spec has none there.
var TaskParts = [...]Keyspace{Task, Lease, Output, Failure, Feedback, Checkpoint}

// Index reports whether the keyspace is an index of tasks, whose values are empty.
func (ks Keyspace) Index() bool {
	switch ks {
	case Ready, Parked, Timer, Run, Mounted:
		return true
	}
	return false
}
