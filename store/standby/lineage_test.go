package standby

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// ours is the identity of the store that a standby has a copy of.
var ours = records.Identity{Epoch: 2, Key: []byte("our key")}

// wantKept tests that the standby ended with this error, and still has the copy that it had.
func (r *rig) wantKept(copied store.Store, want OtherStoreError, text string) {
	r.Helper()
	if synctest.Wait(); len(r.left) == 0 {
		r.Fatalf("the standby follows; it should have ended with %+v", want)
	}
	if got, ok := errors.AsType[*OtherStoreError](r.ended()); !ok || *got != want || !strings.Contains(got.Error(), text) {
		r.Errorf("the standby ended with %v, want %+v, which says %q", r.ended(), want, text)
	}
	if r.place.Complete() != copied {
		r.Error("the complete copy was replaced")
	}
}

// A coordinator that has lost its store, or serves another one, does not cost the standby its copy.
// The same is true of a copy of an older format, which the standby cannot follow with.
func TestOtherStore(t *testing.T) {
	others := []byte("another key")
	for _, tt := range []struct {
		name string
		next records.Identity
		want OtherStoreError
		text string
	}{
		{"another store", records.Identity{Epoch: 9, Key: others}, OtherStoreError{Have: 2, Got: 9}, "another store"},
		{"an empty store", records.Identity{Epoch: 1, Key: others}, OtherStoreError{Have: 2, Got: 1}, "another store"},
		{"the store before its first standby", records.Identity{Epoch: 2, Key: ours.Key}, OtherStoreError{Have: 2, Got: 2, Older: true}, "an older state"},
		{"the store in an older epoch", records.Identity{Epoch: 1, Key: ours.Key}, OtherStoreError{Have: 2, Got: 1, Older: true}, "an older store (epoch 1)"},
		{"the store of then, in a later epoch", records.Identity{Epoch: 3, Key: ours.Key}, OtherStoreError{Have: 2, Got: 3, Older: true}, "promoted or restored (epoch 3)"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			for _, older := range []bool{false, true} {
				inBubble(t, Options{}, func(r *rig) {
					r.commit(func(b *store.Batch) { records.PutIdentity(b, ours) })
					r.connect()
					r.wantEqual()
					_ = r.disconnect()
					if older {
						r.place.older, r.place.complete = r.place.complete, nil
					}
					old := r.place.Complete()
					r.mem = memstore.New()
					r.open()
					r.commit(func(b *store.Batch) { records.PutIdentity(b, tt.next) })
					r.connect()
					r.wantKept(old, tt.want, tt.text)
				})
			}
		})
	}
}

// past is a coordinator with a standby, and each state that its store had.
type past struct {
	*rig
	states []*memstore.Store
}

// serve commits so many times.
func (p *past) serve(commits int) {
	p.Helper()
	for range commits {
		p.put(store.Task, "a", fmt.Sprint(len(p.states)))
		p.states = append(p.states, p.copyOf(p.mem))
	}
}

func (r *rig) copyOf(st *memstore.Store) *memstore.Store {
	r.Helper()
	var image bytes.Buffer
	_, err := st.Snapshot(&image)
	if err == nil {
		st, err = memstore.Restore(&image)
	}
	if err != nil {
		r.Fatal(err)
	}
	return st
}

// takeBack is a crash, with which so many of the last commits are lost, and a start.
func (p *past) takeBack(commits int) {
	p.Helper()
	if p.cut != nil {
		_ = p.disconnect()
	}
	p.states = p.states[:len(p.states)-commits]
	p.mem = p.copyOf(p.states[len(p.states)-1])
	p.open()
}

// promote is takeBack, by a promotion or a restore of an older state.
func (p *past) promote(commits int) {
	p.Helper()
	p.takeBack(commits)
	var b store.Batch
	err := p.mem.View(func(reader store.Reader) error {
		_, err := records.MakeIndependent(&b, reader, lease.Wall(0))
		return err
	})
	if err == nil {
		err = p.mem.Commit(p.Context(), &b)
	}
	if err != nil {
		p.Fatal(err)
	}
	p.states = append(p.states, p.copyOf(p.mem))
	p.open()
}

