package storetest

import (
	"bytes"
	"errors"
	"strconv"
	"sync"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

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
			t.Errorf("a view saw a later commit: %q", r.Get(store.Task, []byte("a")))
		}
		var entries bytes.Buffer
		if scanInto(t, &entries, r, store.Task, nil, nil); entries.String() != "a=old " {
			t.Errorf("a scan saw a later commit: %q", entries.String())
		}
	})
	if got := scan(t, s, store.Task, nil, nil); got != "a=new b=new " {
		t.Errorf("a later view: %q", got)
	}
}

// testAtomicity has each commit write its number in two keyspaces; readers may never see them differ or go back.
func (be Backend) testAtomicity(t *testing.T) {
	t.Attr("rules", "A6")
	const commits = 50
	s := be.New(t)
	var readers sync.WaitGroup
	stop := make(chan struct{})
	for range 2 {
		readers.Go(func() { watchPair(t, s, stop) })
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

func watchPair(t *testing.T, s store.Store, stop chan struct{}) {
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
				return errors.New("saw " + string(one) + " and " + string(two) + " after " + strconv.Itoa(last))
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

func (be Backend) testViewError(t *testing.T) {
	s := be.New(t)
	want := errors.New("mine")
	if err := s.View(func(store.Reader) error { return want }); !errors.Is(err, want) {
		t.Errorf("View = %v, want %v", err, want)
	}
}

func (be Backend) testReopen(t *testing.T) {
	t.Attr("rules", "A6")
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	put(t, s, store.Output, "big", string(bytes.Repeat([]byte("o"), 1<<20)))
	s = be.Reopen(t, s)
	put(t, s, store.Task, "b", "2")
	s = be.Reopen(t, s)
	if got := scan(t, s, store.Task, nil, nil); got != "a=1 b=2 " {
		t.Errorf("after reopening: %q", got)
	}
	wantValue(t, s, store.Output, "big", string(bytes.Repeat([]byte("o"), 1<<20)))
}

func (be Backend) testSnapshot(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "a", "1")
	put(t, s, store.Ready, "r", "")
	var snapshot bytes.Buffer
	n, err := s.Snapshot(&snapshot)
	if err != nil || n != int64(snapshot.Len()) {
		t.Fatalf("Snapshot = %d, %v; wrote %d bytes", n, err, snapshot.Len())
	}
	put(t, s, store.Task, "a", "2")

	restored := be.Restore(t, snapshot.Bytes())
	wantValue(t, restored, store.Task, "a", "1")
	wantValue(t, restored, store.Ready, "r", "")
	put(t, restored, store.Task, "b", "1")
	wantAbsent(t, s, store.Task, "b")

	if _, err := s.Snapshot(fullDisk{}); err == nil {
		t.Error("a snapshot that could not be written has no error")
	}
}

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errors.New("disk is full") }

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
		"View":     s.View(func(store.Reader) error { t.Error("a closed store called the view"); return nil }),
		"Snapshot": snapshotErr,
	} {
		if !errors.Is(err, store.ErrClosed) {
			t.Errorf("%s of a closed store = %v, want ErrClosed", call, err)
		}
	}
}
