// Package lease is the rule book of Lessor: it decides everything about tasks and leases, and does nothing else. It has no
// clock, no goroutine, no disk and no network; it imports only the standard library. The same rules run in the coordinator, in its
// tests and in simulations. Rule numbers in the comments (A3, V7, T5, W5 ...) are those of docs/rules.md.
//
// # States
//
//	submit ──┬─> SCHEDULED ──time──> READY ──grant──> LEASED ──Start──> RUNNING
//	         └─────────────────────────^                └── CancelTask ──┴──> CANCELLING
//
//	LEASED, RUNNING, CANCELLING ──the attempt ends──┬─> READY, SCHEDULED              another attempt
//	                                                └─> COMPLETED, FAILED, CANCELLED  the round is over
//
// Who may move a task, and no one else:
//
//   - a producer: submits it; cancels, retries and deletes it; adopts a result that came too late (Submit, Cancel, Retry, Delete, Adopt);
//   - the coordinator: leases a READY task to a worker (Grant), takes one out of its line while its concurrency key has no room, and puts it
//     back (Grant, Unpark), takes a lease back when its holder is known to be gone (Requeue), and gives up a READY task when the worker that
//     holds its resources is (LoseResource);
//   - the holder of the live lease: starts, renews, completes, fails or releases the attempt (Judge);
//   - time: run_at, backoff and retention; expiry and acknowledgement of a lease; start_timeout, attempt_timeout, deadline, cancel_grace and
//     the expiry of resources (applied before each command on the task, and by Expire).
//
// SCHEDULED, READY and the final states are states of rest, kept in Task.Rest. LEASED, RUNNING and CANCELLING are READY with a live
// Task.Lease, which is stored apart from the task; Task.State computes what the world sees. docs/state-machine.md lists the
// transitions and the verdicts.
//
// # The promise about leases
//
// A task has at most one live lease (A1). A lease ends once, by the earliest of its causes, and that cause is the answer to its holder
// for ever after (A3). A lease that has ended never lives again, even if nobody else took the task (A4). Hence of all who believe that
// they hold an attempt, at most one can have a report COMMITTED, and at most one outcome is committed in each round of a task (A5). A
// zombie loses nothing but its own work: whatever it says changes nothing but the history, and what it made is kept aside for an operator.
//
// # Step
//
// Rules.Step takes the two clocks as they stand (Now), what may be looked at (View) and one Command. It first applies the timers of the
// task that are due, in due order, each at its own time, so that nobody's verdict depends on when a sweeper last ran. Then it decides
// the command. The resulting Step holds the answer and the Changes: each has the version of a task that was found and the
// version that replaces it. Versions are values: none is ever written to again, those given to a Step included. Step keeps
// nothing between calls and is deterministic but for Rules.Entropy; two Steps may run at the same time if their Views allow it.
//
// Changes may come with a refusal, too: who asks to cancel a task whose deadline has just passed is told that it is FAILED, and this step
// is what made it so.
//
// # The duties of the caller
//
// In this order:
//
//  1. Read both clocks once, and step one command after another on what the previous one left: the View shows every Change so far,
//     durable or not.
//  2. Write the Changes of a step in one atomic commit, with any number of other steps. Store New in the place of Old (Row tells whether
//     more than the lease changed), add the Ledger, and store Result, Failure, Checkpoint, Kept and Key beside it. Where New is nil remove
//     the task with all that was stored for it, but keep its ledger until ForgetAt.
//  3. Wait until it is durable. Everything must be durable before any of it is told: verdicts, refusals, grants, reads that saw
//     it (A6, A10). If the commit fails nothing is told, for nobody knows what is in the store.
//  4. Then speak: the Answer or Err to whoever asked, with the id of the new lease for a grant; the loss of a lease (Lost, LostTo)
//     and a cancel (CancelAsked) to its holder.
//  5. Put the task's next timer (Task.Due) where it will be found, and step Expire when it is due (T8). This is for those who wait: no
//     verdict depends on it.
//
// Where a lease with a concurrency key has ended, or a task that was to be granted next is gone, an Unpark brings back the first parked task
// of each line of the key. At a start, a Requeue with CoordinatorRecovered ends every lease of an older epoch (A11). After standing still, a
// Stall for each live lease comes before anything else (A8).
//
// A command on one task never looks at another, but for a Grant, which asks the View how many leases its queue and its concurrency key have.
// Turns, places in line, capacity and what a worker has (Line, Class) are the caller's business: it chooses what to Grant to whom, and the
// rules say whether that task may be granted.
package lease
