package runner

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

var testOptions = Options{Command: "sha256sum {}"}

func open(dir, input string, opts Options, force bool) (*Job, error) {
	return Open(context.Background(), dir, opts, strings.NewReader(input), force)
}

func mustOpen(t *testing.T, dir, input string, opts Options, force bool) *Job {
	t.Helper()
	j, err := open(dir, input, opts, force)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = j.Close() })
	return j
}

func TestSameRunIsResumed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "data")
	first := mustOpen(t, dir, "a\nb\n", testOptions, false)
	if first.Resumed || first.Lines() != 2 {
		t.Errorf("the first run: resumed %t, %d lines, want a new run of 2 lines", first.Resumed, first.Lines())
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.Mkdir(first.path("spool"), 0o700), os.WriteFile(first.Spool().Path("t1.1.part"), nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	second := mustOpen(t, dir, "a\nb\n", testOptions, false)
	if !second.Resumed || second.RunID() != first.RunID() {
		t.Errorf("the second run: resumed %t, id %s, want that the run %s is resumed",
			second.Resumed, second.RunID(), first.RunID())
	}
	wantFiles(t, dir, "input", "lock", "run.json", "spool")
	wantFiles(t, second.path("spool")) // not the half of an output that the first process was writing when it died
}

// wantFiles checks that the directory has these files, in the order of their names, and no others.
func wantFiles(t *testing.T, dir string, want ...string) {
	t.Helper()
	files, err := os.ReadDir(dir)
	var names []string
	for _, file := range files {
		names = append(names, file.Name())
	}
	if err != nil || !slices.Equal(names, want) {
		t.Errorf("the directory has %v (%v), want %v", names, err, want)
	}
}

// A run begins only when its input and its manifest are durable. Otherwise a later process could
// not resume it, and would run all lines again. A run that it was to replace is either untouched or
// gone: without its store, its lines would count as deleted.
func TestRunThatCannotBeStoredDoesNotBegin(t *testing.T) {
	for _, name := range []string{"input.arrived.new", "input.arrived", "input", "run.json.new"} {
		dir := t.TempDir()
		first := mustOpen(t, dir, "a\n", testOptions, false)
		blocked := first.path(name) // by a directory, so that no file of that name can be made
		err := errors.Join(first.Close(), os.Remove(first.path("input")), os.MkdirAll(filepath.Join(blocked, "x"), 0o700))
		if err != nil {
			t.Fatal(err)
		}
		if j, err := open(dir, "b\n", testOptions, true); err == nil {
			_ = j.Close()
			t.Errorf("a run was opened although %s cannot be written", name)
		}
		untouched := name == "input.arrived.new" || name == "input.arrived"
		if known, err := readManifest(first.path("run.json")); (known != nil) != untouched || err != nil {
			t.Errorf("after %s could not be written, the manifest of the replaced run is %v (%v), want that it is there: %t", name, known, err, untouched)
		}
		if err := os.RemoveAll(blocked); err != nil {
			t.Fatal(err)
		}
		mustOpen(t, dir, "b\n", testOptions, true) // a refused run does not hold the lock
	}
}

func TestAnotherRunIsRefusedWithTheDifference(t *testing.T) {
	dir := t.TempDir()
	if err := mustOpen(t, dir, "a\nb\n", testOptions, false).Close(); err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		input string
		opts  Options
		want  string
	}{
		"a line more":         {"a\nb\nc\n", testOptions, "the input: 2 lines (sha256 "},
		"another line":        {"a\nc\n", testOptions, "the input: 2 lines (sha256 "},
		"another order":       {"b\na\n", testOptions, "the input: 2 lines (sha256 "},
		"another command":     {"a\nb\n", Options{Command: "md5sum {}"}, "the command: sha256sum {} before, md5sum {} now"},
		"another placeholder": {"a\nb\n", Options{Command: "sha256sum {}", Placeholder: `"%"`}, `-I: not set before, "%" now`},
		"another timeout":     {"a\nb\n", Options{Command: "sha256sum {}", Timeout: time.Second}, "--timeout: not set before, 1s now"},
		"another coordinator": {"a\nb\n", Options{Command: "sha256sum {}", Addr: "h:1"}, "--addr: not set before, h:1 now"},
		"another separator":   {"a\nb\n", Options{Command: "sha256sum {}", Nulls: true}, "--null: false before, true now"},
		"another retry":       {"a\nb\n", Options{Command: "sha256sum {}", MaxAttempts: 7}, "--max-attempts: not set before, 7 now"},
		"another workspace":   {"a\nb\n", Options{Command: "sha256sum {}", Workspace: "w"}, "--workspace: not set before, w now"},
	} {
		_, err := open(dir, test.input, test.opts, false)
		var changed *ChangedError
		if !errors.As(err, &changed) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
		wantFiles(t, dir, "input", "lock", "run.json")
	}
	if j := mustOpen(t, dir, "a\nb\n", testOptions, false); !j.Resumed {
		t.Error("after a refusal the run is not resumed, want it unchanged")
	}
}

