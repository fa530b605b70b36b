package storetest

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// testIsolation: a View sees one state, even if a commit ends while the View runs.
func (be Backend) testIsolation(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "a", "old")
	view(t, s, func(r store.Reader) {
		seen := r.Get(store.Task, []byte("a"))
		commit(t, s, func(b *store.Batch) {
			b.Put(store.Task, []byte("a"), []byte("new"))
			b.Put(store.Task, []byte("b"), []byte("new"))
		})
		if string(seen) != "old" || string(r.Get(store.Task, []byte("a"))) != "old" {
			t.Errorf("a view saw a later commit: it read %q, then %q; want %q both times",
				seen, r.Get(store.Task, []byte("a")), "old")
		}
		var entries bytes.Buffer
		if scanInto(t, &entries, r, store.Task, nil, nil); entries.String() != "a=old " {
			t.Errorf("a scan saw a later commit: it read %q, want %q", entries.String(), "a=old ")
		}
	})
	if got := scan(t, s, store.Task, nil, nil); got != "a=new b=new " {
		t.Errorf("a view after the commit read %q, want %q", got, "a=new b=new ")
	}
}

// testAtomicity checks A6 for readers: each commit writes its number to two keyspaces, and readers
// that run at the same time must never see two different numbers, or a number that is lower than
// one that they have seen.
func (be Backend) testAtomicity(t *testing.T) {
	t.Attr("rules", "A6")
	const commits = 50
	s := be.New(t)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() { watchBothNumbers(t, s, stop) })
	}
	for i := range commits {
		commit(t, s, func(b *store.Batch) {
			b.Put(store.Task, []byte("n"), []byte(strconv.Itoa(i)))
			b.Put(store.Lease, []byte("n"), []byte(strconv.Itoa(i)))
		})
	}
	close(stop)
	readers.Wait()
}

func watchBothNumbers(t *testing.T, s store.Store, stop chan struct{}) {
	for last := -1; ; {
		select {
		case <-stop:
			return
		default:
		}
		err := s.View(func(r store.Reader) error {
			one, two := r.Get(store.Task, []byte("n")), r.Get(store.Lease, []byte("n"))
			n, _ := strconv.Atoi(string(one)) // absent before the first commit
			if !bytes.Equal(one, two) || n < last {
				return errors.New("a reader saw numbers " + string(one) + " and " + string(two) + " after " + strconv.Itoa(last) + "; want them equal and not lower")
			}
			last = n
			return nil
		})
		if err != nil {
			t.Error(err)
			return
		}
	}
}

// testViewError: View returns the error of its function.
func (be Backend) testViewError(t *testing.T) {
	s := be.New(t)
	want := errors.New("mine")
	if err := s.View(func(store.Reader) error { return want }); !errors.Is(err, want) {
		t.Errorf("View = %v, want %v", err, want)
	}
}

// testReopen: committed records are still there after the store was closed and opened again (A6).
func (be Backend) testReopen(t *testing.T) {
	t.Attr("rules", "A6")
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	put(t, s, store.Output, "big", string(bytes.Repeat([]byte("o"), 1<<20)))
	s = be.Reopen(t, s)
	put(t, s, store.Task, "b", "2")
	s = be.Reopen(t, s)
	if got := scan(t, s, store.Task, nil, nil); got != "a=1 b=2 " {
		t.Errorf("after reopening: %q, want %q", got, "a=1 b=2 ")
	}
	wantValue(t, s, store.Output, "big", string(bytes.Repeat([]byte("o"), 1<<20)))
}

// testSnapshot: a snapshot holds the records that were committed before it. A store that is
// restored from it does not share changes with the first one.
func (be Backend) testSnapshot(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	put(t, s, store.Ready, "r", "")
	var snapshot bytes.Buffer
	n, err := s.Snapshot(&snapshot)
	if err != nil || n != int64(snapshot.Len()) {
		t.Fatalf("Snapshot = %d, %v; it wrote %d bytes, want that number and no error", n, err, snapshot.Len())
	}
	put(t, s, store.Task, "a", "2")

	restored := be.Restore(t, snapshot.Bytes())
	wantValue(t, restored, store.Task, "a", "1")
	wantValue(t, restored, store.Ready, "r", "")
	put(t, restored, store.Task, "b", "1")
	wantAbsent(t, s, store.Task, "b")

	if _, err := s.Snapshot(fullDisk{}); err == nil {
		t.Error("Snapshot to a full disk returns no error")
	}
}

// fullDisk refuses all writes.
type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

// testClosed: every call on a closed store returns ErrClosed, of a commit in steps at the latest
// Sync, and closing it again does nothing.
func (be Backend) testClosed(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatalf("Close: %v", err)
		}
	}
	var b store.Batch
	b.Put(store.Task, []byte("a"), []byte("2"))
	_, snapshotErr := s.Snapshot(new(bytes.Buffer))
	for call, err := range map[string]error{
		"Commit":   s.Commit(t.Context(), &b),
		"Begin":    inSteps(t.Context(), s, &b),
		"View":     s.View(func(store.Reader) error { t.Error("View of a closed store called its function"); return nil }),
		"Snapshot": snapshotErr,
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed store = %v, want ErrClosed", call, err)
		}
	}
}
