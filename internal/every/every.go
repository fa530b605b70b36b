// Package every does something again and again.
package every

import (
	"sync"
	"time"
)

// Interval calls do once in each interval until stop is called, which waits for a call under way.
func Interval(interval time.Duration, do func()) (stop func()) {
	ended := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for {
			select {
			case <-ended:
				return
			case <-tick.C:
				do()
			}
		}
	})
	return func() {
		close(ended)
		running.Wait()
	}
}
