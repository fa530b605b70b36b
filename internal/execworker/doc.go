// Package execworker makes any program a worker: it runs one command for each task.
//
// The command gets the payload on standard input, or in its arguments, and the task in its
// environment (see environment). Its standard output is the output of the task. Its standard error
// is streamed as feedback. Its exit code determines the category of a failure, by the convention of
// sysexits.h (see categoryOfExit).
//
// Another command may install and remove packages (see Installer).
//
// Each command leads its own process group (see package process). When the task has to stop, the
// group gets SIGTERM, and SIGKILL if it has not ended in time.
//
//	execworker.go         the handler of a task: from the payload to the outcome
//	command.go            the program and its arguments
//	environ.go            its environment
//	exit.go               what its exit code means
//	capture.go spool.go   its output, in memory or in a file
//	lines.go tail.go      its standard error, for those who watch and for a failure
//	installer.go          packages
package execworker