// Relative names mean other files in another working directory. Another path to the same one is no
// difference; nor is one that the run did not record.
func TestRunIsNotResumedInAnotherWorkingDirectory(t *testing.T) {
	here, elsewhere, link := t.TempDir(), t.TempDir(), filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(here, link); err != nil {
		t.Fatal(err)
	}
	in := func(dir string) Options { return Options{Command: "./job.sh", Dir: dir} }
	for name, tt := range map[string]struct{ before, now, want string }{
		"the same":     {here, here, ""},
		"a link to it": {here, link, ""},
		"not recorded": {"", here, ""},
		"another":      {here, elsewhere, "the working directory: " + here + " before, " + elsewhere + " now"},
		"gone":         {filepath.Join(here, "gone"), here, "the working directory: " + filepath.Join(here, "gone") + " before, " + here + " now"},
	} {
		dir := t.TempDir()
		if err := mustOpen(t, dir, "a\n", in(tt.before), false).Close(); err != nil {
			t.Fatal(err)
		}
		job, err := open(dir, "a\n", in(tt.now), false)
		var changed *ChangedError
		switch {
		case tt.want == "" && (err != nil || !job.Resumed):
			t.Errorf("%s: %v, want that the run is resumed", name, err)
		case tt.want != "" && (!errors.As(err, &changed) || !slices.Equal(changed.Changes, []string{tt.want})):
			t.Errorf("%s: %v, want %q", name, err, tt.want)
		}
		if job != nil {
			_ = job.Close()
		}
	}
}

func TestForceReplacesAnotherRunButResumesTheSame(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir, "a\n", testOptions, true)
	old := first.RunID()
	for _, name := range []string{first.StoreDir(), first.path("spool")} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	_ = first.Close()

	same := mustOpen(t, dir, "a\n", testOptions, true)
	if !same.Resumed {
		t.Error("--force deleted the same run, want it resumed")
	}
	_ = same.Close()

	other := mustOpen(t, dir, "b\n", testOptions, true)
	if other.Resumed || other.RunID() == old {
		t.Errorf("another input with --force: resumed %t, id %s, want a new run with another id than %s",
			other.Resumed, other.RunID(), old)
	}
	if _, err := os.Stat(other.StoreDir()); !os.IsNotExist(err) {
		t.Errorf("stat of the store of the other run: %v, want that --force has deleted it", err)
	}
}

func TestRunCannotBeOpenedTwice(t *testing.T) {
	dir := t.TempDir()
	// of an earlier process
	if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(mark+"1234567890\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir, "a\n", testOptions, false)
	_, err := open(dir, "a\n", testOptions, true)
	var inUse *InUseError
	if !errors.As(err, &inUse) || !strings.HasSuffix(err.Error(), fmt.Sprintf(" is in use by pid %d", os.Getpid())) {
		t.Errorf("error %v, want that the run is in use by this process", err)
	}
}

// If lessor run is killed while it starts a command, the command holds the lock until it is
// executed. A process that begins meanwhile waits for that.
func TestOpenWaitsForACommandThatAKilledProcessWasStarting(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir, "a\n", testOptions, false)
	inherited, err := syscall.Dup(int(first.lock.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	time.AfterFunc(20*time.Millisecond, func() { _ = syscall.Close(inherited) })
	mustOpen(t, dir, "a\n", testOptions, false)
}

// A user's own files in the directory may have the same names as the files of a run. Open touches
// none of them, not even with --force.
func TestForeignFilesAreNotDeleted(t *testing.T) {
	for _, name := range []string{"store", "spool", "cursor", "socket", "input", "input.arrived", "lock"} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			own := filepath.Join(dir, name)
			if err := os.WriteFile(own, []byte("1234\n"), 0o600); err != nil {
				t.Fatal(err)
			}
			// the first refusal must not leave a file that makes the second call accept the
			// directory as that of a run
			for range 2 {
				_, err := open(dir, "a\n", testOptions, true)
				var foreign *ForeignError
				if !errors.As(err, &foreign) || foreign.Name != name {
					t.Errorf("error %v, want that %s is not a file of a run", err, name)
				}
			}
			if text, err := os.ReadFile(own); err != nil || string(text) != "1234\n" {
				t.Errorf("the file now has %q (%v), want it unchanged", text, err)
			}
			if names, err := os.ReadDir(dir); err != nil || len(names) != 1 {
				t.Errorf("the directory has %v, %v; want only %s", names, err, name)
			}
		})
	}
}

