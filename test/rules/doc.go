// Command rules reads the output of `go test -json`, and prints which packages passed, and which
// tests checked which rules. It fails if a test failed, or if no test checked a rule of the
// required groups:
//
//	go test -json ./... | go run ./test/rules -require AHKPSTVWX docs/rules.md
//
// Without the document it only tells the results.
//
// A test declares the rules that it checks with t.Attr("rules", "A3 V10"). That counts if the test
// passed and no part of it was skipped.
package main
