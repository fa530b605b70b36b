// Package bench measures a coordinator and, in the same run, what the machine can do at most, so
// that every figure can be given as a share of a limit.
//
// A phase is one measurement on a coordinator of its own: a child process on an empty directory,
// with the defaults of lessor serve. Phases and limits take turns, repetition by repetition, so
// that a disturbance of the machine meets all of them. The load comes from this process and shares
// the processors with the coordinator.
//
// Every phase checks itself: as many tasks must have been acknowledged as were completed, and as
// the coordinator counts afterwards. Otherwise the run fails, because a figure could come from
// tasks that were lost quickly.
//
// Where things are:
//
//	config.go run.go       what to measure; phases and limits in turn
//	phases.go              the list of phases; what happens in them is in
//	                       latency.go, backlog.go, scattered.go, submit.go (submits) and workers.go (the workers)
//	limit_*.go             what the machine can do: the disk, the store, gRPC
//	rig.go coordinator.go  what a phase works with: a coordinator, as a child process or elsewhere, and connections
//	child_*.go             the child dies with its parent
//	patience.go            what has to be done although the run ends
//	span.go process.go     what a stretch of a phase costs: time, processor time, memory
//	flush_*.go             flushes of a file, and how many the disk has had
//	metrics.go stats.go    units; medians and ranges
//	report.go shares.go    the results, and their picture
//	profile.go             profiles, of one more run
package bench
