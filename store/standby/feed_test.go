package standby

import (
	"errors"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// markSink takes everything, and is called with each mark.
type markSink func(Mark)

func (markSink) Begin(Begin) error        { return nil }
func (markSink) Changes([]store.Op) error { return nil }
func (s markSink) Mark(m Mark) error      { s(m); return nil }

// follower lets a standby follow that acknowledges nothing by itself. It returns the marks that it
// has got, of which the last may be read after synctest.Wait.
func (r *rig) follower(name string, from records.Position) (fl *Follower, marks *[]Mark) {
	r.Helper()
	fl, err := r.feed.Attach(r.Context(), name, "instance")
	if err != nil {
		r.Fatal(err)
	}
	r.Cleanup(fl.Close)
	marks = new([]Mark)
	go func() {
		_ = fl.Run(r.Context(), Start{At: from}, markSink(func(m Mark) { *marks = append(*marks, m) }))
	}()
	synctest.Wait()
	return fl, marks
}

func (r *rig) ack(fl *Follower, m Mark) {
	r.Helper()
	if err := fl.Ack(m.At); err != nil {
		r.Fatal(err)
	}
}

func last(marks *[]Mark) Mark { return (*marks)[len(*marks)-1] }

// Commits that come at the same time have one order, in the store and on the standby.
func TestConcurrentCommits(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		r.wantEqual()
		var writers sync.WaitGroup
		for i := range 200 {
			writers.Go(func() { r.put(store.Task, "a", strconv.Itoa(i)) })
		}
		writers.Wait()
		r.wantEqual()
	})
}

// Each commit is later than the one before, even at once, and even if the clock was set back: so
// whoever has two standbys sees which one has more.
func TestTimesOfCommitsRise(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		before := lease.WallOf(time.Now().Add(time.Hour))
		r.commit(func(b *store.Batch) { records.PutPosition(b, records.Position{Run: 1, Number: 1}, before) })
		r.mem = r.mem.Reopen()
		r.open()
		for range 3 {
			r.put(store.Task, "a", "1")
			_ = r.mem.View(func(reader store.Reader) error {
				_, at, err := records.PositionOf(reader)
				if err != nil || at < before+lease.Wall(time.Microsecond) {
					t.Errorf("the commit is of %v (%v), want later than %v, to the microsecond", at, err, before)
				}
				before = at
				return nil
			})
		}
	})
}

// A standby that lacks exactly what is kept goes on; one that lacks one commit more gets a copy,
// and so does one at a position that was never reached.
func TestWhatIsKept(t *testing.T) {
	inBubble(t, Options{Buffer: 1}, func(r *rig) { // only the newest commit, however large
		_, marks := r.follower("s", records.Position{})
		r.put(store.Task, "a", strings.Repeat("x", 1000))
		synctest.Wait()
		at := last(marks).At
		for back, copies := range map[uint64]bool{0: false, 1: false, 2: true, ^uint64(0): true} {
			_, marks := r.follower("of "+strconv.FormatUint(back, 10), records.Position{Run: at.Run, Number: at.Number - back})
			if got := !(*marks)[0].Complete && len(*marks) > 2; got != copies {
				t.Errorf("%d commits ago: it gets a copy: %v, want %v", back, got, copies)
			}
		}
	})
}

// While the store is copied, more may be committed than is kept.
func TestCopyOfMoreThanIsKept(t *testing.T) {
	inBubble(t, Options{Buffer: 4000}, func(r *rig) {
		for i := range 20 {
			r.put(store.Task, strconv.Itoa(i), strings.Repeat("x", pieceBytes))
		}
		r.line = 10 * time.Millisecond
		r.connect()
		for range 20 {
			r.put(store.Meta, "a", strings.Repeat("x", 1000))
			time.Sleep(50 * time.Millisecond)
		}
		time.Sleep(time.Second)
		r.wantEqual()
		if r.place.begun() != 1 {
			t.Errorf("%d copies were begun, want 1", r.place.begun())
		}
	})
}

// Two standbys that are the first ones may come while the commit is under way that is the first to
// have a number.
func TestFirstStandbys(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.slowDown(time.Second)
		go func() {
			fl, err := r.feed.Attach(r.Context(), "first", "instance")
			if err != nil {
				t.Error(err)
			}
			fl.Close()
		}()
		synctest.Wait()
		r.connect()
		time.Sleep(5 * time.Second)
		r.wantEqual()
	})
}

// A standby that has come again stays, although its older call ends later.
func TestOlderCallEndsLater(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		again, err := r.feed.Attach(r.Context(), "s", "instance")
		if err != nil {
			t.Fatal(err)
		}
		defer again.Close()
		_ = r.disconnect()
		if n := len(r.feed.Standbys()); n != 1 {
			t.Errorf("%d standbys follow, want 1", n)
		}
	})
}

// A standby is complete when it has acknowledged the first mark that says so, or a later one:
// nothing before that, not even the right position. What it acknowledges late does not take back
// what it has.
func TestComplete(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		fl, err := r.feed.Attach(r.Context(), "s", "instance")
		if err != nil {
			r.Fatal(err)
		}
		defer fl.Close()
		var marks []Mark
		go func() {
			_ = fl.Run(r.Context(), Start{}, markSink(func(m Mark) {
				if marks = append(marks, m); len(marks) > 1 {
					return
				}
				r.ack(fl, m)
				r.feed.mu.Lock()
				has := r.feed.has(m.At.Number)
				r.feed.mu.Unlock()
				if fl.Status().Complete || has {
					t.Error("a standby is complete that has acknowledged a part of a copy")
				}
				r.put(store.Task, "a", "1") // so that the copy is of a later state
			}))
		}()
		synctest.Wait()
		r.ack(fl, marks[0])
		if fl.Status().Complete {
			t.Error("a standby is complete that has acknowledged only a part of its copy")
		}
		beyond := last(&marks).At
		beyond.Number++
		if fl.Ack(beyond) == nil || fl.Status().Complete {
			t.Error("a standby can acknowledge what was never committed")
		}
		r.ack(fl, last(&marks))
		r.ack(fl, marks[0])
		if s := fl.Status(); !s.Complete || s.Acked != last(&marks).At {
			t.Errorf("the standby is %+v, want it complete at %v", s, last(&marks).At)
		}
		from := last(&marks).At
		fl.Close()
		r.mem = r.mem.Reopen()
		r.open()
		if again, _ := r.follower("s", from); again.Status().Complete {
			t.Error("a standby that goes on is complete before it has acknowledged anything")
		}
	})
}

