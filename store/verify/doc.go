// Package verify checks that all records of a store agree with each other.
//
// It reads one state and changes nothing. First it reads each record by itself: its key, its seal
// and its fields. Then it compares what several records say: a task with its spec, lease, index
// entries, idempotency key and blobs, and each of these with its task; the counters of queues with
// a recount; the attempts and outcomes of a task's history, its ledger and its lease with each
// other (A1, A2, A5).
//
// It needs memory for each queue, each workspace, and each task that was deleted within the last
// hour or so, but not for the other tasks.
package verify
