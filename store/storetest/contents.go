package storetest

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// testOrder: of several changes to one key in a batch, the last one wins. Deleting a key that is
// not there is no error.
func (be Backend) testOrder(t *testing.T) {
	s := be.New(t)
	put(t, s, store.Task, "stale", "1")
	commit(t, s, func(b *store.Batch) {
		b.Put(store.Task, []byte("b"), []byte("1"))
		b.Put(store.Task, []byte("a"), []byte("1"))
		b.Put(store.Task, []byte("b"), []byte("2"))
		b.Put(store.Task, []byte("gone"), []byte("1"))
		b.Delete(store.Task, []byte("gone"))
		b.Delete(store.Task, []byte("back"))
		b.Put(store.Task, []byte("back"), []byte("1"))
		b.Delete(store.Task, []byte("stale"))
		b.Delete(store.Task, []byte("never there"))
	})
	if got, want := scan(t, s, store.Task, nil, nil), "a=1 b=2 back=1 "; got != want {
		t.Errorf("after the batch: %q, want %q", got, want)
	}
	commit(t, s, func(*store.Batch) {}) // an empty batch is no error
}

// testEmpty: a key with an empty value exists, and differs from a key that is absent.
func (be Backend) testEmpty(t *testing.T) {
	s := be.New(t)
	wantAbsent(t, s, store.Ready, "k")
	put(t, s, store.Ready, "k", "")
	wantValue(t, s, store.Ready, "k", "")
	wantAbsent(t, s, store.Ready, "kk")
	if got := scan(t, s, store.Ready, nil, nil); got != "k= " {
		t.Errorf("scan = %q, want %q", got, "k= ")
	}
}

// testScan: Scan visits the keys in [from, to) in the order of their bytes, ScanBack in reverse
// order; both stop when their function returns false.
func (be Backend) testScan(t *testing.T) {
	s := be.New(t)
	if got := scan(t, s, store.Ready, nil, nil); got != "" {
		t.Errorf("scan of an empty store = %q, want nothing", got)
	}
	commit(t, s, func(b *store.Batch) {
		for _, key := range []string{"b", "a", "\xff\xff", "ab", "\x00", "c"} {
			b.Put(store.Ready, []byte(key), nil)
		}
	})
	tests := []struct {
		from, to []byte
		want     string
	}{
		{nil, nil, "\x00= a= ab= b= c= \xff\xff= "},
		{[]byte("a"), []byte("b"), "a= ab= "},
		{[]byte("a\x00"), []byte("b\x00"), "ab= b= "},
		{[]byte("bb"), nil, "c= \xff\xff= "},
		{nil, []byte("a"), "\x00= "},
		{[]byte("b"), []byte("a"), ""},
		{[]byte("a"), []byte{}, ""},
		{[]byte("\xff\xff\xff"), nil, ""},
		{[]byte("a"), store.PrefixEnd([]byte("a")), "a= ab= "},
	}
	for _, tt := range tests {
		if got := scan(t, s, store.Ready, tt.from, tt.to); got != tt.want {
			t.Errorf("scan [%q, %q) = %q, want %q", tt.from, tt.to, got, tt.want)
		}
	}
	view(t, s, func(r store.Reader) {
		for name, s := range scans(r) {
			visited := 0
			_ = s(store.Ready, nil, nil, func(_, _ []byte) bool { visited++; return visited < 2 })
			if visited != 2 {
				t.Errorf("a %s that was told to stop at the second key visited %d keys, want 2", name, visited)
			}
		}
	})
}

// testNested: the function of a scan may read with the same Reader, also in the same keyspace,
// without moving the scan that called it.
func (be Backend) testNested(t *testing.T) {
	s := be.New(t)
	const keys = 300 // on several pages
	commit(t, s, func(b *store.Batch) {
		for i := range keys {
			b.Put(store.Lease, fmt.Appendf(nil, "%03d", i), nil)
			b.Put(store.Task, fmt.Appendf(nil, "%03d", i), bytes.Repeat([]byte("v"), 100))
		}
	})
	view(t, s, func(r store.Reader) {
		for name, outer := range scans(r) {
			visited := 0
			err := outer(store.Lease, nil, nil, func(key, _ []byte) bool {
				next := visited
				if name == "ScanBack" {
					next = keys - 1 - visited
				}
				if want := fmt.Sprintf("%03d", next); string(key) != want {
					t.Errorf("the %s visits %q, want %q", name, key, want)
				}
				visited++
				last := []byte("299")
				var inner bytes.Buffer
				scanInto(t, &inner, r, store.Lease, last, nil)
				if r.Get(store.Task, key) == nil || r.Get(store.Lease, last) == nil || inner.String() != "299= " {
					t.Errorf("a read at key %q misses records; the inner scan read %q", key, inner.String())
				}
				return !t.Failed()
			})
			if err != nil || visited != keys {
				t.Errorf("the %s visited %d keys (%v), want %d", name, visited, err, keys)
			}
		}
	})
}

// testKeyspaces: the same key in two keyspaces is two records.
func (be Backend) testKeyspaces(t *testing.T) {
	s := be.New(t)
	commit(t, s, func(b *store.Batch) {
		for ks := range store.Keyspace(store.NumKeyspaces) {
			b.Put(ks, []byte("k"), []byte(ks.String()))
		}
	})
	for ks := range store.Keyspace(store.NumKeyspaces) {
		wantValue(t, s, ks, "k", ks.String())
	}
	commit(t, s, func(b *store.Batch) { b.Delete(store.Task, []byte("k")) })
	wantAbsent(t, s, store.Task, "k")
	wantValue(t, s, store.Spec, "k", "spec")
}

// testOwnership: the caller may use its buffers again after Put, and the batch again after Commit.
// The engine does both: it builds the next batch in the memory of one that was committed.
func (be Backend) testOwnership(t *testing.T) {
	s := be.New(t)
	key, value := []byte("key"), bytes.Repeat([]byte("v"), 5000)
	want := string(value)
	var b store.Batch
	b.Put(store.Spec, key, value)
	copy(key, "xxx")
	copy(value, "xxx")
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, store.Spec, "key", want)

	b.Reset()
	// overwrites the first value in the memory of the batch
	b.Put(store.Spec, []byte("yyy"), bytes.Repeat([]byte("w"), 5000))
	wantValue(t, s, store.Spec, "key", want)
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	wantValue(t, s, store.Spec, "key", want)
}
