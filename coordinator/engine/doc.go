// Package engine owns the state of a partition: tasks, leases, queues and timers. It turns calls
// from the edge into steps of the rule book (package lease), makes the changes durable in batches,
// and only then sends the answers.
//
// # The path of a command
//
//	call ──> inbox ──> loop: lease.Step ──> batch ──> committer: encode, write, sync ──> answers, grants, notices, news
//
// While the committer makes one batch durable, the loop already fills the next one. The loop works
// on the state after the first batch. No timer delays a commit: a commit takes all batches that
// arrive during the fsync of the previous commit, up to a cap (committer.go has a drawing).
//
// Nothing that a batch decided leaves the engine before its commit: no verdict, no grant, no
// refusal that saw the new state. A call that changes nothing also waits for the commit of its
// batch and of earlier batches, because it may have seen their changes.
//
// After a failed commit there is no verdict: the outcome is unknown until the store is opened
// again. The engine then answers all waiting calls with ErrStore and stops. The process must exit.
//
// # Goroutines
//
//	name       owns                                  woken by                          stops
//	loop       Engine and the types of which it      inbox, timers, the committer      when Run's context ends, or the store fails
//	           consists, each with its own part
//	committer  batches under commit; callbacks.      the loop's hand-over              when the loop closes its channel
//	           These are two goroutines in turn
//	readers    nothing: each reads a line ahead,     the end of a commit;              after its reading; Run waits for it at its end
//	           and one the filters of the keys       the start of Run
//
// A type whose comment ends with the words "It belongs to the loop." is alone in using its fields.
// Most of them know nothing of Engine, and none decides: only methods of Engine call step, which
// asks the rules and applies what they answer to all these types.
//
// Callbacks must not block. Those that tell somebody what was decided (answers, Member.Deliver,
// Member.Notify) run on the committer after the commit, one at a time, and so do Events.Committed
// and Events.Changed. The other Events run on the loop, before the commit: they may count, but not
// tell.
//
// # Who gets what
//
//	tenant ──lanes──> queue ─available─> taker         tenants take turns, then queues, then the takers of a queue (match.go)
//	                    │
//	                    ├─ flow (fairness key), turns by weight (flow.go)
//	                    │    └─ line (type): tasks that are alike, the next one first (line.go)
//	                    └─ settings: pause, max_inflight, rate limit hold up the whole queue (queue_calls.go)
//
// If the concurrency key of a task has no room, the task leaves its line. It is parked under the
// key until the key has room (unpark.go).
//
// # Words
//
//	space     a workspace of a tenant: its queues, sequence, concurrency keys and bindings
//	class     everything by which a worker may take one task and not another: requirements, pin, affinity; mostly empty
//	line      the waiting tasks of one queue, type, fairness key and class: alike for every taker, so only the first is looked at
//	flow      the lines of a queue with one fairness key; flows take turns by weight, and save up no turns while they are empty
//	pool      the lines of a queue from which the same takers may take: where an idle taker looks
//	lineup    the lines of one flow that are in one pool, ordered by their first tasks
//	taker     who can get work: a session, or one unary call that waits
//	turn      the grants that a queue makes in a row; then it is the turn of the next tenant, and of its queue whose last grant was longest ago
//	parked    waiting under a concurrency key without room, outside its line, until a lease of the key ends
//	blocker   the oldest lease of a concurrency key under which tasks are parked
//	rota      which lines of a key's parked tasks are looked at next when there is room again
//	head      the first entries of an index on disk, kept in memory; says whether there may be more on disk
//	timeline  the timers of one clock: finds the one due next, of leased tasks in memory, of the others on disk
//	lanes     a queue of items with one lane for each key; lanes take turns, so that no key delays another by more than one
//	backlog   the bytes granted to a session and not yet sent; a session with too many gets no more work
//
// # What a round bounds
//
// A caller waits for the end of a round, and perhaps for the turns of others. So each kind of work
// ends at a bound, and goes on in a later round or turn:
//
//	bound                     of                                                 because these wait meanwhile
//	runFor, maxBatch...       operations of a round: time; ops, bytes, changes   the callers of these operations
//	takeAtOnce                operations taken out of the inbox                  those that come in later, of any tenant
//	dueAtOnce                 timers and alarms of a round, and their changes    operations
//	lossesPerRound            tasks that an alarm gives up                       operations, other alarms
//	sweepStep, dropsPerTurn   tasks of a sweep; empty lines of a queue           other operations
//	revokedAtOnce             instances whose leases an operator ends            other operations
//	triesPerTurn              tasks tried: by match, in the turn of a queue ...  operations, other queues
//	takersPerBatch            calls and sessions that get tasks                  everybody: they are all ready at once
//	grantsPerTurn             grants of a queue                                  other queues
//	unparksPerTurn            parked tasks tried                                 queues
//	linesInTurn               lines of parked tasks compared                     queues
//	mostBlockers              queues of blockers, for one call about queues      operations
//	movesAtOnce               lineups that move with the turn of their flow      all
//	mostPassed, mostSearched  tasks for which a taker has no room                other takers
//
// # What is in memory
//
// The working set is in memory: tasks with a live lease, tasks of batches that are not durable yet,
// and a bounded number of tasks at the heads of lines. Lines, parked tasks and timers are indexes
// on disk; a head (head.go) holds the first entries of each in memory. A reader refills the head of
// a line before it is empty (read_ahead.go). If a head runs empty anyway, the loop waits until the
// changes of that index are durable and then reads the next entries itself. The timers of waiting
// tasks come to their index by way of memory, since they come in no order (package
// store/timerindex). Memory and start time do not grow with the backlog, but for 2 bytes for each
// idempotency key, and for timers that are a 16th of what waits.
//
// # Where things are
//
//	api.go events.go                           what calls take and return; the events that observers get
//	engine.go config.go                        what an engine consists of
//	loop.go                                    start, rounds and stop
//	pipeline.go batch.go committer.go          what a round has decided is handed over, and becomes durable
//	clock.go stalls.go                         the clocks, and stalls of the coordinator itself (A8)
//	timers.go timeline.go                      the timers of tasks: on each clock those of leased tasks, recent ones (package store/timerindex), the first on disk
//	alarm.go                                   other timers
//	inbox.go intake.go lanes.go                calls that wait for the loop, and callers that wait for them; tenants take turns, and so do submits and others
//	calls.go unary.go session.go refuse.go     the calls of producers and workers
//	sessions.go requests.go                    streams and unary requests that have leases
//	queue_calls.go sweep.go                    the calls of operators: queues, many tasks at once
//	explain*.go audit.go                       why a task waits; audit entries
//	view.go apply.go                           a step, and the state that its changes update
//	workset.go load.go                         tasks in memory; what a start reads
//	keys.go                                    what the index of idempotency keys has to do (package store/keyindex)
//	space.go spaces.go queue.go                workspaces and their numbers; queues
//	tenants.go tally.go                        what each tenant has; tasks counted by their states
//	head.go read_ahead.go                      heads of indexes on disk, and how they are refilled
//	agenda.go match.go effort.go               which queues are to be matched, whose turn it is, and how much of that a round does
//	line.go lines.go flow.go pool.go search.go lines and the pools where takers find them; which task a taker gets
//	waiting.go                                 which lines of a queue have waited the longest
//	taker.go usage.go backlog.go               takers of work: their room, their unread frames
//	presence.go losses.go                      whether workers are there, and what they lose if not
//	concurrency.go parking.go                  concurrency keys, and the tasks that wait for them
//	unpark.go rota.go                          which of these come back when there is room
//	blockers.go                                which leases they wait for
//	affinity.go task_quota.go                  affinity keys, the quota of tasks
//	hub.go topic.go feed.go                    watchers, and the progress and output of running attempts
//	ends.go                                    who only waits for the ends of tasks, of thousands perhaps
package engine
