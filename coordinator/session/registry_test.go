package session

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strconv"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// W10: a drain of a stream that ends while the operator's call is under way is remembered like one
// of a stream that ends later: for an hour.
func TestDrainOfAStreamThatHasEnded(t *testing.T) {
	t.Attr("rules", "W10")
	for _, back := range []time.Duration{drainMemory, drainMemory + 1} {
		synctest.Test(t, func(t *testing.T) {
			r, id := NewRegistry(), "one-1"
			ended := &Session{id: id}
			r.add(ended)
			r.remove(ended)
			r.Drain([]*Session{ended}, &lessorv1.Drain{}, "ann")
			time.Sleep(back)
			if drained := r.add(&Session{id: id}) != nil; drained != (back <= drainMemory) {
				t.Errorf("after %v, the instance is drained: %v", back, drained)
			}
		})
	}
}

// W10: the drain of one instance leaves the drains of others alone, and forgets those that have
// expired, so that they do not fill the memory.
func TestDrainForgetsOnlyExpiredDrains(t *testing.T) {
	t.Attr("rules", "W10")
	synctest.Test(t, func(t *testing.T) {
		r, one := NewRegistry(), &Session{id: "one-1"}
		r.add(one)
		r.rememberDrain("", "one", &lessorv1.Drain{})
		r.rememberDrain("", "gone", &lessorv1.Drain{})
		r.remove(one)
		time.Sleep(drainMemory)
		r.rememberDrain("", "two", &lessorv1.Drain{})
		if r.add(one) == nil || r.add(&Session{id: "gone-1"}) == nil {
			t.Error("an hour after its stream has ended, an instance is not drained any more")
		}
		time.Sleep(drainMemory + 1) // "one" and "gone" have streams
		r.rememberDrain("", "three", &lessorv1.Drain{})
		for instance, want := range map[string]bool{"one": true, "gone": true, "two": false, "three": true} {
			if _, kept := r.drains.byInstance[instance]; kept != want {
				t.Errorf("the drain of instance %q is kept: %v, want %v", instance, kept, want)
			}
		}
	})
}

// W10: a drain holds for as long as a stream of its instance is open, however long that is, also if
// another stream of the instance ends meanwhile.
func TestDrainHoldsWhileAStreamIsOpen(t *testing.T) {
	t.Attr("rules", "W10")
	for _, another := range []bool{false, true} { // whether another stream of the instance ends after the drain
		synctest.Test(t, func(t *testing.T) {
			r, ends := NewRegistry(), &Session{id: "one-1"}
			r.add(&Session{id: "one-2"})
			if another {
				r.add(ends)
			}
			r.rememberDrain("", "one", &lessorv1.Drain{})
			r.remove(ends)
			time.Sleep(2 * drainMemory)
			if r.add(&Session{id: "one-3"}) == nil {
				t.Errorf("another stream has ended: %v: an instance with an open stream is not drained any more after %v", another, 2*drainMemory)
			}
		})
	}
}

// W10, X5: a tenant has a limited number of remembered drains of instances without a stream, apart
// from those of other tenants; the oldest are forgotten.
func TestLimitOfDrains(t *testing.T) {
	t.Attr("rules", "W10 X5")
	r := NewRegistry()
	open := &Session{id: "open-1", who: Caller{Identity: auth.Identity{Tenant: "acme"}}}
	r.add(open)
	r.rememberDrain("acme", "open", &lessorv1.Drain{})
	r.rememberDrain("other", "of another tenant", &lessorv1.Drain{})
	for i := range maxDrains + 1 {
		r.rememberDrain("acme", strconv.Itoa(i), &lessorv1.Drain{})
	}
	for instance, want := range map[string]bool{"open": true, "of another tenant": true, "0": false, "1": true, strconv.Itoa(maxDrains): true} {
		if kept := r.drainOf(instance) != nil; kept != want {
			t.Errorf("the drain of instance %q is kept: %v, want %v", instance, kept, want)
		}
	}
}

// onLog calls a function at each line of a log.
type onLog struct {
	slog.Handler
	call func()
}

// Handle implements slog.Handler.
func (h onLog) Handle(context.Context, slog.Record) error {
	h.call()
	return nil
}

