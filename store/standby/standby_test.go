package standby

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/storetest"
)

// A feed is a store like any other, before and after commits are numbered.
func TestFeedIsAStore(t *testing.T) {
	t.Run("not numbered", func(t *testing.T) { testFeedIsAStore(t, memstore.New) })
	t.Run("numbered", func(t *testing.T) {
		testFeedIsAStore(t, func() *memstore.Store {
			st := memstore.New()
			f, err := NewFeed(st, Options{})
			if err != nil {
				t.Fatal(err)
			}
			fl, err := f.Attach(t.Context(), "s", "instance")
			if err != nil {
				t.Fatal(err)
			}
			fl.Close()
			return st.Reopen()
		})
	})
}

func testFeedIsAStore(t *testing.T, newStore func() *memstore.Store) {
	feedOf := func(t *testing.T, st store.Store) store.Store {
		f, err := NewFeed(st, Options{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Close() })
		return f
	}
	storetest.Run(t, storetest.Backend{
		New: func(t *testing.T) store.Store { return feedOf(t, newStore()) },
		Reopen: func(t *testing.T, s store.Store) store.Store {
			return feedOf(t, s.(*Feed).Store.(*memstore.Store).Reopen())
		},
		Second: func(t *testing.T, s store.Store) (store.Store, error) {
			return feedOf(t, s.(*Feed).Store.(*memstore.Store).Reopen()), nil
		},
		Restore: func(t *testing.T, snapshot []byte) store.Store {
			st, err := memstore.Restore(strings.NewReader(string(snapshot)))
			if err != nil {
				t.Fatal(err)
			}
			return feedOf(t, st)
		},
	})
}

// A standby gets what there was before it came, and each commit from then on.
func TestStandbyFollows(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.put(store.Task, "before", "1")
		r.connect()
		r.wantEqual()
		r.put(store.Task, "after", "2")
		r.commit(func(b *store.Batch) { b.Delete(store.Task, []byte("before")) })
		r.wantEqual()
		if s := r.status(); !s.Complete || s.Commits != 0 || s.Behind != 0 {
			t.Errorf("the standby is %+v, want it complete and not behind", s)
		}
	})
}

// Commits that are made while the store is being copied change what was copied and what was not
// yet. The copy counts as complete only when it is.
func TestCopyWhileCommitting(t *testing.T) {
	for range 2 {
		seed := rand.Uint64()
		inBubble(t, Options{Check: 7 * time.Millisecond}, func(r *rig) {
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			big := strings.Repeat("x", 50_000)
			for i := range 20 {
				r.put(store.Task, string(rune('a'+i%26))+big[:i], big)
			}
			r.put(store.TimerLog, "z", "the last record of all")
			r.place.slow, r.line = 10*time.Millisecond, 2*time.Millisecond
			r.place.replaced = func(st store.Store) {
				_ = st.View(func(reader store.Reader) error {
					if reader.Get(store.TimerLog, []byte("z")) == nil {
						t.Error("a copy counts as complete that lacks the last record")
					}
					return nil
				})
			}
			r.slowDown(5 * time.Millisecond)
			r.connect()
			for range 50 {
				r.commit(func(b *store.Batch) { randomChanges(rnd, b) })
				r.commit(func(b *store.Batch) {
					b.Put(store.Task, []byte(string(rune('a'+rnd.IntN(26)))+big[:rnd.IntN(100)]), nil)
				})
				time.Sleep(time.Duration(rnd.IntN(5)) * time.Millisecond)
			}
			time.Sleep(time.Minute)
			r.wantEqual()
			if r.place.begun() != 1 {
				t.Errorf("%d copies were begun, want 1", r.place.begun())
			}
		})
	}
}

// However often the line is cut and the coordinator starts anew, the standby ends up equal, and
// resumes without a new copy.
func TestRandomCuts(t *testing.T) {
	for range 50 {
		seed := rand.Uint64()
		inBubble(t, Options{}, func(r *rig) {
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			r.connect()
			r.wantEqual()
			for range 40 {
				switch rnd.IntN(6) {
				case 0:
					_ = r.disconnect()
					for range rnd.IntN(5) {
						r.commit(func(b *store.Batch) { randomChanges(rnd, b) })
					}
					r.connect()
				case 1:
					synctest.Wait() // until the standby has resumed
					r.feed.Settle(r.Context())
					r.restart()
					for range rnd.IntN(3) {
						r.commit(func(b *store.Batch) { randomChanges(rnd, b) })
					}
					r.connect()
				case 2:
					synctest.Wait()
				default:
					r.commit(func(b *store.Batch) { randomChanges(rnd, b) })
				}
			}
			r.wantEqual()
			if r.place.begun() != 1 {
				t.Errorf("%d copies were begun, want 1", r.place.begun())
			}
		})
	}
}

