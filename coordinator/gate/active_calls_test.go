package gate

import (
	"context"
	"maps"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// X3: a call ends with its credential, even if the wall clock jumps ahead or the machine was
// asleep, so that a timer would fire too late. A call whose credential is still valid after the
// jump continues, and ends when the credential expires.
func TestCallsEndAfterAJumpOfTheClock(t *testing.T) {
	t.Attr("rules", "X3")
	synctest.Test(t, func(t *testing.T) {
		var ahead atomic.Int64
		wall := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		v := newActiveCalls(func(who Identity) (time.Time, error) {
			if !wall().Before(who.Until) {
				return who.Until, &auth.Error{Problem: auth.Expired}
			}
			return time.Now().Add(who.Until.Sub(wall())), nil // not time.Until, which uses the true clock
		})
		defer v.start(wall)()
		begin := time.Now()
		until := func(d time.Duration) context.Context {
			ctx, done := v.track(t.Context(), Identity{Identity: auth.Identity{Until: begin.Add(d)}})
			t.Cleanup(done)
			return ctx
		}
		soon, late := until(time.Hour), until(3*time.Hour)
		time.Sleep(10 * time.Minute)
		ahead.Store(int64(2 * time.Hour))
		time.Sleep(jumpLook)
		synctest.Wait()
		if auth.Ended(soon) == nil || late.Err() != nil {
			t.Errorf("after a jump by two hours, the calls have ended with %v and %v, want an end and none",
				context.Cause(soon), context.Cause(late))
		}
		time.Sleep(time.Until(begin.Add(time.Hour)))
		synctest.Wait()
		if auth.Ended(late) == nil {
			t.Error("the second call has not ended with its credential")
		}
	})
}

// X3: a call whose credential ends while the call begins is ended. After its end, a call leaves no
// timer and takes no memory.
func TestCallsThatBeginOrEnd(t *testing.T) {
	t.Attr("rules", "X3")
	var ended error
	v := newActiveCalls(func(who Identity) (time.Time, error) { return who.Until, ended })
	who := Identity{Identity: auth.Identity{Until: time.Now().Add(time.Hour)}}
	ctx, done := v.track(t.Context(), who)
	var one *activeCall
	for one = range v.calls {
	}
	done()
	v.check(one) // recheckIf may still have it
	if ctx.Err() == nil || len(v.calls) != 0 || one.timer.Stop() {
		t.Errorf("after its end: %v, %d calls, or its timer runs", ctx.Err(), len(v.calls))
	}
	ended = &auth.Error{Problem: auth.Revoked}
	ctx, done = v.track(t.Context(), who)
	defer done()
	if auth.Ended(ctx) == nil {
		t.Error("a call began with a credential that was revoked before")
	}
}

// X3, T12: when credentials of a tenant may have ended, the calls of that tenant are checked again,
// and not those of others: a tenant that ends credentials all the time must not cost the others
// anything.
func TestCallsOfOtherTenantsAreNotChecked(t *testing.T) {
	t.Attr("rules", "X3")
	checked := map[string]int{}
	v := newActiveCalls(func(who Identity) (time.Time, error) {
		checked[who.Tenant]++
		return who.Until, nil
	})
	for _, tenant := range []string{"acme", "other", "acme"} {
		_, done := v.track(t.Context(), Identity{Identity: auth.Identity{Tenant: tenant, Until: time.Now().Add(time.Hour)}})
		defer done()
	}
	clear(checked)
	v.recheckOf("acme")
	if !maps.Equal(checked, map[string]int{"acme": 2}) {
		t.Errorf("checked are the calls of %v, want both of acme", checked)
	}
}

// The first end is that of a call under way, and not that of a call that has ended, of a credential
// that has, or of somebody without one.
func TestFirstEnd(t *testing.T) {
	t.Attr("rules", "X3")
	begin := time.Now()
	revoked := map[string]bool{}
	v := newActiveCalls(func(who Identity) (time.Time, error) {
		if revoked[who.Credential] {
			return time.Time{}, &auth.Error{Problem: auth.Revoked}
		}
		return who.Until, nil
	})
	want := func(what string, in time.Duration) {
		t.Helper()
		switch first := v.firstEnd(); {
		case in == 0 && !first.IsZero(), in != 0 && !first.Equal(begin.Add(in)):
			t.Errorf("%s: the first end is %v, want %v after %v", what, first, in, begin)
		}
	}
	open := func(tenant, credential string, d time.Duration) (done func()) {
		_, done = v.track(t.Context(), Identity{Identity: auth.Identity{Tenant: tenant, Credential: credential, Until: begin.Add(d)}})
		t.Cleanup(done)
		return done
	}
	_, done := v.track(t.Context(), everyone)
	defer done()
	want("no credential", 0)
	open("a", "late", 5*time.Hour)
	open("b", "late", 4*time.Hour) // of another tenant
	want("two credentials", 4*time.Hour)
	one, another := open("a", "soon", time.Hour), open("a", "soon", time.Hour)
	one()
	want("a stream of the first is left", time.Hour)
	another()
	want("no stream of the first is left", 4*time.Hour)
	open("a", "soon", time.Hour)
	revoked["soon"] = true
	want("the first was revoked", 4*time.Hour)
}
