// Package salvage fills a new store with everything of a damaged one that can be read, and says
// what it leaves out.
//
// A task is kept only if it is what it was: if its specification, its state, its lease, its output
// and its checkpoint can be read, and agree with each other as package verify wants it. Otherwise
// it is left out as a whole: nobody can tell, for example, whether a task without its state waits
// or is completed. Four parts decide nothing, and a task is kept without them: the error of its
// last failed attempt, its last feedback, reports of earlier attempts, and results that came too
// late.
//
// Nothing is copied that can be computed: indexes, timers, the counters of queues, and the next
// sequences of workspaces come from the tasks that are kept. So damage there costs nothing.
//
//	salvage.go   the order of the steps; the copy of all sound records
//	broken.go    what the damaged records mean
//	task.go      which tasks are kept, and their index entries
//	rest.go      workspaces, queues, identity and clock; records whose tasks are gone
//	item.go      what is said about all this
//
// Decision 0044 says what else was considered.
package salvage
