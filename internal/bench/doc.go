// Package bench measures a coordinator and, in the same run, what the machine can do at most, so that every figure can be given as a share of
// a limit.
//
// A phase is one measurement on a coordinator of its own: a child process on an empty directory, with the defaults of lessor serve. Phases and
// limits take turns, repetition by repetition, so that a disturbance of the machine meets all of them. The load comes from this process and
// shares the processors with the coordinator.
//
// Every phase checks itself: as many tasks must have been acknowledged as were completed, and as the coordinator counts afterwards. Otherwise
// the run fails, because a figure could come from tasks that were lost quickly.
package bench
