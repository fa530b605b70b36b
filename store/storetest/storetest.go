// Package storetest is the test suite that every store.Store has to pass, and what tests of stored
// records share.
package storetest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// Backend is a kind of store under test.
type Backend struct {
	// New returns an empty store that is closed when the test ends.
	New func(t *testing.T) store.Store
	// Reopen closes s and returns the store as a new process finds it.
	Reopen func(t *testing.T, s store.Store) store.Store
	// Second opens s once more, as another process does while s is open, or returns why that is
	// refused.
	Second func(t *testing.T, s store.Store) (store.Store, error)
	// Restore returns a store that is made from what Snapshot wrote.
	Restore func(t *testing.T, snapshot []byte) store.Store
}

// Run runs the suite on stores of the backend.
func Run(t *testing.T, b Backend) {
	t.Run("changes apply in order", b.testOrder)
	t.Run("empty and absent values differ", b.testEmpty)
	t.Run("scans visit their range in order", b.testScan)
	t.Run("reads nest", b.testNested)
	t.Run("keyspaces do not mix", b.testKeyspaces)
	t.Run("batch owns its bytes", b.testOwnership)
	t.Run("view sees one state", b.testIsolation)
	t.Run("commit is atomic for readers", b.testAtomicity)
	t.Run("view returns the error of its function", b.testViewError)
	t.Run("batches of one commit apply together", b.testTogether)
	t.Run("rollback leaves nothing of a commit", b.testRollback)
	t.Run("commits overlap", b.testOverlap)
	t.Run("commit may be large", b.testLarge)
	t.Run("store has one owner", b.testOneOwner)
	t.Run("commits survive reopening", b.testReopen)
	t.Run("snapshot is a consistent copy", b.testSnapshot)
	t.Run("closed store refuses", b.testClosed)
	t.Run("random changes agree with a model", b.testModel)
}

func commit(t *testing.T, s store.Store, fill func(b *store.Batch)) {
	t.Helper()
	var b store.Batch
	fill(&b)
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatalf("Commit: %v", err)
	}
}

func put(t *testing.T, s store.Store, ks store.Keyspace, key, value string) {
	t.Helper()
	commit(t, s, func(b *store.Batch) { b.Put(ks, []byte(key), []byte(value)) })
}

func view(t *testing.T, s store.Store, fn func(r store.Reader)) {
	t.Helper()
	if err := s.View(func(r store.Reader) error { fn(r); return nil }); err != nil {
		t.Fatalf("View: %v", err)
	}
}

// get returns the value under key, and whether the key is there.
func get(t *testing.T, s store.Store, ks store.Keyspace, key string) (value string, found bool) {
	t.Helper()
	view(t, s, func(r store.Reader) {
		v := r.Get(ks, []byte(key))
		value, found = string(v), v != nil
	})
	return value, found
}

func wantValue(t *testing.T, s store.Store, ks store.Keyspace, key, want string) {
	t.Helper()
	if got, found := get(t, s, ks, key); !found || got != want {
		t.Errorf("%v %q = %q (found %v), want %q", ks, key, got, found, want)
	}
}

func wantAbsent(t *testing.T, s store.Store, ks store.Keyspace, key string) {
	t.Helper()
	if got, found := get(t, s, ks, key); found {
		t.Errorf("%v %q = %q, want it absent", ks, key, got)
	}
}

// scan returns "key=value " for each entry of the range.
func scan(t *testing.T, s store.Store, ks store.Keyspace, from, to []byte) string {
	t.Helper()
	var entries bytes.Buffer
	view(t, s, func(r store.Reader) { scanInto(t, &entries, r, ks, from, to) })
	return entries.String()
}

// scanInto scans a range, and checks that ScanBack visits the same entries the other way round.
func scanInto(t *testing.T, entries *bytes.Buffer, r store.Reader, ks store.Keyspace, from, to []byte) {
	t.Helper()
	var forth, back []string
	for name, s := range scans(r) {
		visited := &forth
		if name == "ScanBack" {
			visited = &back
		}
		err := s(ks, from, to, func(key, value []byte) bool {
			*visited = append(*visited, string(key)+"="+string(value)+" ")
			return true
		})
		if err != nil {
			t.Fatalf("%s %v: %v", name, ks, err)
		}
	}
	if slices.Reverse(back); !slices.Equal(back, forth) {
		t.Errorf("ScanBack %v [%q, %q) visits %q, from its end on, and Scan visits %q", ks, from, to, back, forth)
	}
	entries.WriteString(strings.Join(forth, ""))
}

// scans has both kinds of scan of a reader.
func scans(r store.Reader) map[string]func(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return map[string]func(store.Keyspace, []byte, []byte, func(key, value []byte) bool) error{
		"Scan":     r.Scan,
		"ScanBack": r.ScanBack,
	}
}
