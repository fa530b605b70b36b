// Package fleet kills or pauses one of two worker processes that share a queue. From what the
// workers print and what the coordinator stores of each task, it checks that every task was
// committed exactly once (A1, A5). A task may be started a second time, since its first worker was
// lost; but only one of its attempts may be committed.
package fleet