// Files with other names do not matter. A lock file with only a process id is that of a run that an
// earlier version began.
func TestDirectoryWithUnrelatedFilesIsAccepted(t *testing.T) {
	dir := t.TempDir()
	if err := os.WriteFile(filepath.Join(dir, "out"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	first := mustOpen(t, dir, "a\n", testOptions, false)
	if err := os.WriteFile(first.path("lock"), []byte("1234\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	if j := mustOpen(t, dir, "a\n", testOptions, false); !j.Resumed {
		t.Error("the run began anew, want it resumed")
	}
}

// A process that was killed between making the lock file and writing it has left an empty one.
// Another run may take it, unless there are other files, which that process cannot have left.
func TestEmptyLockFileHasNoOwner(t *testing.T) {
	dir := t.TempDir()
	own := filepath.Join(dir, "store")
	if err := errors.Join(os.WriteFile(filepath.Join(dir, "lock"), nil, 0o600), os.WriteFile(own, nil, 0o600)); err != nil {
		t.Fatal(err)
	}
	_, err := open(dir, "a\n", testOptions, true)
	var foreign *ForeignError
	if !errors.As(err, &foreign) || foreign.Name != "store" {
		t.Errorf("error %v, want that store is not a file of a run", err)
	}
	if err := os.Remove(own); err != nil { // is it still there?
		t.Fatal(err)
	}
	mustOpen(t, dir, "a\n", testOptions, false)
}

// A process that was killed before it had written the manifest has left no run, whatever other
// files it has left.
func TestRunWithoutManifestStartsAnew(t *testing.T) {
	dir := t.TempDir()
	first := mustOpen(t, dir, "a\n", testOptions, false)
	if err := os.Remove(first.path("run.json")); err != nil {
		t.Fatal(err)
	}
	_ = first.Close()
	if j := mustOpen(t, dir, "b\n", testOptions, false); j.Resumed || j.RunID() == first.RunID() {
		t.Errorf("resumed %t, id %s, want a new run with another id than %s", j.Resumed, j.RunID(), first.RunID())
	}
}

// A manifest that cannot be read is not taken for no manifest: a new run would throw the outputs
// away. This also holds in a directory that is known to be of a run by its lock. It is told before
// the input is read, and nothing of the input is left.
func TestDamagedManifestIsRefused(t *testing.T) {
	for _, text := range []string{"", "{", `{"version": 2}`, `{"version": 1, "later": true}`} {
		for _, locked := range []bool{false, true} {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, "run.json"), []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if locked {
				if err := os.WriteFile(filepath.Join(dir, "lock"), []byte(mark+"1\n"), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			var damaged *ManifestError
			input := strings.NewReader("a\n")
			if _, err := Open(t.Context(), dir, testOptions, input, true); !errors.As(err, &damaged) || input.Len() != 2 {
				t.Errorf("%q, lock %t: error %v with %d bytes unread, want a *ManifestError before any is read",
					text, locked, err, input.Len())
			}
			if _, err := os.Stat(filepath.Join(dir, "input.arrived")); !errors.Is(err, fs.ErrNotExist) {
				t.Errorf("%q, lock %t: the input was left (stat: %v)", text, locked, err)
			}
		}
	}
}

// A read from a terminal cannot be interrupted, so Open stops waiting for it.
func TestSignalEndsTheReadingOfTheInput(t *testing.T) {
	stop := errors.New("a signal")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(stop)
	release := make(chan struct{})
	defer close(release)
	_, err := awaitInput(ctx, func() (Input, error) {
		<-release
		return Input{}, nil
	})
	if !errors.Is(err, stop) {
		t.Errorf("error %v, want %v", err, stop)
	}
}

func TestDifferentCommandsAreQuotedDifferently(t *testing.T) {
	seen := make(map[string][]string)
	for _, command := range [][]string{
		{"a", "b"}, {"a b"}, {`"a`, `b"`}, {`a\ b`}, {"a", "", "b"}, {"a", `""`, "b"}, {"a\nb"}, {"\xff"}, {"\xfe"}, {"\uFFFD"},
	} {
		text := QuoteCommand(command)
		if other, there := seen[text]; there {
			t.Errorf("%q and %q are both quoted as %s, want different texts", command, other, text)
		}
		seen[text] = command
	}
	if got := QuoteCommand([]string{"sha256sum", "-b", "{}"}); got != "sha256sum -b {}" {
		t.Errorf("got %s, want sha256sum -b {}", got)
	}
}
