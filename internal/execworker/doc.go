// Package execworker makes any program a worker: it runs one command for each task.
//
// The command gets the payload on standard input, or as arguments in place of {}, and the task in its environment (see
// environment). What it prints on standard output is the output of the task; standard error streams as feedback. Its
// exit code chooses the category of a failure by the convention of sysexits.h (see categoryOfExit).
//
// Each command leads a process group of its own. When the task has to stop, the group gets SIGTERM, and SIGKILL if it is
// still there when its time is over. What a command leaves behind in its group when it ends is killed. Where the
// operating system can do it (Linux), the command is also killed when the worker itself dies.
package execworker
