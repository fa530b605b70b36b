// Command seeded shows that the tests notice what they are there for: it puts one mistake of a single line after another into the code, by
// an overlay that leaves the tree as it is, and wants the test that is named for it to fail:
//
//	go run ./test/seeded docs/testing.md
//
// Each mistake is a file of testdata. A mistake whose line is no longer in the code, or does not compile, is an error, and so is one that is
// not in the page's table; the error has the row.
package main
