package storetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

func begin(t *testing.T, s store.Store) store.Tx {
	t.Helper()
	tx, err := s.Begin(t.Context())
	if err != nil {
		t.Fatalf("Begin: %v", err)
	}
	return tx
}

// batchOf returns a batch of changes, given as key, value, key, value ... An empty value deletes
// its key.
func batchOf(ks store.Keyspace, changes ...string) *store.Batch {
	b := new(store.Batch)
	for i := 0; i < len(changes); i += 2 {
		if changes[i+1] == "" {
			b.Delete(ks, []byte(changes[i]))
		} else {
			b.Put(ks, []byte(changes[i]), []byte(changes[i+1]))
		}
	}
	return b
}

func finish(t *testing.T, tx store.Tx) {
	t.Helper()
	if err := tx.Write(); err != nil {
		t.Fatalf("Write: %v", err)
	}
	if err := tx.Sync(); err != nil {
		t.Fatalf("Sync: %v", err)
	}
}

// inSteps does what Commit does.
func inSteps(ctx context.Context, s store.Store, b *store.Batch) error {
	tx, err := s.Begin(ctx)
	if err != nil {
		return err
	}
	tx.Apply(b)
	if err := tx.Write(); err != nil {
		return err
	}
	return tx.Sync()
}

// A6: the batches of one commit are applied in their order, and no View sees any of them before the
// commit. This must also hold if one batch deletes all keys of a keyspace with many pages and a
// later one adds a key: in such a bucket, Cursor.Last of bbolt never returns.
func (be Backend) testTogether(t *testing.T) {
	const many = 2000
	s := be.New(t)
	var fill, empty store.Batch
	for i := range many {
		fill.Put(store.Task, fmt.Appendf(nil, "k%06d", i), []byte("value"))
		empty.Delete(store.Task, fmt.Appendf(nil, "k%06d", i))
	}
	tx := begin(t, s)
	tx.Apply(&fill)
	tx.Apply(batchOf(store.Task, "a", "1", "b", "1"))
	tx.Apply(batchOf(store.Task, "a", "2", "b", "", "k000007", "other"))
	wantAbsent(t, s, store.Task, "a")
	finish(t, tx)
	wantValue(t, s, store.Task, "a", "2")
	wantAbsent(t, s, store.Task, "b")
	wantValue(t, s, store.Task, "k000007", "other")
	wantValue(t, s, store.Task, "k001999", "value")

	tx = begin(t, s)
	tx.Apply(&empty)
	tx.Apply(batchOf(store.Task, "a", ""))
	tx.Apply(batchOf(store.Task, "k000001", "again"))
	finish(t, tx)
	s = be.Reopen(t, s)
	wantValue(t, s, store.Task, "k000001", "again")
	wantAbsent(t, s, store.Task, "k001999")
	wantAbsent(t, s, store.Task, "a")
}

// A6: a rollback before Write leaves nothing of the commit, and the next commit works as usual.
func (be Backend) testRollback(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	tx := begin(t, s)
	tx.Apply(batchOf(store.Task, "a", "2", "b", "2"))
	tx.Rollback()
	wantValue(t, s, store.Task, "a", "1")
	put(t, s, store.Task, "c", "3")
	s = be.Reopen(t, s)
	wantValue(t, s, store.Task, "a", "1")
	wantAbsent(t, s, store.Task, "b")
	wantValue(t, s, store.Task, "c", "3")
}

// A6: a commit can begin when the one before it is written and not yet durable. It sees and
// replaces the changes of that commit.
func (be Backend) testOverlap(t *testing.T) {
	s := be.New(t)
	first := begin(t, s)
	first.Apply(batchOf(store.Task, "a", "1", "b", "1"))
	if err := first.Write(); err != nil {
		t.Fatal(err)
	}
	second := begin(t, s)
	second.Apply(batchOf(store.Task, "b", "2", "c", "2"))
	if err := first.Sync(); err != nil {
		t.Fatal(err)
	}
	wantAbsent(t, s, store.Task, "c")
	finish(t, second)
	s = be.Reopen(t, s)
	wantValue(t, s, store.Task, "a", "1")
	wantValue(t, s, store.Task, "b", "2")
	wantValue(t, s, store.Task, "c", "2")
}

// A6: a commit may have as many changes as the engine makes at once, more bytes than its cap, and
// keys and values that are long.
func (be Backend) testLarge(t *testing.T) {
	t.Attr("rules", "A6")
	const tasks, payloads, mib = 4000, 17, 1 << 20
	s := be.New(t)
	longest := strings.Repeat("k", 8<<10+64)
	commit(t, s, func(b *store.Batch) {
		for i := range tasks {
			for _, ks := range []store.Keyspace{store.Spec, store.Task, store.Ready} {
				b.Put(ks, fmt.Appendf(nil, "k%06d", i), []byte("value"))
			}
		}
		for i := range payloads {
			b.Put(store.Output, fmt.Appendf(nil, "k%06d", i), bytes.Repeat([]byte{byte(i)}, mib))
		}
		b.Put(store.Output, []byte("one"), bytes.Repeat([]byte("o"), 4*mib))
		b.Put(store.Space, []byte(longest), []byte("value"))
	})
	s = be.Reopen(t, s)
	wantValue(t, s, store.Space, longest, "value")
	view(t, s, func(r store.Reader) {
		for _, ks := range []store.Keyspace{store.Spec, store.Task, store.Ready} {
			records := 0
			if err := r.Scan(ks, nil, nil, func(_, _ []byte) bool { records++; return true }); err != nil ||
				records != tasks {
				t.Errorf("%v has %d records (%v), want %d", ks, records, err, tasks)
			}
		}
		for i := range payloads {
			if got := r.Get(store.Output, fmt.Appendf(nil, "k%06d", i)); !bytes.Equal(got, bytes.Repeat([]byte{byte(i)}, mib)) {
				t.Errorf("output %d has %d bytes, which are not those that were committed", i, len(got))
			}
		}
		if got := len(r.Get(store.Output, []byte("one"))); got != 4*mib {
			t.Errorf("the longest value has %d bytes, want %d", got, 4*mib)
		}
	})
}

// testOneOwner: either a store that is open cannot be opened by another process, or it can, and
// then commits of the first owner fail and change nothing, also one that has begun.
func (be Backend) testOneOwner(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	tx := begin(t, s)
	tx.Apply(batchOf(store.Task, "a", "2"))
	second, err := be.Second(t, s)
	if err != nil {
		finish(t, tx)
		wantValue(t, s, store.Task, "a", "2")
		return
	}
	failed := tx.Write()
	if failed == nil {
		failed = tx.Sync()
	}
	if !errors.As(failed, new(*store.CommitError)) && !errors.Is(failed, store.ErrClosed) {
		t.Errorf("a commit that had begun returned %v, want a CommitError or ErrClosed", failed)
	}
	if err := s.Commit(t.Context(), batchOf(store.Task, "a", "3")); !errors.Is(err, failed) {
		t.Errorf("the next commit of the first owner = %v, want %v", err, failed)
	}
	if err := s.View(func(store.Reader) error { return nil }); !errors.Is(err, failed) {
		t.Errorf("View of the first owner = %v, want %v", err, failed)
	}
	wantValue(t, second, store.Task, "a", "1")
	put(t, second, store.Task, "b", "1")
}
