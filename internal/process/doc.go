// Package process runs a program as a child of this process, and leaves nothing of it behind.
//
// The child leads its own process group, in a session without a terminal. When it has ended, the
// processes that it leaves in its group are killed, and reaped if this process inherits them. On
// Linux, the child is also killed when this process itself dies.
package process