// A copy whose line is cut goes on where it was, with the commits that were made meanwhile.
func TestCopyGoesOnAfterACut(t *testing.T) {
	for range 5 {
		seed := rand.Uint64()
		inBubble(t, Options{}, func(r *rig) {
			t.Logf("seed %d", seed)
			rnd := rand.New(rand.NewPCG(seed, 0))
			big := strings.Repeat("x", 60_000)
			for i := range 40 {
				r.put([]store.Keyspace{store.Spec, store.Task, store.Ready}[i%3], "k"+strconv.Itoa(i), big)
			}
			r.line = 10 * time.Millisecond
			cuts := 0
			for r.connect(); r.place.Complete() == nil && cuts < 100; cuts++ {
				time.Sleep(time.Duration(30+rnd.IntN(50)) * time.Millisecond)
				_ = r.disconnect()
				for range rnd.IntN(5) {
					r.commit(func(b *store.Batch) { randomChanges(rnd, b) })
				}
				r.connect()
			}
			time.Sleep(time.Second)
			r.wantEqual()
			if r.place.begun() != 1 || cuts < 2 {
				t.Errorf("%d copies were begun, with %d cuts, want 1, with at least 2", r.place.begun(), cuts)
			}
		})
	}
}

// A copy that was begun is of no use when the commits since then are no longer kept, when the
// coordinator has crashed, or when another program has changed the store: it begins anew.
func TestCopyBeginsAnew(t *testing.T) {
	big := strings.Repeat("x", 100_000)
	for _, tt := range []struct {
		name     string
		while    func(r *rig) // what happens while the line is cut
		diverges bool         // the copy goes on first, and is found to differ
	}{
		{"too many commits", func(r *rig) {
			for i := range 20 {
				r.put(store.Task, strconv.Itoa(i), big)
			}
		}, false},
		{"a crash", func(r *rig) {
			r.put(store.Task, "missed", "1")
			r.mem = r.mem.Reopen()
			r.open()
		}, false},
		{"another program, behind the copy", func(r *rig) {
			r.mem = r.mem.Reopen()
			r.write(store.Spec, "k", "changed")
			r.open()
		}, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Options{Buffer: 1 << 20}, func(r *rig) {
				r.put(store.Spec, "k", "1")
				for i := range 20 {
					r.put(store.Task, strconv.Itoa(i), big)
				}
				r.line = 10 * time.Millisecond
				r.connect()
				time.Sleep(75 * time.Millisecond)
				_ = r.disconnect()
				if start, err := r.replica.Start(); err != nil || start.Copied == nil || start.Copied.Keyspace != store.Task {
					t.Fatalf("the standby has %+v (%v), want a part of the copy", start, err)
				}
				tt.while(r)
				r.connect()
				begun := 2
				if tt.diverges {
					if err := r.ended(); !errors.As(err, new(*DivergedError)) {
						t.Fatalf("the standby ended with %v, want a DivergedError", err)
					}
					_ = r.disconnect()
				} else {
					time.Sleep(5 * time.Millisecond)
					_ = r.disconnect()
					if start, err := r.replica.Start(); err != nil || start != (Start{}) {
						t.Errorf("the standby has %+v (%v), want nothing: the first piece of the new copy has not come yet", start, err)
					}
					begun++
				}
				r.connect()
				time.Sleep(time.Second)
				r.wantEqual()
				if r.place.begun() != begun {
					t.Errorf("%d copies were begun, want %d", r.place.begun(), begun)
				}
			})
		})
	}
}

// A crash of the coordinator before the standby has everything costs a copy, since the commits that
// it lacks are no longer kept.
func TestCrashOfTheCoordinatorLosesWhatWasKept(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		r.wantEqual()
		_ = r.disconnect()
		r.put(store.Task, "missed", "1")
		r.mem = r.mem.Reopen()
		r.open()
		r.connect()
		r.wantEqual()
		if r.place.begun() != 2 {
			t.Errorf("%d copies were begun, want 2", r.place.begun())
		}
	})
}