// A standby cannot acknowledge a commit that it was not sent: a commit that waits for a standby
// would count as safe on one that does not have it.
func TestAckOfWhatWasNotSent(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		fl, err := r.feed.Attach(r.Context(), "s", "instance")
		if err != nil {
			r.Fatal(err)
		}
		defer fl.Close()
		var newest Mark
		slow := make(chan struct{})
		go func() {
			_ = fl.Run(r.Context(), Start{}, markSink(func(m Mark) {
				if newest = m; m.Complete {
					<-slow
				}
			}))
		}()
		synctest.Wait()
		r.ack(fl, newest)
		r.put(store.Task, "a", "1")
		ahead := newest.At
		ahead.Number++
		if fl.Ack(ahead) == nil || fl.Status().Acked != newest.At {
			t.Errorf("a standby that was sent commits up to %v can acknowledge %v", newest.At, ahead)
		}
		close(slow)
		synctest.Wait()
		if newest.At != ahead {
			t.Fatalf("the newest mark is at %v, want %v", newest.At, ahead)
		}
		r.ack(fl, newest)
	})
}

// Checksums are compared every few seconds, too, if something was committed meanwhile.
func TestSumsAreComparedAgain(t *testing.T) {
	inBubble(t, Options{Check: 10 * time.Second}, func(r *rig) {
		r.connect()
		r.wantEqual()
		var b store.Batch
		b.Put(store.Token, []byte("t"), []byte("from nowhere"))
		if err := r.place.Complete().Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		r.put(store.Task, "a", "1")
		time.Sleep(10*time.Second - time.Millisecond)
		if synctest.Wait(); len(r.feed.Standbys()) != 1 || len(r.left) != 0 {
			t.Error("the standby does not follow any more")
		}
		time.Sleep(time.Millisecond)
		if err := r.ended(); !errors.As(err, new(*DivergedError)) {
			t.Errorf("the standby ended with %v, want a DivergedError", err)
		}
	})
}

// A standby that is behind by more than is kept says how old the oldest commit is that is.
func TestBehindByMoreThanIsKept(t *testing.T) {
	inBubble(t, Options{Buffer: 1}, func(r *rig) {
		fl, marks := r.follower("s", records.Position{})
		r.ack(fl, last(marks))
		for range 3 {
			time.Sleep(time.Second)
			r.put(store.Task, "a", "1")
		}
		time.Sleep(time.Minute)
		if s := r.status(); s.Commits != 3 || s.Behind != time.Minute {
			t.Errorf("the standby is %d commits and %v behind, want 3 and 1m", s.Commits, s.Behind)
		}
	})
}

// What is in the store from before a start of the coordinator is read without a wait, although
// commits wait.
func TestReadsOfWhatWasThereDoNotWait(t *testing.T) {
	inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
		r.connect()
		for range 3 {
			r.put(store.Task, "a", "1")
		}
		r.wantEqual()
		r.restart()
		r.connect()
		synctest.Wait()
		began := time.Now()
		if err := r.feed.View(func(store.Reader) error { return nil }); err != nil || time.Since(began) != 0 || !r.feed.Waits() {
			t.Errorf("a read takes %v (%v), and commits wait: %v; want 0, and that they do",
				time.Since(began), err, r.feed.Waits())
		}
	})
}

// Commits do not begin to wait for a standby that is too slow for that, one that has left, nor once
// the coordinator stops. Without Options.Wait nothing waits.
func TestWhatDoesNotWait(t *testing.T) {
	t.Run("for a slow standby", func(t *testing.T) {
		inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
			r.place.slow = 3 * time.Second
			r.connect()
			for range 1000 {
				if took := r.commitTakes(); took != 0 {
					r.Fatalf("a commit takes %v, want 0", took)
				}
				time.Sleep(20 * time.Millisecond)
			}
		})
	})
	for name, prevent := range map[string]func(r *rig, fl *Follower){
		"for one that has left": func(_ *rig, fl *Follower) { fl.Close() },
		"during the stop":       func(r *rig, _ *Follower) { r.feed.GiveUp() },
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, Options{Wait: 2 * time.Second}, func(r *rig) {
				fl, marks := r.follower("s", records.Position{})
				prevent(r, fl)
				r.ack(fl, last(marks))
				if took := r.commitTakes(); took != 0 {
					r.Errorf("a commit takes %v, want 0", took)
				}
			})
		})
	}
	t.Run("without the option", func(t *testing.T) {
		inBubble(t, Options{OnWait: func(bool) { t.Error("OnWait was called") }}, func(r *rig) {
			r.connect()
			r.wantEqual()
			if took := r.commitTakes(); took != 0 || r.feed.Waits() {
				r.Errorf("a commit takes %v, and they are said to wait: %v", took, r.feed.Waits())
			}
			if err := errors.Join(r.disconnect()); err == nil {
				r.Error("Run has returned nil")
			}
		})
	})
}
