// Package runner runs one command for every line of an input, durably: the main job of lessor run.
//
// A run has a data directory:
//
//	run.json   the manifest: command, options, digest of the input, name of the run
//	input      a copy of the lines: the input is read only once, and need not fit into memory
//	cursor     the event after which to continue watching; only saves time
//	store/     the store of the embedded coordinator; not there when another coordinator is used
//	spool/     outputs that are too large for a report, and those of commands that failed
//	socket/    where the embedded coordinator listens
//	lock       held by the process that works on the run
//
// Every line is one task. Its idempotency key consists of the run and the number of the line. So a line that is submitted again after a crash
// makes no second task, and equal lines are separate tasks. Only the coordinator knows which lines are done; the data directory only says which
// run to ask for.
//
// Memory does not grow with the input, except for one bit per line.
package runner