// What another program changes while no coordinator serves leaves the position as it was, and is
// found by the checksums.
func TestChangesOfAnotherProgramAreFound(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		r.put(store.Task, "a", "1")
		r.wantEqual()
		_ = r.disconnect()
		r.mem = r.mem.Reopen()
		r.write(store.Token, "t", "made while the coordinator was stopped")
		r.open()
		r.connect()
		err := r.ended()
		if diverged, ok := errors.AsType[*DivergedError](err); !ok || diverged.Keyspace != store.Token {
			t.Fatalf("the standby ended with %v, want a DivergedError of %v", err, store.Token)
		}
		_ = r.disconnect()
		r.connect()
		r.wantEqual()
	})
}

// A standby that lags by more than the buffer is cut off, keeps its complete copy, and gets a new
// one.
func TestTooFarBehind(t *testing.T) {
	inBubble(t, Options{Buffer: 1000}, func(r *rig) {
		r.connect()
		r.put(store.Task, "a", "1")
		r.wantEqual()
		_ = r.disconnect()
		for range 100 {
			r.put(store.Task, "a", strings.Repeat("x", 100))
		}
		old := r.place.Complete()
		r.place.slow = time.Second
		r.connect()
		synctest.Wait()
		if r.place.Complete() != old || r.place.begun() != 2 {
			t.Errorf("while the second copy is under way, %d copies were begun, and the first one is still there: %v",
				r.place.begun(), r.place.Complete() == old)
		}
		time.Sleep(time.Minute)
		r.wantEqual()
	})
}

// A standby that takes in nothing while much is committed ends with ErrBehind.
func TestSlowStandbyIsCutOff(t *testing.T) {
	inBubble(t, Options{Buffer: 1000}, func(r *rig) {
		fl, err := r.feed.Attach(r.Context(), "slow", "instance")
		if err != nil {
			t.Fatal(err)
		}
		defer fl.Close()
		stuck := make(chan struct{})
		left := make(chan error, 1)
		go func() { left <- fl.Run(r.Context(), Start{}, stuckSink{stuck}) }()
		synctest.Wait()
		for range 100 {
			r.put(store.Task, "a", strings.Repeat("x", 100))
		}
		close(stuck)
		if err := <-left; !errors.Is(err, ErrBehind) {
			t.Errorf("Run ended with %v, want %v", err, ErrBehind)
		}
	})
}

// stuckSink takes nothing until it is released.
type stuckSink struct{ released chan struct{} }

func (stuckSink) Begin(Begin) error        { return nil }
func (stuckSink) Changes([]store.Op) error { return nil }
func (s stuckSink) Mark(Mark) error        { <-s.released; return nil }

// Commits are kept for a while after the last standby has left, and not longer.
func TestKeptForAWhile(t *testing.T) {
	for hold, copies := range map[time.Duration]int{time.Minute - time.Second: 1, time.Minute + time.Second: 2} {
		inBubble(t, Options{Hold: time.Minute}, func(r *rig) {
			r.connect()
			r.wantEqual()
			_ = r.disconnect()
			r.put(store.Task, "a", "1")
			time.Sleep(hold)
			r.put(store.Task, "b", "1")
			r.connect()
			r.wantEqual()
			if r.place.begun() != copies {
				t.Errorf("%v after it had left, %d copies were begun, want %d", hold, r.place.begun(), copies)
			}
		})
	}
}

// Two that follow under one name would hide each other: the first one stays. But a standby that has
// lost its line may come back before that is noticed.
func TestReplaced(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		r.wantEqual()
		if _, err := r.feed.Attach(r.Context(), "s", "another one"); !errors.Is(err, ErrNameTaken) {
			t.Errorf("another standby with the name gets %v, want %v", err, ErrNameTaken)
		}
		second, err := r.feed.Attach(r.Context(), "s", "instance")
		if err != nil {
			t.Fatal(err)
		}
		defer second.Close()
		if err := r.ended(); !errors.Is(err, ErrReplaced) {
			t.Errorf("the first one ended with %v, want %v", err, ErrReplaced)
		}
		if n := len(r.feed.Standbys()); n != 1 {
			t.Errorf("%d standbys follow, want 1", n)
		}
	})
}

