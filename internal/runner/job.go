package runner

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/lessor-dev/lessor/internal/execworker"
)

// Job is a run with its data directory, held by this process.
type Job struct {
	dir      string
	lock     *os.File
	manifest *manifest
	// replaced is the earlier run that this run has replaced because of force; nil if there was
	// none.
	replaced *manifest
	// Resumed is true if an earlier process worked on the run.
	Resumed bool
	// temporary is true if no process will print the outputs again.
	temporary bool
	// left are the failed lines that RetryFailed has left; nil: none.
	left *marks
	// there are the lines that have tasks, if RestoreDeleted has found that some have none; else
	// nil.
	there *marks
	// before is what CountEnded has counted, without what RetryFailed opens.
	before endedBefore
}

// ChangedError means that the data directory holds another run.
type ChangedError struct {
	Dir     string
	Changes []string
}

func (e *ChangedError) Error() string {
	return fmt.Sprintf("data directory %s holds another run; %s", e.Dir, strings.Join(e.Changes, "; "))
}

// ForeignError means that the data directory contains a file with a name that a run uses, but no
// run put it there.
type ForeignError struct{ Dir, Name string }

func (e *ForeignError) Error() string {
	return fmt.Sprintf("data directory %s does not belong to a run, but contains %q", e.Dir, e.Name)
}

// Open locks the data directory dir for a run with these options over the lines of input, which it
// reads to the end. If dir holds the same run already, Open resumes that run. If dir holds another
// run, the error is a *ChangedError; with force, Open removes that run instead. It never removes
// files that do not belong to a run. Other errors are *ForeignError, *InUseError, *ManifestError,
// *LineTooLongError, *NULError, *InputError, *diskroom.FullError, ctx's cause and errors of the
// file system.
func Open(ctx context.Context, dir string, opts Options, input io.Reader, force bool) (*Job, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	j := &Job{dir: dir, temporary: opts.Temporary}
	if err := j.checkOurs(); err != nil {
		return nil, err
	}
	lock, err := lockDir(dir, j.path("lock"))
	if err != nil {
		return nil, err
	}
	j.lock = lock
	if err := j.prepare(ctx, opts, input, force); err != nil {
		return nil, errors.Join(err, j.Close())
	}
	return j, nil
}

// Holds reports whether dir is the data directory of a run.
func Holds(dir string) bool {
	lock, err := os.ReadFile(filepath.Join(dir, "lock"))
	return err == nil && bytes.HasPrefix(lock, []byte(mark))
}

// replaceable lists what begin removes, in this order: everything of a run except its input, with
// the manifest first.
var replaceable = []string{"run.json", "cursor", "store", "spool", "socket"}

// checkOurs refuses a directory that is not of a run, but has files with the names of a run's
// files. It checks the lock last. A directory that has only an empty lock is accepted: another
// process may have just made the lock, which it makes before all other files.
func (j *Job) checkOurs() error {
	found := ""
	for _, name := range append(slices.Clone(replaceable), "input", "input.arrived", "lock") {
		if _, err := os.Lstat(j.path(name)); err == nil {
			found = name
			break
		}
	}
	if found == "" {
		return nil
	}
	if Holds(j.dir) {
		return nil
	}
	if lock, err := os.ReadFile(j.path("lock")); err == nil && found == "lock" && len(lock) == 0 {
		return nil
	}
	known, err := readManifest(j.path("run.json")) // there may be a run whose lock has no mark yet
	if known != nil || err != nil {
		return err
	}
	return &ForeignError{Dir: j.dir, Name: found}
}

func (j *Job) prepare(ctx context.Context, opts Options, input io.Reader, force bool) error {
	known, err := readManifest(j.path("run.json")) // before the input, which may come for a long time
	if err != nil {
		return err
	}
	arrived := j.path("input.arrived")
	in, err := copyInput(ctx, arrived, input, opts.Nulls)
	if err != nil {
		return err
	}
	if known != nil {
		changes := known.changes(opts, in)
		if len(changes) == 0 {
			j.manifest, j.Resumed = known, true
			return errors.Join(os.Remove(arrived), j.Spool().Clean())
		}
		if !force {
			return errors.Join(&ChangedError{Dir: j.dir, Changes: changes}, os.Remove(arrived))
		}
	}
	j.replaced = known
	return j.begin(opts, in, arrived)
}

// begin makes a new run. It removes the manifest first and writes it last, so that a crash in
// between leaves no run.
func (j *Job) begin(opts Options, in Input, arrived string) error {
	for _, name := range replaceable {
		if err := os.RemoveAll(j.path(name)); err != nil {
			return err
		}
	}
	if err := os.Rename(arrived, j.path("input")); err != nil {
		return err
	}
	j.manifest = &manifest{
		Version: manifestVersion,
		RunID:   "run-" + strings.ToLower(rand.Text()),
		Options: opts,
		Input:   in,
	}
	return j.manifest.write(j.path("run.json"))
}

func (j *Job) path(name string) string { return filepath.Join(j.dir, name) }

// RunID names the run; it is also the name of its queue.
func (j *Job) RunID() string { return j.manifest.RunID }

// Lines is the number of lines.
func (j *Job) Lines() int64 { return j.manifest.Input.Lines }

// StoreDir is for the store of an embedded coordinator.
func (j *Job) StoreDir() string { return j.path("store") }

// SocketDir is the directory in which an embedded coordinator may listen. Other users have no
// access to it.
func (j *Job) SocketDir() string { return j.path("socket") }

// Spool stores the outputs that do not fit into a report.
func (j *Job) Spool() execworker.Spool { return execworker.OwnSpool(j.path("spool")) }

// saveSubmitted records in the manifest that every line was submitted to a coordinator in this
// epoch.
func (j *Job) saveSubmitted(epoch uint32) error {
	j.manifest.Submitted, j.manifest.Epoch = true, epoch
	return j.manifest.write(j.path("run.json"))
}

// saveUnordered records in the manifest that lines are submitted again, before that begins.
func (j *Job) saveUnordered() error {
	j.manifest.Unordered = true
	return j.manifest.write(j.path("run.json"))
}

// cursor returns the sequence after which a later process needs to watch. It need not watch earlier
// events, because it lists all tasks anyway. The cursor is 0 if none was saved.
func (j *Job) cursor() uint64 {
	data, err := os.ReadFile(j.path("cursor"))
	if err != nil {
		return 0
	}
	sequence, err := strconv.ParseUint(strings.TrimSpace(string(data)), 10, 64)
	if err != nil {
		return 0
	}
	return sequence
}

// saveCursor saves the cursor. It ignores errors, because a cursor only saves time.
func (j *Job) saveCursor(sequence uint64) {
	_ = os.WriteFile(j.path("cursor"), []byte(strconv.FormatUint(sequence, 10)+"\n"), 0o600)
}

// Close releases the data directory.
func (j *Job) Close() error { return j.lock.Close() }

// Remove releases the data directory and removes it with everything in it.
func (j *Job) Remove() error { return errors.Join(os.RemoveAll(j.dir), j.Close()) }
