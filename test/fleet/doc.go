// Package fleet kills or pauses one of two worker processes that share a queue, and counts, by what the workers print and by
// what the coordinator keeps of each task, that every task was committed exactly once (A1, A5). That a task is started a
// second time is allowed, since its first worker was lost; that two of its attempts are committed is not.
package fleet
