//go:build faults

package crash

import (
	"compress/gzip"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/storetest"
	"github.com/lessor-dev/lessor/test/harness"
)

// TestKillWhileUpgrading: a coordinator is killed at each write or sync by which it upgrades a store of format 1. The kill leaves a consistent store
// of some format, and the next start gets from it to the same store as an upgrade without a kill.
func TestKillWhileUpgrading(t *testing.T) {
	newest := store.Current().Format()
	want := upgraded(t, oldStore(t))
	left := map[uint32]int{}
	for _, call := range []string{"pwrite64", "fdatasync"} {
		for n := 1; ; n++ {
			dir := oldStore(t)
			c := harness.NewCoordinator(t, dir)
			c.Under = harness.Strace(t, fmt.Sprintf("%s:signal=SIGKILL:when=%d", call, n))
			served := c.Try()
			c.KillOrStoreFailed()
			if served {
				break // the upgrade was finished before the kill
			}
			format := formatOf(t, dir)
			left[format]++
			if format < newest && upgraded(t, dir) != want {
				t.Errorf("killed at %s %d: the upgrade ends with another store", call, n)
			}
			c.Under = nil
			c.Start()
			c.Stop()
			c.Verify()
		}
	}
	t.Logf("kills by the format that they left: %v", left)
	for format := uint32(1); format < newest; format++ {
		if left[format] == 0 {
			t.Errorf("no kill left a store of format %d", format)
		}
	}
}

// oldStore returns a data directory with a store that a program of format 1 made.
func oldStore(t *testing.T) (dir string) {
	t.Helper()
	packed, err := os.Open("../../coordinator/engine/testdata/format1.db.gz")
	if err != nil {
		t.Fatal(err)
	}
	defer packed.Close()
	content, err := gzip.NewReader(packed)
	if err != nil {
		t.Fatal(err)
	}
	dir = t.TempDir()
	file, err := os.Create(filepath.Join(dir, "lessor.db"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	if _, err := io.Copy(file, content); err != nil { //nolint:gosec // our own file
		t.Fatal(err)
	}
	return dir
}

// formatOf reads the format of a store that nobody serves.
func formatOf(t *testing.T, dir string) (format uint32) {
	t.Helper()
	st, err := boltstore.OpenReadOnly(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	err = st.View(func(r store.Reader) (err error) {
		format, err = store.ReadFormat(r)
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return format
}

// upgraded brings a store to the newest format, and returns a list of its content.
func upgraded(t *testing.T, dir string) string {
	t.Helper()
	st, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Close()
	return storetest.Listing(t, st)
}