// A standby that does not acknowledge is behind, and says by how much.
func TestBehind(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		r.wantEqual()
		r.newest.Store(nil) // acknowledgements are lost from now on
		r.put(store.Task, "a", "1")
		time.Sleep(3 * time.Second)
		r.put(store.Task, "b", "1")
		if s := r.status(); s.Commits != 2 || s.Behind != 3*time.Second {
			t.Errorf("the standby is %d commits and %v behind, want 2 and 3s", s.Commits, s.Behind)
		}
		ctx, cancel := context.WithTimeout(r.Context(), time.Second)
		defer cancel()
		began := time.Now()
		r.feed.Settle(ctx)
		if took := time.Since(began); took != time.Second {
			t.Errorf("Settle returned after %v, want it to wait for the standby until its context ended, 1s", took)
		}
	})
}

// An unnumbered store stays as it is until a standby comes.
func TestNoPositionWithoutStandby(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.put(store.Task, "a", "1")
		err := r.mem.View(func(reader store.Reader) error {
			if reader.Get(store.Meta, []byte(store.MetaPosition)) != nil {
				t.Error("commits are numbered although no standby ever came")
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// commitTakes commits, and returns how long that took.
func (r *rig) commitTakes() time.Duration {
	r.Helper()
	began := time.Now()
	r.put(store.Task, "a", began.String())
	return time.Since(began)
}

// With Options.Wait, what was acknowledged while commits waited is on the standby. A standby that
// is away holds up one commit for that long, and no other until it has caught up.
func TestWait(t *testing.T) {
	var told []bool
	inBubble(t, Options{Wait: 2 * time.Second, OnWait: func(waits bool) { told = append(told, waits) }}, func(r *rig) {
		if took := r.commitTakes(); took != 0 {
			r.Errorf("without a standby a commit takes %v, want it not to wait", took)
		}
		r.place.slow = 100 * time.Millisecond
		r.connect()
		time.Sleep(time.Minute)
		r.wantEqual()
		for range 5 {
			if took := r.commitTakes(); took != r.place.slow {
				r.Errorf("a commit takes %v, want what the one of the standby takes, %v", took, r.place.slow)
			}
			r.wantEqualNow()
		}
		_ = r.disconnect()
		go func() {
			time.Sleep(time.Second)
			if took := r.commitTakes(); took != time.Second {
				r.Errorf("a commit that comes a second later takes %v, want it not to wait any longer than the first, 1s", took)
			}
		}()
		if took := r.commitTakes(); took != 2*time.Second {
			r.Errorf("when the standby is away, the first commit takes %v, want 2s", took)
		}
		synctest.Wait()
		if took := r.commitTakes(); took != 0 {
			r.Errorf("when the standby is away, the next commit takes %v, want 0", took)
		}
		if r.feed.Waits() {
			r.Error("commits still wait")
		}
		r.connect()
		time.Sleep(time.Second)
		if took := r.commitTakes(); took != r.place.slow {
			r.Errorf("when the standby is back, a commit takes %v, want %v", took, r.place.slow)
		}
		if want := []bool{true, false, true}; !slices.Equal(told, want) {
			r.Errorf("OnWait was told %v, want %v", told, want)
		}
	})
}

// While commits come without a pause, a standby is never quite up to date; commits begin to wait
// for it all the same.
func TestWaitBeginsUnderLoad(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.place.slow = 100 * time.Millisecond
		r.connect()
		for i := 0; !r.feed.Waits(); i++ {
			if i == 10_000 {
				r.Fatal("commits still do not wait")
			}
			r.put(store.Task, "a", strconv.Itoa(i))
			time.Sleep(time.Millisecond)
		}
		r.put(store.Task, "a", "last")
		r.wantEqualNow()
	})
}

// A standby that is being copied to holds up no commit.
func TestCopyHoldsUpNothing(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.place.slow = time.Second
		r.connect()
		synctest.Wait()
		took := r.commitTakes()
		synctest.Wait()
		if took != 0 || r.place.Complete() != nil {
			r.Errorf("while the store is being copied (complete: %v), a commit takes %v, want 0", r.place.Complete() != nil, took)
		}
	})
}

// A read shows nothing that a commit which waits for a standby has changed, before the standby has
// it.
func TestReadsWait(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.place.slow = 100 * time.Millisecond
		r.connect()
		time.Sleep(time.Minute)
		done := make(chan struct{})
		go func() {
			defer close(done)
			r.put(store.Task, "a", "new")
		}()
		synctest.Wait()
		began := time.Now()
		value := ""
		err := r.feed.View(func(reader store.Reader) error {
			value = string(reader.Get(store.Task, []byte("a")))
			return nil
		})
		if took := time.Since(began); err != nil || value != "new" || took != r.place.slow {
			r.Errorf("a read shows %q (%v) after %v, want %q after %v", value, err, took, "new", r.place.slow)
		}
		<-done
	})
}

