package boltstore_test

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/storetest"
)

// openStore is a store with its directory, which Reopen needs.
type openStore struct {
	*boltstore.Store
	dir string
}

func openIn(t *testing.T, dir string) store.Store {
	t.Helper()
	s, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return openStore{s, dir}
}

func TestStore(t *testing.T) {
	storetest.Run(t, storetest.Backend{
		New: func(t *testing.T) store.Store { return openIn(t, t.TempDir()) },
		Reopen: func(t *testing.T, s store.Store) store.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return openIn(t, s.(openStore).dir)
		},
		Second: func(_ *testing.T, s store.Store) (store.Store, error) {
			return boltstore.Open(s.(openStore).dir, boltstore.Options{LockTimeout: time.Millisecond})
		},
		Restore: func(t *testing.T, snapshot []byte) store.Store {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "lessor.db"), snapshot, 0o600); err != nil {
				t.Fatal(err)
			}
			return openIn(t, dir)
		},
	})
}

// Nobody knows whether a failed commit took effect, so the store refuses all later calls with the
// same error.
func TestFailedCommitFailsAllLaterCalls(t *testing.T) {
	dir := t.TempDir()
	s, err := boltstore.Open(dir, boltstore.Options{MaxBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var big, small store.Batch
	big.Put(store.Output, []byte("k"), make([]byte, 2<<20))
	small.Put(store.Task, []byte("k"), []byte("1"))

	first := s.Commit(t.Context(), &big)
	if failed := new(store.CommitError); !errors.As(first, &failed) {
		t.Fatalf("Commit beyond MaxBytes = %v, want a CommitError", first)
	}
	if again := s.Commit(t.Context(), &small); !errors.Is(again, first) {
		t.Errorf("the next Commit = %v, want %v", again, first)
	}
	if err := s.View(func(store.Reader) error { return nil }); !errors.Is(err, first) {
		t.Errorf("the next View = %v, want %v", err, first)
	}
}

// withOneMiB returns a store that has one value of 1 MiB, and a batch that deletes it.
func withOneMiB(t *testing.T) (*boltstore.Store, *store.Batch) {
	t.Helper()
	s, err := boltstore.Open(t.TempDir(), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	var b store.Batch
	b.Put(store.Output, []byte("k"), make([]byte, 1<<20))
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	b.Reset()
	b.Delete(store.Output, []byte("k"))
	return s, &b
}

// Stats returns the size of the file, and how many bytes of it are free and reusable.
func TestStats(t *testing.T) {
	s, deletion := withOneMiB(t)
	before := s.Stats()
	if err := s.Commit(t.Context(), deletion); err != nil {
		t.Fatal(err)
	}
	after := s.Stats()
	if before.FileBytes < 1<<20 {
		t.Errorf("with 1 MiB stored Stats = %+v, want at least 1 MiB in the file", before)
	}
	if freed := after.FreeBytes - before.FreeBytes; freed < 1<<20 {
		t.Errorf("after the delete %d bytes more are free, want at least 1 MiB", freed)
	}
	// The part of the file that was never written may have no space on the disk.
	if after.ReusableBytes < 1<<20 || after.ReusableBytes > 2<<20 {
		t.Errorf("after the delete Stats = %+v, want between 1 and 2 MiB reusable", after)
	}
	// The file grows in steps of 16 MiB. The part behind the last page that was ever written must
	// also count as free.
	if used := before.FileBytes - before.FreeBytes; used < 1<<20 || used > 2<<20 {
		t.Errorf("%d of %d bytes are in use, want between 1 and 2 MiB", used, before.FileBytes)
	}
}

// While a Snapshot is read, the pages that commits free are not reusable: these commits would make
// the file grow. Once it has ended, they are.
func TestStatsWhileASnapshotIsRead(t *testing.T) {
	s, deletion := withOneMiB(t)
	during := store.Stats{}
	_, err := s.Snapshot(writerFunc(func(p []byte) (int, error) {
		if during == (store.Stats{}) {
			if err := s.Commit(t.Context(), deletion); err != nil {
				return 0, err
			}
			during = s.Stats()
		}
		return len(p), nil
	}))
	if err != nil {
		t.Fatal(err)
	}
	if during.ReusableBytes >= 1<<20 || during.FreeBytes < 1<<20 {
		t.Errorf("during a Snapshot, after 1 MiB was deleted: Stats = %+v, want less than 1 MiB reusable, and more of it free", during)
	}
	if after := s.Stats(); after.ReusableBytes < 1<<20 {
		t.Errorf("after the Snapshot Stats = %+v, want at least 1 MiB reusable", after)
	}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }
