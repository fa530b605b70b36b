// Package turn lets work that takes long give up the processor often, so that others need not wait
// for it: Go's scheduler would let each goroutine compute for 10 ms
// (docs/decisions/0031-long-calls-yield.md).
package turn

import (
	"context"
	"runtime"
)

// Counter counts the pieces of one such work. It is for one goroutine.
type Counter int

// Every counts a piece, and gives up the processor after every n of them. n must be positive; that
// many pieces should take some dozens of microseconds.
func (c *Counter) Every(n int) {
	if *c++; int(*c)%n == 0 {
		runtime.Gosched()
	}
}

// Places are for work that computes for milliseconds in one piece, such as in code that is not
// ours: that many goroutines do it at a time, and the others wait.
type Places chan struct{}

// NewPlaces returns places for at most half of the processors, and at least one.
func NewPlaces() Places { return make(Places, max(1, runtime.GOMAXPROCS(0)/2)) }

// Take waits for a place, which the caller must Give back, and returns nil; or it returns the cause
// if ctx ends before.
func (p Places) Take(ctx context.Context) error {
	select {
	case p <- struct{}{}:
		runtime.Gosched() // a place that was given back is taken over before goroutines run that have waited for longer
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// Give gives a place back.
func (p Places) Give() { <-p }
