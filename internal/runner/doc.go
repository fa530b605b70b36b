// Package runner runs one command for every line of an input, durably: the main job of lessor run.
//
// A run has a data directory:
//
//	run.json   the manifest: command, options, digest of the input, name of the run
//	input      the lines, copied, so that they are read once and need not fit into memory
//	cursor     where in the stream of events to go on watching; only saves time
//	store/     the store of the embedded coordinator; not there when another coordinator is used
//	spool/     outputs that are too large for a report, and those of commands that failed
//	socket/    where the embedded coordinator listens
//	lock       held by the process that works on the run
//
// Every line is one task. Its idempotency key is made of the run and the line's number: so submitting a line again after a crash makes no
// second task, and equal lines are separate tasks. Only the coordinator knows which lines are done; the data directory only says which run
// to ask for.
//
// Memory does not grow with the input, except for one bit per line.
package runner
