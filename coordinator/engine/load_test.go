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

// If a workspace is missing, whatever refers to it is a corrupt record, and the engine does not start.
func TestMissingWorkspaceIsCorruption(t *testing.T) {
	dir := t.TempDir()
	unpack(t, format7, filepath.Join(dir, "lessor.db"))
	golden, err := boltstore.OpenReadOnly(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = golden.Close() }()
	for _, kept := range [][]store.Keyspace{
		{store.Settings}, {store.Queue}, {store.Ready, store.Spec}, {store.Parked, store.Spec}, {store.Lease, store.Task, store.Spec},
	} {
		t.Run(fmt.Sprint(kept[0]), func(t *testing.T) {
			var b store.Batch
			err := golden.View(func(r store.Reader) error {
				for _, ks := range slices.Concat(kept, []store.Keyspace{store.Meta}) {
					if err := r.Scan(ks, nil, nil, func(key, value []byte) bool { b.Put(ks, bytes.Clone(key), bytes.Clone(value)); return true }); err != nil {
						return err
					}
				}
				return nil
			})
			st := memstore.New()
			if err := errors.Join(err, st.Commit(t.Context(), &b)); err != nil {
				t.Fatal(err)
			}
			corrupt := new(store.CorruptError)
			if _, err := Open(st, Config{}); !errors.As(err, &corrupt) || corrupt.Keyspace != store.Queue {
				t.Errorf("Open = %v, want a CorruptError of a queue", err)
			}
		})
	}
}