// A coordinator whose store lacks commits of a standby's copy does not cost the standby that copy:
// it serves an older image of its disk, or a backup, or the copy of another standby that had less
// was promoted. That is so however often it has started or was promoted since, and for however long
// it has served. A loss of power may take back one commit, of which nobody was told; of one that a
// promotion lacks, somebody may have been told.
func TestOlderState(t *testing.T) {
	again := func(p *past) { p.serve(3); p.takeBack(0) }
	for _, tt := range []struct {
		name  string
		since func(p *past) // what happens to the store after the standby has 5 commits of it
		lacks uint64        // of the copy, as the error says
		text  string        // of the error; "": the copy is replaced
	}{
		{"a crash", func(p *past) { p.takeBack(0) }, 0, ""},
		{"one commit is taken back", func(p *past) { p.takeBack(1) }, 0, ""},
		{"and then more runs begin", func(p *past) { p.takeBack(1); again(p); again(p) }, 0, ""},
		{"two commits are lost", func(p *past) { p.takeBack(2) }, 1, "an older state"},
		{"and then more runs begin", func(p *past) { p.takeBack(2); again(p); again(p) }, 1, "an older state"},
		{"a promotion of the same state", func(p *past) { p.promote(0) }, 0, ""},
		{"a promotion of a later state", func(p *past) { _ = p.disconnect(); p.serve(3); p.promote(1) }, 0, ""},
		{"and then another one", func(p *past) { _ = p.disconnect(); p.serve(3); p.promote(1); again(p); p.promote(1) }, 0, ""},
		{"after a crash", func(p *past) { p.takeBack(1); again(p); p.promote(1) }, 0, ""},
		{"a promotion without one commit", func(p *past) { p.promote(1) }, 1, "promoted or restored (epoch 3)"},
		{"and then more runs begin", func(p *past) { p.promote(1); again(p); again(p) }, 1, "promoted or restored (epoch 3)"},
		{"and then another one", func(p *past) { p.promote(4); again(p); p.promote(1) }, 4, "promoted or restored (epoch 4)"},
		{"a restore of what was before", func(p *past) { p.promote(5) }, 5, "promoted or restored (epoch 3)"},
		{"an image of before a run whose commits the standby has", func(p *past) {
			p.takeBack(0)
			p.connect()
			p.serve(2)
			p.wantEqual()
			p.takeBack(3)
		}, 0, "an older state"},
		{"a promotion of such an image", func(p *past) {
			p.takeBack(0)
			p.connect()
			p.serve(1)
			p.wantEqual()
			p.promote(1)
		}, 0, "promoted or restored (epoch 3)"},
		{"more runs than are remembered", func(p *past) {
			for range 257 {
				again(p)
			}
		}, 0, "an older state"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, Options{}, func(r *rig) {
				p := &past{rig: r}
				p.commit(func(b *store.Batch) { records.PutIdentity(b, ours) })
				p.connect()
				p.states = append(p.states, p.copyOf(p.mem))
				p.serve(5)
				p.wantEqual()
				tt.since(p)
				old := p.place.Complete()
				p.serve(1)
				p.connect()
				if tt.text == "" {
					p.wantEqual()
					return
				}
				identity := ours
				_ = p.mem.View(func(reader store.Reader) (err error) {
					identity, _, err = records.ReadIdentity(reader)
					return err
				})
				p.wantKept(old, OtherStoreError{Have: 2, Got: identity.Epoch, Older: true, Lacks: tt.lacks}, tt.text)
			})
		})
	}
}

// The newest commit may be on a standby and not yet durable on the coordinator. A new copy that
// lacks it is no older state: the commit comes next.
func TestNewestCommitIsOnItsWay(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.commit(func(b *store.Batch) { records.PutIdentity(b, ours) })
		r.connect()
		r.wantEqual()
		r.slowDown(time.Second)
		go r.put(store.Task, "a", "1")
		synctest.Wait()
		_ = r.disconnect()
		r.place.older, r.place.complete = r.place.complete, nil // so that it gets a new copy
		r.connect()
		time.Sleep(2 * time.Second)
		r.wantEqual()
	})
}

// A standby follows only when a commit of the run is durable: if a loss of power could take back
// the first one, nothing would tell of the run.
func TestFirstCommitOfARunIsNotTakenBack(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		r.connect()
		r.wantEqual()
		r.restart()
		r.slowDown(time.Second)
		go r.put(store.Task, "a", "1")
		synctest.Wait()
		began := time.Now()
		r.connect()
		if took := time.Since(began); took != time.Second {
			t.Errorf("the standby followed after %v, want it to wait for the commit, 1s", took)
		}
		r.wantEqual()
	})
}

// A standby that keeps its copy says so before the whole store was sent to it: it may be started
// again and again.
func TestOlderStateIsNoticedEarly(t *testing.T) {
	inBubble(t, Options{}, func(r *rig) {
		p := &past{rig: r}
		p.commit(func(b *store.Batch) { records.PutIdentity(b, ours) })
		p.put(store.Task, "large", strings.Repeat("x", pieceBytes))
		p.connect()
		p.states = append(p.states, p.copyOf(p.mem))
		p.serve(5)
		p.wantEqual()
		p.promote(1)
		old := p.place.Complete()
		p.line = time.Millisecond
		p.connect()
		time.Sleep(time.Second)
		p.wantKept(old, OtherStoreError{Have: 2, Got: 3, Older: true, Lacks: 1}, "an older state")
		if sent := p.newest.Load().Status().Sent; sent > pieceBytes {
			t.Errorf("%d bytes were sent before, want less than a piece", sent)
		}
	})
}
