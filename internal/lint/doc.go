// Package lint holds the checks of this repository that no linter offers, as tests: which package
// may import which, which type of the engine may use which fields, that gen/ matches proto/, that
// the documents link to files and headings that exist and name tests that exist, that each
// dependency has its reason on record, that all compiles where CI does not run, and that no build
// output is committed.
//
// They read files and start nothing but `go list` and `git ls-files`, so that they belong to the
// quick tests. The pinned tools for everything else (golangci-lint, buf) have modfiles of their
// own, here and in proto/; see the Makefile.
package lint
