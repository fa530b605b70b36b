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
// Every line is one task. Its idempotency key consists of the run and the number of the line. So a
// line that is submitted again after a crash makes no second task, and equal lines are separate
// tasks. Only the coordinator knows which lines are done; the data directory only says which run to
// ask for.
//
// Memory does not grow with the input, except for one bit per line.
//
// Where things are:
//
//	job.go manifest.go input.go lock.go    the data directory
//	run.go                                 the parts of a run, from its start to its end
//	submit.go room.go                      lines become tasks, as far as the quota has room
//	again.go                               failed lines run again
//	before.go deleted.go                   what earlier processes have done, and what is gone of it
//	watch.go follow.go list.go             which lines have ended: by events, or by a list of all tasks
//	marks.go                               one bit for each line
//	print.go screen.go                     the outputs of the lines
//	tally.go bar.go                        the progress bar
//	retries.go                             notes on attempts that are made again
//	retry.go                               calls that are repeated while the coordinator is away
//	cancel.go                              the end of a run that nobody will resume
package runner
