// Package test holds the tests of the whole system: real processes, real disks, real connections; and the command rules, which reads the
// results of all tests, and plots, which draws those of benchmarks.
//
// What takes longer than a few seconds is behind a build tag, so that `make test` stays quick: `faults` for everything that
// kills processes or loses connections (`make faults`), `long` for the rest (`make test-long`).
package test
