// Package test holds the tests of the whole system, with real processes, disks and connections. It
// also holds commands: rules reads which test checks which rule, seeded puts mistakes into the
// code, plots draws the results of benchmarks, and notices writes the licences of what is in the
// binary. Package draw is for the random tests of all packages.
//
// What takes longer than a few seconds is behind a build tag, so that `make test` stays quick:
// `faults` for everything that kills processes or loses connections (`make faults`), `long` for the
// rest (`make test-long`).
package test
