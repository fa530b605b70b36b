// Package crash kills a coordinator with SIGKILL while clients work with it, again and again on one data directory, and
// compares what comes back with what had been acknowledged.
//
// The book (book_test.go) is the witness: it lies in the memory of the test and holds everything that a client was told, and
// everything that a client asked without getting an answer. After each kill the same directory is served again; then
//
//   - each question without an answer is asked again, and its answer entered: it may be yes or no, but stays so from there on;
//   - each task that was touched since the last kill, and a sample of all others, is compared with the book; in the end all are.
//
// SIGKILL loses what the process had in memory, not what it had handed to the kernel: that is about order (A6, A10: durable before told) and
// recovery (A9). The same load on a disk that loses its power is about syncs. The walk lets each call to the system be the last one, or fail.
package crash
