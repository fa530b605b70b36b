// Package timerindex keeps the timers of tasks that wait: for their run_at, a retry, a deadline.
// They become due in another order than they come. An index that is ordered by time would write a
// page of its own for each new timer as soon as it has more pages than a commit has timers. So
// timers are written in the order in which they come, and put in order later, many at once.
//
//	a task waits ──> recent (TimerLog, as they came; all of them in memory, in order) ──sweep──> Timer, in order
//
// When some 65,536 timers have come, a sweep begins: it goes through the recent ones in order and
// moves them to Timer, in steps of twice as many as come meanwhile. Since it moves neighbours
// together, and no more timers come into memory than leave it, a page of Timer is written for
// several timers. Many are never written to it, because they are due, or their tasks have ended,
// before the sweep reaches them. After a sweep, the records that TimerLog had at its beginning are
// removed.
//
// A timer is not removed from TimerLog with its task. After a start, what TimerLog has may
// therefore be a timer that its task no longer has, or one that has been moved. It counts only if
// the task has it, and is removed from Timer as well when the task lets go of it. So every timer
// that a task has is in Timer or TimerLog, and Timer has none that its task does not have.
//
// Decision 0039 says what else was considered.
package timerindex
