// Command seeded shows that the tests notice the mistakes that they are for. One after the other it
// puts mistakes of a single line into the code, by an overlay that leaves the files as they are,
// and expects that the test named for the mistake fails:
//
//	go run ./test/seeded
//
// Each mistake is a file of testdata. It is an error if its line is no longer in the code, or if
// the changed code does not compile. A test notices the former, and that the table of
// docs/testing/seeded.md lacks a mistake, without trying them.
package main
