// Command rules reads the stream of `go test -json` and says which tests checked which rules. It fails if a test failed, and if a
// rule of the required groups was checked by none:
//
//	go test -json ./... | go run ./test/rules -require AVKTSW docs/rules.md
//
// A test declares the rules that it checks with t.Attr("rules", "A3 V10"). That counts if the test passed and nothing below it was
// skipped.
package main
