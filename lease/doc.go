// Package lease holds the rules of Lessor: it decides everything about tasks and leases, and does
// nothing else. It has no clock, no goroutine, no disk and no network; it imports only the standard
// library. The same rules run in the coordinator, in its tests and in simulations. Rule numbers in
// the comments (A3, V7, T5, W5 ...) are those of docs/rules.md.
//
// # States
//
//	submit ──┬─> SCHEDULED ──time──> READY ──grant──> LEASED ──Start──> RUNNING
//	         └─────────────────────────^                └── CancelTask ──┴──> CANCELLING
//
//	LEASED, RUNNING, CANCELLING ──the attempt ends──┬─> READY, SCHEDULED              another attempt
//	                                                └─> COMPLETED, FAILED, CANCELLED  the round is over
//
// Only these may move a task from one state to another:
//
//   - a producer: submits it; cancels, retries and deletes it; adopts a result that came too late
//     (Submit, Cancel, Retry, Delete, Adopt);
//   - the coordinator: leases a READY task to a worker, or parks the task, out of its line, while
//     its concurrency key has no room (Grant); puts a parked task back in its line (Unpark); ends a
//     lease when it knows that the holder is gone (Requeue); and fails a READY task when the worker
//     that holds its resources is gone (LoseResource);
//   - the holder of the live lease: starts, renews, completes, fails or releases the attempt
//     (Judge);
//   - time: run_at, backoff and retention; expiry and acknowledgement of a lease; start_timeout,
//     attempt_timeout, deadline, cancel_grace and the expiry of resources (applied before each
//     command on the task, and by Expire).
//
// Task.Rest holds the state of a task without a live lease: SCHEDULED, READY or a final state. In
// LEASED, RUNNING and CANCELLING, Task.Rest is READY and Task.Lease, which is stored apart from the
// task, is the live lease. Task.State computes the state that users see from both.
// docs/state-machine.md lists the transitions and the verdicts.
//
// # The promise about leases
//
// A task has at most one live lease (A1). A lease ends once, by the earliest of its causes, and
// every later answer to its holder names that cause (A3). A lease that has ended never becomes live
// again, even if nobody else took the task (A4). So if several workers believe that they hold an
// attempt, at most one of them gets a report COMMITTED, and at most one outcome is committed in
// each round of a task (A5). A zombie, a worker whose lease has ended, does no harm: its reports
// change only the history, and its result is kept for an operator (V15).
//
// # Step
//
// Rules.Step takes a reading of both clocks (Now), the state that it may read (View) and one
// Command. It first applies the due timers of the task, in due order, each at its own time, so that
// no verdict depends on when a sweeper last ran. Then it decides the command. The resulting Step
// holds the answer and the Changes: each has the old version of a task and the new version that
// replaces it. Versions are values: nobody writes to a version after the Step that made it. Rules
// keep nothing between calls, and only Rules.Entropy is not deterministic; two Steps may run at the
// same time if their Views allow it.
//
// A Step that refuses its command may have Changes, too. For example: a cancel arrives just after
// the deadline of the task. The Step applies the deadline, so the task becomes FAILED, and then
// refuses the cancel because the task is FAILED.
//
// # The duties of the caller
//
// In this order:
//
//  1. Read both clocks once. Step the commands one after another, each on the state after the
//     previous one: the View shows every Change so far, durable or not.
//  2. Write all Changes of a step in one atomic commit; a commit may hold many steps. Store New in
//     the place of Old (Row says whether more than the lease changed), add the Ledger, and store
//     Result, Failure, Checkpoint, Kept and Key beside it. If New is nil, remove the task and
//     everything that was stored for it, but keep its ledger until ForgetAt.
//  3. Wait until the commit is durable. Only then may anybody learn of it: by a verdict, a refusal,
//     a grant, or a read that saw it (A6, A10). If the commit fails, answer nothing, because nobody
//     knows what the store holds.
//  4. Then send the answers: the Answer or Err to the caller of the command, with the id of the new
//     lease for a grant; the end of a lease (Lost, LostCause) and a cancel (CancelAsked) to its
//     holder.
//  5. Put the task's next timer (Task.Due) into an index, and step Expire when the timer is due
//     (T8). This serves those who wait for the change: no verdict depends on it.
//
// When a lease with a concurrency key has ended, or the task that was next for the key is gone,
// Unpark the first parked task of each line of the key. At a start, step a Requeue with
// CoordinatorRecovered for every lease of an older epoch (A11). After the coordinator itself has
// stood still, step a Stall for each live lease before any other command (A8).
//
// A command reads and changes one task only. The exceptions are Submit, which makes many, and
// Grant, which asks the View how many leases the queue and the concurrency key have. The caller
// keeps the turns, the places in line, and the capacity and capabilities of workers (Line, Class):
// it chooses which task to grant to which worker, and the rules decide whether that task may be
// granted.
//
// # Where things are
//
//	rules.go commands.go errors.go              Rules.Step, what it reads and returns; the commands; how they are refused
//	step.go                                     one step: the open task, its new version, its history
//	submit.go grant.go operator.go              commands of producers, of the coordinator, of operators
//	difference.go                               in which fields a spec differs from that of an earlier task (T1)
//	judge.go outcome.go discard.go              verdicts on reports (V1 to V12); what COMMITTED changes; results that came too late (V15)
//	timers.go transitions.go                    what time does; what several transitions share
//	task.go verdict.go report.go feedback.go    tasks, leases and events; states, verdicts and reasons; what workers say
//	spec.go retry_policy.go                     what was submitted; how often it is tried (T3 to T5)
//	placement.go requirements.go class.go       which workers may take a task (W12)
//	queue.go rate.go                            settings of queues; what holds up a READY task (T11, T13)
//	id.go clock.go                              ids of tasks and leases, fencing tokens; the two clocks
//	explain.go                                  why a task is in its state (S6)
package lease
