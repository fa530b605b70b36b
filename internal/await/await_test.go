package await

import (
	"context"
	"runtime"
	"testing"
	"testing/synctest"
	"time"
)

// The context of the calls ends after a minute, and they have a second more.
func TestReturn(t *testing.T) {
	for name, c := range map[string]struct {
		call     func()
		returned bool
		after    time.Duration
	}{
		"at once":       {func() {}, true, 0},
		"in time":       {func() { time.Sleep(time.Second) }, true, time.Second},
		"within grace":  {func() { time.Sleep(time.Minute + time.Second/2) }, true, time.Minute + time.Second/2},
		"after grace":   {func() { time.Sleep(time.Hour) }, false, time.Minute + time.Second},
		"with a Goexit": {runtime.Goexit, false, time.Minute + time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				began := time.Now()
				if returned := Return(ctx, time.Second, c.call); returned != c.returned || time.Since(began) != c.after {
					t.Errorf("%t after %v, want %t after %v", returned, time.Since(began), c.returned, c.after)
				}
				time.Sleep(time.Hour) // until every call has returned
			})
		})
	}
}
