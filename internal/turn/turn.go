// Package turn lets work that takes long give up the processor often, so that others need not wait for it: Go's scheduler would let each goroutine compute for
// 10 ms (docs/decisions/0031-long-calls-yield.md).
package turn

import "runtime"

// Counter counts the pieces of one such work. It is for one goroutine.
type Counter int

// Every counts a piece, and gives up the processor after every n of them. n must be positive; so many pieces should take some dozens of microseconds.
func (c *Counter) Every(n int) {
	if *c++; int(*c)%n == 0 {
		runtime.Gosched()
	}
}
