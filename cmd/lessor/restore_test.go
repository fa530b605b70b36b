package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// A2, A11: if a backup is restored again before a second has passed, the second restore gets a later epoch. With the same epoch, the coordinator of the second
// store would give out the fencing tokens that the coordinator of the first one gave out.
func TestRestoresWithinASecondGetDifferentEpochs(t *testing.T) {
	t.Attr("rules", "A2 A11")
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(25 * 366 * 24 * time.Hour) // the clock of a bubble begins in 2000, and the epochs of restores count from 2024
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
