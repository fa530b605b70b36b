package salvage

import (
	"fmt"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Item is something that the new store does not have, or does not have as it was.
type Item struct {
	Kind   string // "task", "workspace", "queue", ...
	Reason string

	Task lease.TaskID // zero: it is not about a task
	// What is known of the task; it may be empty.
	State, Queue, RunID, IdempotencyKey string

	Tenant, Workspace string // empty: it is not about something of theirs, or nobody knows
	Name              string // of what else is left out
}

// Kinds of items. Those of parts of a task are about a task that is kept without the part.
const (
	KindTask       = "task"
	KindError      = "error of a task"
	KindFeedback   = "feedback of a task"
	KindReport     = "report of an earlier attempt"
	KindLateResult = "late result of a task"
	KindKey        = "idempotency key of a task"
	KindWorkspace  = "workspace"
	KindQueue      = "queue"
	KindSettings   = "settings of a queue"
	KindSigningKey = "signing key"
	KindToken      = "token"
	KindAudit      = "audit entry"
	KindIdentity   = "key that signs leases"
	KindClock      = "serving clock"
	KindBackups    = "times of backups"
	KindCommit     = "newest commit"
	KindRecords    = "records" // nobody knows how many, or of what
)

// noun says what a record of a task holds.
func noun(ks store.Keyspace) string {
	switch ks {
	case store.Spec:
		return "specification"
	case store.Task:
		return "state"
	}
	return ks.String()
}

// partKinds are the kinds of parts without which a task is kept.
var partKinds = map[store.Keyspace]string{
	store.Failure: KindError, store.Feedback: KindFeedback, store.Ledger: KindReport, store.Discarded: KindLateResult,
}

// Report counts what the new store has.
type Report struct {
	Tasks   map[lease.State]uint64
	Total   uint64 // tasks
	Leases  uint64
	LeftOut uint64 // tasks that are known to be left out
	Unknown bool   // others may be left out that nobody can name or count
}

// rangeText describes a range of keys.
func rangeText(ks store.Keyspace, after, before []byte) string {
	if after == nil && before == nil {
		return "some are missing, or older ones may be in their place"
	}
	return fmt.Sprintf("those between %s and %s cannot be read",
		end(ks, after, "the first"), end(ks, before, "the last"))
}

func end(ks store.Keyspace, key []byte, none string) string {
	if key == nil {
		return none
	}
	if id, ok := store.TaskOf(ks, key); ok {
		return id.String()
	}
	return fmt.Sprintf("key %x", key)
}
