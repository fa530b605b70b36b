// Package await waits for calls that may never return: of code that belongs to somebody else, or of
// a read or write that cannot be interrupted.
package await

import (
	"context"
	"time"
)

// Return calls f in another goroutine and waits until it has returned. If ctx ends, it waits only
// for grace longer. It returns false if f may still run; nobody may read then what f writes.
func Return(ctx context.Context, grace time.Duration, f func()) bool {
	returned := make(chan struct{})
	go func() {
		f()
		close(returned) // not if f calls runtime.Goexit, since it has no result then
	}()
	select {
	case <-returned:
		return true
	case <-ctx.Done():
	}
	timer := time.NewTimer(grace)
	defer timer.Stop()
	select {
	case <-returned:
		return true
	case <-timer.C:
		return false
	}
}
