// Package examples and what is below it show how Lessor is used, with its public packages only. Each example is run by a
// test: `make examples`.
package examples