// Commits are said to wait only when the standby has what did not wait, too.
func TestWaitsAreToldWhenAllIsSafe(t *testing.T) {
	var acknowledged atomic.Int64
	var replicated func() int64
	inBubble(t, Options{Wait: 10 * time.Second, OnWait: func(waits bool) {
		if has := replicated(); waits && has < acknowledged.Load() {
			t.Errorf("when commits are said to wait, the standby has commit %d, and %d was acknowledged",
				has, acknowledged.Load())
		}
	}}, func(r *rig) {
		replicated = func() (n int64) {
			_ = r.place.Complete().View(func(reader store.Reader) error {
				n, _ = strconv.ParseInt(string(reader.Get(store.Task, []byte("a"))), 10, 64)
				return nil
			})
			return n
		}
		r.place.slow = time.Second
		r.connect()
		for i := range int64(200) {
			r.put(store.Task, "a", strconv.FormatInt(i, 10))
			acknowledged.Store(i)
			time.Sleep(50 * time.Millisecond)
		}
		if !r.feed.Waits() {
			r.Error("commits are not said to wait")
		}
	})
}

// A standby that leaves while nothing is committed is missed after the time that a commit would
// have waited for it.
func TestStandbyIsMissedWithoutCommits(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.connect()
		r.wantEqual()
		_ = r.disconnect()
		time.Sleep(2*time.Second - time.Millisecond)
		if !r.feed.Waits() {
			r.Error("commits are said not to wait before the time is over")
		}
		time.Sleep(2 * time.Millisecond)
		if r.feed.Waits() {
			r.Error("commits are still said to wait")
		}
	})
}

// The time for which a standby is missed begins anew when it leaves again.
func TestStandbyThatLeavesOftenIsNotMissed(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.connect()
		r.wantEqual()
		for range 20 {
			_ = r.disconnect()
			time.Sleep(500 * time.Millisecond)
			if !r.feed.Waits() {
				r.Error("commits are said not to wait for a standby that left half a second ago")
			}
			r.connect()
			time.Sleep(100 * time.Millisecond)
		}
	})
}

// A standby that comes again before its older connection was missed, and gets a new copy, is missed
// like one that leaves: its old copy lacks what is acknowledged.
func TestStandbyThatComesAgainIsMissed(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.connect()
		r.wantEqual()
		again, err := r.feed.Attach(r.Context(), "s", "instance")
		if err != nil {
			r.Fatal(err)
		}
		defer again.Close()
		time.Sleep(2*time.Second + time.Millisecond)
		if r.feed.Waits() {
			r.Error("commits are said to wait for a standby, and none is complete")
		}
	})
}

// Another standby takes the place of one that has left only if it has what was acknowledged by
// then.
func TestStandbyIsMissedAlthoughASlowerOneFollows(t *testing.T) {
	for _, acks := range []bool{false, true} {
		inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
			slow, marks := r.follower("slow", records.Position{})
			r.ack(slow, last(marks))
			r.connect()
			r.put(store.Task, "a", "1")
			r.wantEqual()
			_ = r.disconnect()
			if acks {
				r.ack(slow, last(marks))
			}
			time.Sleep(2*time.Second + time.Millisecond)
			if r.feed.Waits() != acks {
				r.Errorf("commits are said to wait for a standby: %v, and the one that is left has everything: %v",
					r.feed.Waits(), acks)
			}
		})
	}
}

// A standby that goes on is complete only when its checksums have been compared.
func TestResumedStandbyIsCheckedFirst(t *testing.T) {
	inBubble(t, Options{Wait: time.Second}, func(r *rig) {
		r.connect()
		r.put(store.Task, "a", "1")
		r.wantEqual()
		_ = r.disconnect()
		r.mem = r.mem.Reopen()
		r.write(store.Token, "t", "made while the coordinator was stopped")
		r.open()
		r.put(store.Task, "b", "1")
		r.line = 100 * time.Millisecond
		r.connect()
		for range 500 {
			time.Sleep(time.Millisecond)
			if all := r.feed.Standbys(); len(all) > 0 && all[0].Complete {
				r.Fatal("a standby that lacks a record counts as complete")
			}
		}
		if err := r.ended(); !errors.As(err, new(*DivergedError)) {
			r.Errorf("the standby ended with %v, want a DivergedError", err)
		}
	})
}