// W10: if another operator takes back the drain of an instance before the call that drains its
// worker comes to it, no session of the instance drains: its next session would not either.
func TestDrainThatIsTakenBackMeanwhile(t *testing.T) {
	t.Attr("rules", "W10")
	r := NewRegistry()
	var all []*Session
	takeBack := sync.OnceFunc(func() { r.Drain(all[1:], nil, "ann") })
	for i, call := range []func(){takeBack, func() {}} {
		ss := &Session{
			id:   "instance" + strconv.Itoa(i) + "-1",
			view: view{info: &lessorv1.WorkerInfo{Name: "w"}, state: handshaking},
		}
		ss.health.limits = defaultThresholds()
		ss.log = slog.New(onLog{slog.NewTextHandler(io.Discard, nil), call})
		r.add(ss)
		all = append(all, ss)
	}
	r.Drain(all, &lessorv1.Drain{}, "ann")
	if first, second := all[0].operatorDrain(), all[1].operatorDrain(); first == nil || second != nil {
		t.Errorf("the drains are %v and %v, want one and none", first, second)
	}
}

// The sessions of a worker are listed by their ids, and those of other workers and tenants are not
// among them.
func TestNamedSessionsAreSorted(t *testing.T) {
	r := NewRegistry()
	for i := range 30 {
		ss := &Session{
			id: "one-" + strconv.Itoa(i), who: Caller{Identity: auth.Identity{Tenant: "acme"}},
			view: view{info: &lessorv1.WorkerInfo{Name: "w"}},
		}
		switch i % 3 {
		case 1:
			ss.who.Tenant = "other"
		case 2:
			ss.info.Name = "x"
		}
		r.add(ss)
	}
	all := r.Named("acme", "w", "")
	if len(all) != 10 || !slices.IsSortedFunc(all, func(a, b *Session) int { return cmp.Compare(a.id, b.id) }) {
		t.Errorf("%d sessions are listed, want 10 in the order of their ids", len(all))
	}
	if some := r.Named("acme", "w", "one-3"); len(some) != 1 || some[0].id != "one-3" {
		t.Errorf("%d sessions have the id one-3, want that one", len(some))
	}
}

// The sessions of members are found among all of the worker: each that is open, also if another
// session has the same id, and no other.
func TestSessionsOfMembers(t *testing.T) {
	r := NewRegistry()
	var members []*engine.Member
	for i := range 12 {
		m := &engine.Member{Session: fmt.Sprintf("%02d-1", i/2), Wants: engine.Wants{Worker: "w"}}
		ss := &Session{id: m.Session, member: m, view: view{info: &lessorv1.WorkerInfo{Name: "w"}}}
		switch i {
		case 5:
			ss.member = nil // it has not joined yet
		case 6:
			ss.info.Name = "x"
		}
		r.add(ss)
		if i == 7 {
			r.remove(ss)
		}
		if i < 10 && i%3 > 0 {
			members = append(members, m)
		}
	}
	var got []*engine.Member
	for _, ss := range r.OfMembers(members) {
		got = append(got, ss.member)
	}
	// 1, 2, 4, 8
	if want := []*engine.Member{members[0], members[1], members[2], members[5]}; !slices.Equal(got, want) {
		t.Errorf("%d sessions are found, want those of members 1, 2, 4 and 8", len(got))
	}
	if none := r.OfMembers(nil); len(none) != 0 {
		t.Errorf("%d sessions of no members", len(none))
	}
}

// BenchmarkOfMembers finds the sessions of many members of a worker. One operation is one of them.
// The cost must not rise with their number, as in BenchmarkDrain.
func BenchmarkOfMembers(b *testing.B) {
	for _, sessions := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("sessions=%d", sessions), func(b *testing.B) {
			r := NewRegistry()
			all := make([]*engine.Member, sessions)
			for i := range all {
				all[i] = &engine.Member{Session: fmt.Sprintf("instance%d-1", i), Wants: engine.Wants{Worker: "w"}}
				r.add(&Session{id: all[i].Session, member: all[i], view: view{info: &lessorv1.WorkerInfo{Name: "w"}}})
			}
			for left := b.N; left > 0; left -= sessions {
				r.OfMembers(all[:min(left, sessions)])
			}
		})
	}
}

// BenchmarkDrain drains a worker with many instances. One operation is one of them. The cost must
// not rise with their number: whoever drains a worker would keep all other workers from opening
// sessions.
func BenchmarkDrain(b *testing.B) {
	for _, instances := range []int{10, 10_000} {
		b.Run(fmt.Sprintf("instances=%d", instances), func(b *testing.B) {
			r := NewRegistry()
			all := make([]*Session, instances)
			for i := range all {
				all[i] = &Session{
					id:   fmt.Sprintf("instance%d-1", i),
					view: view{info: &lessorv1.WorkerInfo{Name: "w"}, state: handshaking},
				}
				all[i].health.limits = defaultThresholds()
				all[i].log = slog.New(slog.DiscardHandler)
				r.add(all[i])
			}
			for left := b.N; left > 0; left -= instances {
				r.Drain(all[:min(left, instances)], &lessorv1.Drain{}, "ann")
			}
		})
	}
}
