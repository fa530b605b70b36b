package gate

import (
	"context"
	"crypto/x509"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/internal/every"
)

// activeCalls ends calls under way when their credential is revoked or expires (X3). Each call has
// a timer for the expiry of its credential. When credentials of a tenant may have ended,
// activeCalls checks the calls of that tenant again, and after a jump of the wall clock all calls.
type activeCalls struct {
	recheck func(Identity) (time.Time, error)

	mu    sync.Mutex
	calls map[*activeCall]struct{}
}

// activeCall is a call under way.
type activeCall struct {
	who Identity
	end context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	over  bool
}

func newActiveCalls(recheck func(Identity) (time.Time, error)) *activeCalls {
	return &activeCalls{recheck: recheck, calls: map[*activeCall]struct{}{}}
}

// track returns a context that is canceled when the credential ends, with an *auth.Error as its
// cause. done must be called at the end of the call.
func (a *activeCalls) track(ctx context.Context, who Identity) (ends context.Context, done func()) {
	if who.Until.IsZero() { // the caller has shown no credential that could end
		return ctx, func() {}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	w := &activeCall{who: who, end: cancel}
	a.mu.Lock()
	a.calls[w] = struct{}{}
	a.mu.Unlock()
	a.check(w) // the credential may have ended since it was checked
	return ctx, func() {
		a.mu.Lock()
		delete(a.calls, w)
		a.mu.Unlock()
		w.stop()
		cancel(nil)
	}
}

// check checks the credential of a call again. If the credential is no longer valid, check ends the
// call; otherwise it sets the call's timer.
func (a *activeCalls) check(w *activeCall) {
	w.mu.Lock()
	defer w.mu.Unlock()
	until, err := a.recheck(w.who)
	switch {
	case err != nil:
		w.end(err)
	case w.over:
	case w.timer == nil:
		w.timer = time.AfterFunc(time.Until(until), func() { a.check(w) })
	default:
		w.timer.Reset(time.Until(until))
	}
}

func (w *activeCall) stop() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.over = true
	if w.timer != nil {
		w.timer.Stop()
	}
}

// Timers run on the monotonic clock, but credentials expire by the wall clock. So a timer fires at
// the wrong time after a jump of the wall clock or a sleep of the machine.
const (
	jumpLook = time.Second
	jumpSize = time.Second / 2
)

// start begins to check all calls again whenever the wall clock has jumped. stop ends that.
func (a *activeCalls) start(wall func() time.Time) (stop func()) {
	begin := time.Now()
	// Round takes the monotonic clock off
	ahead := func() time.Duration { return wall().Round(0).Sub(begin.Round(0)) - time.Since(begin) }
	last := ahead()
	return every.Interval(jumpLook, func() {
		if now := ahead(); (now - last).Abs() > jumpSize {
			last = now
			a.recheckIf(func(Identity) bool { return true })
		}
	})
}

// firstEnd returns when the first of the credentials ends with which the calls under way came; the
// zero Time if there is none.
func (a *activeCalls) firstEnd() (first time.Time) {
	type shown struct {
		caller      quota.Caller
		certificate *x509.Certificate
	}
	all := map[shown]Identity{} // a credential may have thousands of calls
	a.mu.Lock()
	for w := range a.calls {
		all[shown{w.who.Caller(), w.who.certificate}] = w.who
	}
	a.mu.Unlock()
	for _, who := range all {
		if until, err := a.recheck(who); err == nil && (first.IsZero() || until.Before(first)) {
			first = until
		}
	}
	return first
}

// recheckOf checks all calls of a tenant again. After it has returned, no handler gets a message of
// a call whose credential had already ended.
func (a *activeCalls) recheckOf(tenant string) {
	a.recheckIf(func(who Identity) bool { return who.Tenant == tenant })
}

func (a *activeCalls) recheckIf(chosen func(Identity) bool) {
	a.mu.Lock()
	var all []*activeCall
	for w := range a.calls {
		if chosen(w.who) {
			all = append(all, w)
		}
	}
	a.mu.Unlock()
	for _, w := range all {
		a.check(w)
	}
}
