// Package bench measures a coordinator, and in the same run what the machine could do at most, so that every figure can be told as a share of
// a limit.
//
// A phase is one measurement on a coordinator of its own: a child process on an empty directory, with the defaults of lessor serve. Phases and
// limits take turns, repetition by repetition, so that a disturbance of the machine meets all of them. The load comes from this process and
// shares the processors with the coordinator.
//
// Every phase checks itself: the tasks that were acknowledged, completed, and counted by the coordinator afterwards are as many, or the run
// fails. A figure without that would be one of tasks lost quickly.
package bench
