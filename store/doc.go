// Package store is the interface between the engine and the disk.
//
// Its operations are batches of changes, reads of single keys and ordered scans. So tests can use
// memory (package memstore) instead of bbolt (package boltstore), and a replicated store can be
// added later. One test suite, package storetest, states what all of them promise.
//
// # Layout
//
// A store holds keyspaces, each ordered by the bytes of its keys. Numbers in keys are big endian,
// so that their bytes sort like the numbers; ^ means that the highest number comes first. A task id
// is its space (4 bytes) and its sequence (8 bytes), so that new tasks are appended at the end.
//
//	keyspace     key                                              value
//	meta         name                                             format, identity, clock, times of backups, position, lineage
//	space        tenant 00 workspace                              number of the space, its counters
//	queue        space | queue name                               counters, and how far its rate limit is used up
//	settings     space | queue name                               what an operator has set on the queue
//	spec         task id                                          what was submitted, and the first state of the task; written once, never rewritten
//	task         task id                                          present state of the task; no record before the first change; small
//	lease        task id                                          live lease; a record of its own, so that a renewal touches few pages
//	ready        space | line | ^priority | place | sequence      empty; READY tasks of a line, the next one first
//	parked       space | key | line | ^priority | place | seq.    empty; READY tasks that their concurrency key keeps out of the line
//	run          space | run | sequence                           empty; tasks of a run. Under run 0: tasks up to this one may be missing here
//	mounted      space | host | sequence                          empty; tasks that are mounted on another task of their run
//	timer        clock | due | task id                            empty; timers, the one that is due first comes first
//	timerlog     number                                           timers that may be missing in timer, as they came; see package timerindex
//	keylog       task id                                          hash of the idempotency key, and digest of the spec, of a task that is in no segment yet
//	keysegment   segment | hash of an idempotency key             task and digest of its spec; see package keyindex
//	idempotency  space | idempotency key                          the same, of tasks that are older than the two keyspaces above
//	ledger       task id | attempt                                committed report
//	output       task id                                          output of the committed report; no record if the output is empty
//	failure      task id                                          error of the last failed attempt
//	checkpoint   task id                                          last checkpoint
//	discarded    task id | attempt                                discarded result kept for an operator
//	feedback     task id                                          last feedback of the newest ended attempt that sent any
//	signingkey   tenant 00 id of the key                          a secret that signs tokens of the tenant; its times
//	token        tenant 00 id of the token                        what a token says, who issued it, whether it was revoked; never the token itself
//	audit        tenant 00 wall time | serving time               what somebody did, or was refused; never changed, removed after its retention
//
// One function of keys.go builds each kind of key, and one parses it. Each value is sealed
// (seal.go): it begins with a version byte and a checksum over keyspace, key and payload. So
// whoever reads a value that is torn or under the wrong key notices it. The indexes, whose values
// are empty, need no seal: they can be rebuilt from spec and task. Their keys contain lines,
// concurrency keys, runs and hosts as hashes; the spec of any of their tasks has the full name.
//
// A store on disk keeps one more thing outside of the keyspaces: a checksum over the records of
// each keyspace. It shows if records are missing or old (boltstore/sums.go).
//
// A change of this table, of a key or of the meaning of a value needs a new format and a migration
// to it (format.go).
package store
