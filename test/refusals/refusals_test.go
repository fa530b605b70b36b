//go:build faults

package refusals

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/test/harness"
)

func TestMain(m *testing.M) { harness.Main(m) }

// serve returns the arguments for a coordinator in a data directory.
func serve(dir string) []string {
	return []string{"serve", "--data", dir, "--listen", "127.0.0.1:0", "--http", ""}
}

// refused is what a command says that did not start: an error and a hint, if it has a log with a
// record of both before them, and nothing else.
var refused = regexp.MustCompile(`^({.*"level":"ERROR","msg":"ended by an error".*}\n)?error: .+\nhint: .+\n$`)

// checkRefused runs a command that must not start: it must end with exit code 5, print an error and
// a hint, and nothing else.
func checkRefused(t *testing.T, c harness.Command, want string) {
	t.Helper()
	p := harness.Start(t, c)
	code, stderr := p.Wait(), p.Stderr()
	if code != 5 || !refused.MatchString(stderr) || !regexp.MustCompile(want).MatchString(stderr) {
		t.Errorf("%v ended with exit code %d and said\n%swant exit code 5 and %q", p, code, stderr, want)
	}
}

// A coordinator refuses to start on a store of a newer format, and does not change it.
func TestNewerStore(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "lessor.db")
	raiseFormat(t, dir)
	before := read(t, file)
	known := store.Current().Format()
	checkRefused(t, harness.Command{Args: serve(dir)},
		fmt.Sprintf(`the store has format %d, but this version of Lessor reads only formats up to %d:`, known+1, known))
	if !bytes.Equal(before, read(t, file)) {
		t.Error("the store was changed")
	}
}

// raiseFormat makes a store that claims to be of the next format.
func raiseFormat(t *testing.T, dir string) {
	t.Helper()
	s, err := boltstore.Open(dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var b store.Batch
	make(store.Migrations, store.Current().Format()).Stamp(&b)
	if err := s.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

// Without permission for the data directory, lessor serve and lessor run refuse to start with an
// error and a hint.
func TestNoPermission(t *testing.T) {
	closed := filepath.Join(t.TempDir(), "closed")
	if err := os.Mkdir(closed, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(closed, "lines"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	stranger := harness.UserWithoutPermission(t, closed)
	for name, args := range map[string][]string{
		"serve":                   serve(closed),
		"serve in a new one":      serve(filepath.Join(closed, "data")),
		"run":                     {"run", "--data", closed, "--", "true"},
		"run with a new one":      {"run", "--data", filepath.Join(closed, "data"), "--", "true"},
		"serve with a file of it": serve(filepath.Join(closed, "lines")),
	} {
		t.Run(name, func(t *testing.T) {
			checkRefused(t, harness.Command{Args: args, User: stranger}, "no permission")
		})
	}
}

// lessor serve makes its data directory even in a directory that the user may write but not read.
// The name of the new directory cannot be synced then.
func TestParentWithoutReadPermission(t *testing.T) {
	base := t.TempDir()
	parent := filepath.Join(base, "parent")
	if err := errors.Join(os.Mkdir(parent, 0o700), os.Chmod(base, 0o711), os.Chmod(filepath.Dir(base), 0o711)); err != nil {
		t.Fatal(err)
	}
	stranger := harness.UserWithoutPermission(t, parent)
	if stranger != nil {
		if err := os.Chown(parent, int(stranger.Uid), int(stranger.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Chmod(parent, 0o300); err != nil {
		t.Fatal(err)
	}
	serving := make(chan string, 1)
	p := harness.Start(t, harness.Command{
		Args: serve(filepath.Join(parent, "data")), User: stranger, Stdout: harness.Lines(func(line string) { serving <- line }),
	})
	select {
	case <-serving:
	case <-p.Ended():
	}
	if code := p.Stop(); code != 0 {
		t.Errorf("exit code %d\n%s", code, p.Stderr())
	}
}
