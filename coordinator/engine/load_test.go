package engine

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/memstore"
)

// openGolden opens the golden store.
func openGolden(t *testing.T) store.Store {
	t.Helper()
	dir := t.TempDir()
	unpack(t, format10, filepath.Join(dir, "lessor.db"))
	golden, err := boltstore.OpenReadOnly(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = golden.Close() })
	return golden
}

// copyWith returns a copy of a store with the records for which keep returns true.
func copyWith(t *testing.T, of store.Store, keep func(ks store.Keyspace, key []byte) bool) store.Store {
	t.Helper()
	var b store.Batch
	err := of.View(func(r store.Reader) error {
		for ks := range store.Keyspace(store.NumKeyspaces) {
			err := r.Scan(ks, nil, nil, func(key, value []byte) bool {
				if keep(ks, key) {
					b.Put(ks, bytes.Clone(key), bytes.Clone(value))
				}
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	st := memstore.New()
	if err := errors.Join(err, st.Commit(t.Context(), &b)); err != nil {
		t.Fatal(err)
	}
	return st
}

// If a workspace is missing, whatever refers to it is a corrupt record, and the engine does not
// start.
func TestMissingWorkspaceIsCorruption(t *testing.T) {
	golden := openGolden(t)
	for _, kept := range [][]store.Keyspace{
		{store.Settings}, {store.Queue}, {store.Ready, store.Spec}, {store.Parked, store.Spec}, {store.Lease, store.Task, store.Spec},
	} {
		t.Run(fmt.Sprint(kept[0]), func(t *testing.T) {
			st := copyWith(t, golden, func(ks store.Keyspace, _ []byte) bool {
				return ks == store.Meta ||
					slices.Contains(kept, ks)
			})
			corrupt := new(store.CorruptError)
			if _, err := Open(st, Config{}); !errors.As(err, &corrupt) || corrupt.Keyspace != store.Queue {
				t.Errorf("Open = %v, want a CorruptError of a queue", err)
			}
		})
	}
}

// A store that was served and has no identity or no clock is not served with new ones, whatever
// happens to its leases.
func TestMissingMetaIsCorruption(t *testing.T) {
	golden := openGolden(t)
	for _, lost := range []string{store.MetaIdentity, store.MetaClock} {
		for _, recovery := range []Recovery{KeepLeases, InvalidateLeases, RestoredStore} {
			st := copyWith(t, golden, func(ks store.Keyspace, key []byte) bool { return ks != store.Meta || string(key) != lost })
			corrupt := new(store.CorruptError)
			if _, err := Open(st, Config{Recovery: recovery}); !errors.As(err, &corrupt) || string(corrupt.Key) != lost {
				t.Errorf("without %s, and with recovery %v: Open = %v, want a CorruptError of that record", lost, recovery, err)
			}
		}
	}
}
