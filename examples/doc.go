// Package examples has programs that show how to use Lessor, only with its public packages. `make
// examples` runs each of them in a test.
package examples
