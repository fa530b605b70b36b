package gate

import (
	"context"
	"sync"
	"time"
)

// vigil ends calls under way when their credential is revoked or expires (X3). Each call has a timer for the time at which its credential ends
// by itself. After every change of the credentials, and after a jump of the wall clock, all calls are checked again.
type vigil struct {
	recheck func(Identity) (time.Time, error)

	mu    sync.Mutex
	calls map[*watched]struct{}
}

// watched is a call under way.
type watched struct {
	who Identity
	end context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

func newVigil(recheck func(Identity) (time.Time, error)) *vigil {
	return &vigil{recheck: recheck, calls: map[*watched]struct{}{}}
}

// watch returns a context that is canceled when the credential ends, with an *auth.Error as its cause. done must be called at the end of the
// call.
func (v *vigil) watch(ctx context.Context, who Identity) (ends context.Context, done func()) {
	if who.Until.IsZero() { // nothing was shown, so nothing can end
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &watched{who: who, end: cancel}
	v.mu.Lock()
	v.calls[w] = struct{}{}
	v.mu.Unlock()
	v.look(w) // the credential may have ended since it was checked
	return ctx, func() {
		v.mu.Lock()
		delete(v.calls, w)
		v.mu.Unlock()
		w.stop()
		cancel(nil)
	}
}

// look checks the credential of a call again: it ends the call if the credential is not good any more, else it sets the timer.
func (v *vigil) look(w *watched) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, err := v.recheck(w.who)
	switch {
	case err != nil:
		w.end(err)
	case w.over:
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(until), func() { v.look(w) })
	default:
		w.timer.Reset(time.Until(until))
	}
}

func (w *watched) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// Timers run on the monotonic clock, but credentials end by the wall clock. So the timers miss a jump of the wall clock and a sleep of the
// machine.
const (
	jumpLook = time.Second
	jumpSize = time.Second / 2
)

// start checks all calls again whenever the wall clock has jumped. stop ends this, and returns when it has ended.
func (v *vigil) start(wall func() time.Time) (stop func()) {
	end, ended := make(chan struct{}), make(chan struct{})
	begin := time.Now()
	ahead := func() time.Duration { return wall().Round(0).Sub(begin.Round(0)) - time.Since(begin) } // Round takes the monotonic clock off
	go func() {
		defer close(ended)
		next := time.NewTicker(jumpLook)
		defer next.Stop()
		for last := ahead(); ; {
			select {
			case <-end:
				return
			case <-next.C:
			}
			if now := ahead(); (now - last).Abs() > jumpSize {
				last = now
				v.changed()
			}
		}
	}()
	return func() { close(end); <-ended }
}

// changed checks all calls again. Once it has returned, no handler gets a message of a call whose credential had ended before.
func (v *vigil) changed() {
	v.mu.Lock()
	all := make([]*watched, 0, len(v.calls))
	for w := range v.calls {
		all = append(all, w)
	}
	v.mu.Unlock()
	for _, w := range all {
		v.look(w)
	}
}
