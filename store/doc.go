// Package store is the seam between the engine and the disk.
//
// It speaks in batches, points and ordered scans, so that bbolt (package boltstore) can be exchanged for memory in tests
// (package memstore) and for a replicated store later. One suite, package storetest, states what all of them promise.
//
// # Layout
//
// A store holds keyspaces, each ordered by the bytes of its keys. Numbers in keys are big endian, so that they sort as
// numbers do; a task id is its space (4 bytes) and its sequence (8 bytes), so that new tasks are appended at the end.
//
//	keyspace     key                                              value
//	meta         name                                             format, identity, clock
//	space        tenant 00 workspace                              number of the space, its counters
//	queue        space | queue name                               counters, and how far its rate limit is used up
//	settings     space | queue name                               what an operator has set on the queue
//	spec         task id                                          what was submitted, and how the task was then; written once, never rewritten
//	task         task id                                          what has changed in a task; none before the first change; small
//	lease        task id                                          live lease; apart, so that a renewal touches few pages
//	ready        space | line | ^priority | place | sequence      none: READY tasks of a line, the next one first
//	parked       space | key | line | ^priority | place | seq.    none: READY tasks that their concurrency key keeps out of the line
//	mounted      space | host | sequence                          none: tasks that are mounted on another one of their run
//	timer        clock | due | task id                            none: what is due first comes first
//	idempotency  space | idempotency key                          task and digest of its spec
//	ledger       task id | attempt                                committed report
//	output       task id                                          output of the committed report; none where it carried nothing
//	failure      task id                                          error of the last failed attempt
//	checkpoint   task id                                          last checkpoint
//	discarded    task id | attempt                                discarded result kept for an operator
//	feedback     task id                                          what the last attempt that said anything had said in the end
//	signingkey   tenant 00 id of the key                          a secret that signs tokens of the tenant; its times
//	token        tenant 00 id of the token                        what a token says, and whether it was revoked; never the token itself
//	audit        tenant 00 wall time | serving time               what somebody did, or was refused; never changed, removed after its retention
//
// Each key is built by one function of keys.go and read back by one. Each value is sealed (seal.go): a version byte and
// a checksum over keyspace, key and payload come first, so that a value that is torn, or lies under the wrong key, is
// noticed when it is read. The indexes without values need no seal: they can be rebuilt from spec and task. A line, a concurrency key and a host are
// hashes there; what they stand for is read in the spec of any of their tasks.
//
// A store on disk keeps one more thing, which no keyspace shows: a sum over the records of each keyspace, by which it notices that some are missing or
// old (boltstore/sums.go).
//
// A change of this table, of a key or of the meaning of a value needs a new format and a migration to it (format.go).
package store
