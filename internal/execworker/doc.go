// Package execworker makes any program a worker: it runs one command for each task.
//
// The command gets the payload on standard input, or as arguments in place of {}, and the task in its environment (see environment). Its
// standard output is the output of the task. Its standard error is streamed as feedback. Its exit code determines the category of a failure, by
// the convention of sysexits.h (see categoryOfExit).
//
// Each command leads its own process group, in a session without a terminal. When the task has to stop, the group gets SIGTERM, and SIGKILL if it has
// not ended in time. When a command ends by itself, the processes that it leaves in its group are killed. On Linux, the command is also killed when
// the worker itself dies.
package execworker
