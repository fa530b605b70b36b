// Package crash kills a coordinator with SIGKILL while clients work with it, again and again on one
// data directory, and compares what is there afterwards with what had been acknowledged.
//
// The book (book_test.go) is in the memory of the test. It holds everything that a client was told,
// and each call that got no answer. After each kill the same directory is served again; then
//
//   - each call without an answer is repeated, and its answer entered in the book: either answer is
//     right, but it must not change later;
//   - each task that was touched since the last kill, and a sample of all others, is compared with
//     the book; at the end all are.
//
// SIGKILL loses what the process had in memory, not what it had written to the kernel. So TestKill
// checks the order (A6, A10: durable before told) and the recovery (A9). TestPowerCut runs the same
// load on a disk that loses its power, and so checks the syncs. TestWalk makes a single system call
// fail, or be the last one, and then the next.
package crash
