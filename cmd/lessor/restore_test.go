package main

import (
	"bytes"
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// A2, A11: if a backup is restored again before a second has passed, the second restore gets a
// later epoch. With the same epoch, the coordinator of the second store would give out the fencing
// tokens that the coordinator of the first one gave out.
func TestRestoresWithinASecondGetDifferentEpochs(t *testing.T) {
	t.Attr("rules", "A2 A11")
	synctest.Test(t, func(t *testing.T) {
		// the clock of a bubble begins in 2000, and the epochs of restores count from 2024
		time.Sleep(25 * 366 * 24 * time.Hour)
		st := memstore.New()
		var b store.Batch
		records.PutIdentity(&b, records.Identity{Epoch: 1, Key: []byte("secret")})
		var backup bytes.Buffer
		err := st.Commit(t.Context(), &b)
		if err == nil {
			_, err = st.Snapshot(&backup)
		}
		if err != nil {
			t.Fatal(err)
		}
		last := uint32(1)
		for range 3 {
			st, err := memstore.Restore(bytes.NewReader(backup.Bytes()))
			if err != nil {
				t.Fatal(err)
			}
			began := lease.WallOf(time.Now())
			epoch, err := beginEpoch(&app{ctx: t.Context()}, st)
			if err != nil {
				t.Fatal(err)
			}
			if want := lease.RestoredEpoch(1, began); epoch != want || epoch <= last {
				t.Errorf("the epoch is %d, want %d and more than %d", epoch, want, last)
			}
			last = epoch
		}
	})
}

// A2, A11: a restore is refused while the clock is before the time from which epochs count, and
// makes nothing. Otherwise two restores would get the same epoch.
func TestRestoreWantsAClock(t *testing.T) {
	t.Attr("rules", "A2 A11")
	synctest.Test(t, func(t *testing.T) { // the clock of a bubble begins in 2000
		dir := t.TempDir()
		_, served := serveCmd{Data: dir, Recovery: "restored"}.settings(slog.New(slog.DiscardHandler))
		for name, err := range map[string]error{
			"restore": restoreCmd{File: filepath.Join(dir, "backup"), Data: dir}.Run(&app{ctx: t.Context()}),
			"serve":   served,
		} {
			if f := new(failure); !errors.As(err, &f) || f.code != exitCannotStart || !strings.Contains(f.text, "the clock of this machine is wrong: it says 2000-01-01") {
				t.Errorf("%s = %v, want exit code %d and that the clock is wrong", name, err, exitCannotStart)
			}
		}
		if boltstore.Exists(dir) {
			t.Error("there is a store")
		}
		time.Sleep(25 * 366 * 24 * time.Hour)
		if err := requireClock(time.Now()); err != nil {
			t.Errorf("in %d: %v", time.Now().Year(), err)
		}
	})
}
