// Package verify looks through a whole store for what its records promise.
//
// It reads one state and changes nothing. Each record is read by itself first: its key, its seal, its fields. Then all that stands in two places
// is compared: a task with its spec, lease, index entries, idempotency key and blobs, and each of these with its task; the counts of
// queues with a recount; the attempts and outcomes of a task's history, its ledger and its lease with each other (A1, A2, A5).
//
// Memory does not grow with the number of tasks, but for a set of those that were deleted within the last hour or so.
package verify
