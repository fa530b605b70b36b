package resource

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// A timer that Touch did not stop in time closes nothing. A resource whose TTL is over cannot be
// leased even if its timer has not fired yet, and its ID is free. OnError gets the error of a Close
// function for which no caller waits.
func TestTimerAtTheWrongMoment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		failure := errors.New("stuck")
		var onErrorGot []error
		r := New(Config{OnError: func(_ string, err error) { onErrorGot = append(onErrorGot, err) }})
		register := func() *entry {
			t.Helper()
			if _, err := r.Register(Resource{ID: "a", TTL: time.Minute, Close: func() error { return failure }}); err != nil {
				t.Fatal(err)
			}
			return r.mu.entries["a"]
		}
		first := register()
		r.expire(first)
		if r.Len() != 1 {
			t.Error("a timer that fired before the end of the TTL closed the resource")
		}
		first.stopTimer()
		time.Sleep(time.Minute)
		if _, err := r.Lease("a"); !errors.Is(err, ErrNotFound) {
			t.Errorf("Lease after the TTL, before the timer fires = %v, want %v", err, ErrNotFound)
		}
		register()
		if len(onErrorGot) != 1 || !errors.Is(onErrorGot[0], failure) {
			t.Errorf("after the ID was registered again: OnError got %v, want %v once", onErrorGot, failure)
		}
		r.expire(first)
		if r.Len() != 1 {
			t.Error("the timer of the first resource closed the second one")
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(onErrorGot) != 2 || !errors.Is(onErrorGot[1], failure) {
			t.Errorf("after the second TTL: OnError got %v, want %v twice", onErrorGot, failure)
		}
	})
}
