package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
)

// restoreCmd is lessor restore.
type restoreCmd struct {
	File string `type:"file" arg:"" placeholder:"FILE" help:"File that lessor backup wrote."`
	Data string `type:"file" required:"" placeholder:"DIR" help:"Directory of the new store; it must be empty or missing."`
}

// Help is shown below the flags.
func (restoreCmd) Help() string {
	return `Makes a store from a backup, for lessor serve --data DIR. The backup is verified first. The store begins a new epoch: leases that were open in the
backup end at the first start, which does not count as a loss, and holders of leases that were granted after the backup get COORDINATOR_RECOVERED. Stop
the coordinator of the old store first: two coordinators with copies of one store would grant the same tasks.

Example:
  lessor restore /backups/lessor-2026-11-21.db --data /var/lib/lessor`
}

// restored is what lessor restore --json prints.
type restored struct {
	Data   string `json:"data"`
	Format uint32 `json:"format"`
	Epoch  uint32 `json:"epoch"`
	Tasks  uint64 `json:"tasks"`
	Leases uint64 `json:"leases"`

	LastCommit *time.Time `json:"last_commit,omitempty"` // before the restore, if the store tells
}

// text says what was made of a source: a backup, or the copy of a standby.
func (r restored) text(source string) string {
	ending := "no lease of the " + source + " was open"
	if r.Leases > 0 {
		ending = "the first start ends " + counted(r.Leases, "open lease") + " of the " + source
	}
	text := fmt.Sprintf("%s: %s, epoch %d; %s", r.Data, counted(r.Tasks, "task"), r.Epoch, ending)
	if r.LastCommit != nil {
		text += "; its last commit came at " + r.LastCommit.Format(lastCommitForm)
	}
	return text
}

// prepare returns what verifies a store and begins a new epoch in it.
func (r *restored) prepare(a *app) func(*boltstore.Store) error {
	return func(st *boltstore.Store) error {
		v, err := verifyOrFail(st)
		if err != nil {
			return err
		}
		r.Format, r.Tasks, r.Leases, r.LastCommit = v.Format, v.Tasks, v.Leases, v.LastCommit
		r.Epoch, err = beginEpoch(a, st)
		return err
	}
}

func (c restoreCmd) Run(a *app) error {
	if err := requireClock(time.Now()); err != nil {
		return err
	}
	if err := checkReadable(c.File); err != nil {
		return fail(exitCannotStart, "name a file that lessor backup wrote", "cannot read the backup: %v", err)
	}
	done := restored{Data: c.Data}
	err := boltstore.Restore(c.File, c.Data, boltstore.Options{}, done.prepare(a))
	if f, broken := brokenStore(err); broken {
		return fail(exitFailed, "lessor verify tells more; try an older backup",
			"%s cannot be restored: %s", c.File, f.Problem)
	}
	if inUse, ok := errors.AsType[*store.InUseError](err); ok && inUse.Dir == filepath.Dir(c.File) {
		return fail(exitCannotStart, "name a file that lessor backup wrote",
			"%s is not a backup, but a store in use: %v", c.File, inUse)
	}
	if err != nil {
		return storeError(c.Data, err)
	}
	return unheard(a.line(done, done.text("backup")), "", "the store in %s was restored", c.Data)
}

// requireClock refuses a clock that was never set. Epochs count from 2024 (see
// lease.RestoredEpoch): by such a clock, another restore of the same backup would get the same
// epoch, and so the same fencing tokens and ids of tasks (A2, A11).
func requireClock(now time.Time) error {
	if now.UTC().Year() >= 2024 {
		return nil
	}
	return fail(exitCannotStart, "set the clock: the number of the new epoch depends on it",
		"the clock of this machine is wrong: it says %s", now.UTC().Format(time.RFC3339))
}

// checkReadable returns an error if the backup cannot be read. It runs before the restore, whose
// error would blame the data directory.
func checkReadable(name string) error {
	// the opening of a named pipe would wait for a writer
	if info, err := os.Stat(name); err == nil && !info.Mode().IsRegular() {
		return fmt.Errorf("%s is not a regular file", name)
	}
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	return file.Close()
}

// beginEpoch gives a store that was restored or promoted a new epoch (A11).
func beginEpoch(a *app, st store.Store) (epoch uint32, err error) {
	var b store.Batch
	now := lease.WallOf(time.Now())
	err = st.View(func(r store.Reader) error {
		epoch, err = records.MakeIndependent(&b, r, now)
		return err
	})
	if err == nil && epoch != 0 {
		time.Sleep(lease.UntilNextEpoch(now))
		err = st.Commit(a.ctx, &b)
	}
	return epoch, err
}
