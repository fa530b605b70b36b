// Package engine owns the state of a partition: tasks, leases, queues and timers. It turns calls from the edge into steps of the rule
// book (package lease), makes them durable in batches, and only then lets anyone hear of them.
//
// # The path of a command
//
//	call ──> inbox ──> loop: lease.Step ──> batch ──> committer: encode, store.Commit ──> answers, grants, notices, news
//
// While one batch is being made durable the loop steps the next one on the state that it will find. There is no timer in the way: a
// commit is what came in while the one before it was in fsync, up to a cap. It is applied meanwhile, batch by batch, and written after that fsync (committer.go).
//
// Nothing that a batch decided leaves before its commit: not a verdict, not a grant, not a refusal that saw the new state. A call
// that changes nothing waits for the batch before it all the same.
//
// A failed commit has no verdict: its outcome is unknown until the store is opened again. The engine then answers everything that
// waits with ErrStore and stops; the process has to exit.
//
// # Goroutines
//
//	name       owns                                  woken by                          stops
//	loop       all maps and indexes of Engine        inbox, timers, the committer      when Run's context ends, or the store fails
//	committer  two that take turns: batches under    the loop's hand-over              when the loop closes its channel
//	           commit; callbacks
//	readers    nothing: each reads a line ahead      the end of a commit               when it has read; the loop waits for them
//
// Callbacks (answers, Member.Deliver, Member.Notify, Events) run on the committer after the commit, one at a time, and must not block.
//
// # Who gets what
//
//	tenant ──lanes──> queue ──hungry──> taker           queues take turns by tenant, takers within a queue (match.go)
//	                    │
//	                    ├─ flow (fairness key), turns by weight (flow.go)
//	                    │    └─ line (type): tasks that are alike, the next one first (space.go)
//	                    └─ settings: pause, max_inflight, rate limit hold up the whole queue (queues.go)
//
// A task whose concurrency key has no room leaves its line and is parked under the key until there is (keyed.go).
//
// # What is in memory
//
// The working set: tasks with a live lease, tasks of batches that are not durable yet, and a bounded number of tasks at the head of the
// lines. The lines, the parked tasks and the timers themselves are indexes on disk of which a head holds the first few thousand entries in
// memory. A line is read ahead beside the loop (ahead.go); when a head runs dry all the same, the loop waits for the commits under way and reads
// on. Memory and start time do not grow with the backlog.
//
// # Where things are
//
//	api.go events.go                           what the edge may ask for; what observers are told
//	engine.go                                  start, loop and stop
//	clock.go wall*.go due.go alarm.go          the clocks, the loop's own standstill (A8), what is to be done at an instant
//	inbox.go lanes.go                          calls on their way to the loop, tenant by tenant in turn
//	calls.go unary.go session.go refuse.go     the calls of producers and workers
//	queues.go sweep.go explain*.go audit.go    the calls of operators, and the trace that they leave
//	view.go apply.go batch.go                  a step, and where its changes go
//	workset.go space.go load.go                tasks, workspaces, queues and lines in memory; what a start reads of them
//	head.go ahead.go timeline.go               heads of indexes on disk, and how they are read on
//	match.go flow.go pool.go                   whose turn it is, and for which task
//	taker.go credit.go backlog.go presence.go  who takes work: its room, what it has not read yet, whether it is there
//	keyed.go affinity.go crowd.go              concurrency keys, affinity keys, the quota of tasks
//	committer.go                               batches become durable
//	hub.go feed.go                             watchers, and what running attempts say
package engine
