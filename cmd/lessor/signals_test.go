package main

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

// The first signal asks for an orderly stop, a second one stops at once. The same signal twice within duplicateWindow counts once, because timeout(1)
// sends it to the process and to its group.
func TestSignals(t *testing.T) {
	type sent struct {
		after  time.Duration
		signal syscall.Signal
	}
	for name, c := range map[string]struct {
		sent []sent
		hard bool
	}{
		"one":                    {[]sent{{0, syscall.SIGTERM}}, false},
		"one that comes twice":   {[]sent{{0, syscall.SIGTERM}, {duplicateWindow - 1, syscall.SIGTERM}}, false},
		"the same again":         {[]sent{{0, syscall.SIGTERM}, {duplicateWindow, syscall.SIGTERM}}, true},
		"twice, and again":       {[]sent{{0, syscall.SIGINT}, {0, syscall.SIGINT}, {duplicateWindow, syscall.SIGINT}}, true},
		"another one, right now": {[]sent{{0, syscall.SIGHUP}, {0, syscall.SIGTERM}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				soft, stop := context.WithCancelCause(t.Context())
				hard, kill := context.WithCancelCause(t.Context())
				received, done := make(chan os.Signal), make(chan struct{})
				go handleSignals(received, done, stop, kill)
				for _, s := range c.sent {
					time.Sleep(s.after)
					received <- s.signal
				}
				synctest.Wait()
				if soft.Err() == nil || (hard.Err() != nil) != c.hard {
					t.Errorf("orderly stop: %v, stop at once: %v, want an orderly stop and at once: %t", context.Cause(soft), context.Cause(hard), c.hard)
				}
				close(done)
			})
		})
	}
}
