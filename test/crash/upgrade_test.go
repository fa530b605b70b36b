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

// TestKillWhileUpgrading: a coordinator is killed at each write or sync by which it upgrades a
// store, from each older format to the next one. The kill leaves a consistent store of some format,
// and the next start gets from it to the same store as an upgrade without a kill.
func TestKillWhileUpgrading(t *testing.T) {
	t.Parallel()
	newest := store.Current().Format()
	left := map[uint32]int{}
	for old := uint32(1); old < newest; old++ {
		want := upgraded(t, oldStore(t, old))
		for _, call := range []string{"pwrite64", "fdatasync"} {
			// strace counts the calls of each thread, so a count from format 1 on may never reach
			// the last steps: each step is counted by itself.
			for n, format := 1, old; format == old; n++ {
				// A test of its own removes its stores at once; each takes as much of the disk as
				// its reserve.
				ok := t.Run(fmt.Sprintf("format %d, killed at %s %d", old, call, n), func(t *testing.T) {
					if format = killedUpgrade(t, old, call, n, want); format != finished {
						left[format]++
					}
				})
				if !ok {
					return
				}
			}
		}
	}
	t.Logf("kills by the format that they left: %v", left)
	for format := uint32(1); format < newest; format++ {
		if left[format] < 2 {
			t.Errorf("%d kills left a store of format %d, want some of each call", left[format], format)
		}
	}
}

// finished stands for the format of an upgrade that was finished before the kill.
const finished = 0

// killedUpgrade kills a coordinator at the nth system call of a kind while it upgrades a store of
// the old format. It checks that the upgrade then goes on to want, and returns the format that the
// kill left.
func killedUpgrade(t *testing.T, old uint32, call string, n int, want string) (format uint32) {
	t.Helper()
	dir := oldStore(t, old)
	c := harness.NewCoordinator(t, dir)
	c.Under = harness.Strace(t, fmt.Sprintf("%s:signal=SIGKILL:when=%d", call, n))
	served := c.Try()
	c.KillOrStoreFailed()
	if served {
		return finished
	}
	format = formatOf(t, dir)
	if format < store.Current().Format() && upgraded(t, dir) != want {
		t.Error("the upgrade ends with another store")
	}
	c.Under = nil
	c.Start()
	c.Stop()
	c.Verify()
	return format
}

// oldStore returns a data directory with a store that a program of this format made.
func oldStore(t *testing.T, format uint32) (dir string) {
	t.Helper()
	packed, err := os.Open(fmt.Sprintf("../../coordinator/engine/testdata/format%d.db.gz", format))
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
