package main

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/verify"
)

// verifyCmd is lessor verify.
type verifyCmd struct {
	Path string `type:"file" arg:"" placeholder:"PATH" help:"Data directory, or a file that lessor backup wrote."`
}

// Help is shown below the flags.
func (verifyCmd) Help() string {
	return `Reads a whole store that no coordinator serves, and changes nothing. It checks the pages of the file, the checksums of all records and of the
whole, and whether the records match each other: tasks with leases, indexes, keys, results and counts, attempts and outcomes. Each problem is
printed as a finding. Exit code 0 means that there is none, 1 that there are some.

Examples:
  lessor verify /var/lib/lessor
  lessor verify lessor.backup --json`
}

// finding is one line of lessor verify --json.
type finding struct {
	Keyspace string `json:"keyspace,omitempty"`
	Key      string `json:"key,omitempty"`
	TaskID   string `json:"task_id,omitempty"`
	Problem  string `json:"problem"`
}

func (f finding) String() string {
	switch {
	case f.Keyspace == "":
		return f.Problem
	case f.TaskID != "":
		return fmt.Sprintf("%s of task %s: %s", f.Keyspace, f.TaskID, f.Problem)
	}
	return fmt.Sprintf("%s %s: %s", f.Keyspace, f.Key, f.Problem)
}

// verdict is the last line of lessor verify.
type verdict struct {
	Format   uint32 `json:"format"`
	Epoch    uint32 `json:"epoch"`
	Records  uint64 `json:"records"`
	Tasks    uint64 `json:"tasks"`
	Leases   uint64 `json:"leases"`
	Findings int    `json:"findings"`

	NotCounted bool `json:"not_counted,omitempty"` // the store cannot be opened, so that the numbers before are all 0

	// LastCommit is that of a store that has or had a standby, and of the copies of standbys.
	LastCommit *time.Time `json:"last_commit,omitempty"`
}

func (v verdict) String() string {
	findings := counted(uint64(v.Findings), "finding")
	if v.NotCounted {
		return findings + ": the store cannot be opened, so that its records and tasks were not counted"
	}
	text := fmt.Sprintf("%s: format %d, epoch %d, %s, %s, %s", findings, v.Format, v.Epoch,
		counted(v.Records, "record"), counted(v.Tasks, "task"), counted(v.Leases, "live lease"))
	if v.LastCommit != nil {
		text += ", last commit at " + v.LastCommit.Format(lastCommitForm)
	}
	return text
}

// lastCommitForm is precise enough to tell which of two standbys has more.
const lastCommitForm = "2006-01-02T15:04:05.000000Z07:00"

func (c verifyCmd) Run(a *app) error {
	var v verdict
	err := verifyStore(c.Path, &v, func(f finding) error {
		v.Findings++
		return a.line(f, "finding: "+f.String())
	})
	if err != nil {
		return err
	}
	if err := a.line(v, v.String()); err != nil {
		return err
	}
	if v.Findings > 0 {
		return &failure{
			code: exitFailed,
			hint: "keep the damaged store, and restore a backup that verifies, or make a new store of everything that can be read with lessor salvage",
		}
	}
	return nil
}

// verifyStore verifies a store and calls found for each fault. The error says why the store cannot
// be verified.
func verifyStore(path string, v *verdict, found func(finding) error) (err error) {
	st, err := boltstore.OpenReadOnly(path, boltstore.Options{})
	if f, broken := brokenStore(err); broken {
		v.NotCounted = true
		return found(f)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitCannotStart, "name the --data directory of lessor serve, or a file that lessor backup wrote", "there is no store in %s", path)
	}
	if err != nil {
		return storeError(path, err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	return verifyOpenStore(st, v, found)
}

// verifyOpenStore verifies an open store and calls found for each fault, until found returns an
// error.
func verifyOpenStore(st store.Store, v *verdict, found func(finding) error) error {
	var printing error
	err := st.View(func(r store.Reader) (err error) {
		if v.Format, err = store.ReadFormat(r); err != nil {
			return err
		}
		sum, err := verify.Store(r, func(f verify.Finding) {
			if printing == nil {
				printing = found(findingOf(f))
			}
		})
		v.Epoch, v.Records, v.Tasks, v.Leases = sum.Epoch, sum.Records, sum.Tasks, sum.Leases
		// verify.Store has a finding if it cannot be read
		if _, at, unread := records.PositionOf(r); unread == nil && at != 0 {
			when := at.Time().UTC()
			v.LastCommit = &when
		}
		return err
	})
	return errors.Join(err, printing)
}

// verifyOrFail verifies a store, and returns an error if anything is wrong with it.
func verifyOrFail(st store.Store) (v verdict, err error) {
	var first *finding
	err = verifyOpenStore(st, &v, func(f finding) error {
		if first == nil {
			first = &f
		}
		return nil
	})
	if err == nil && first != nil {
		err = fail(exitFailed, "lessor verify lists them all; nothing was changed",
			"the store has findings; the first one is: %v", first)
	}
	return v, err
}

func findingOf(f verify.Finding) finding {
	out := finding{Keyspace: f.Keyspace.String(), Key: hex.EncodeToString(f.Key), Problem: f.Problem}
	if id, ok := f.Task(); ok {
		out.TaskID = id.String()
	}
	return out
}

// brokenStore converts an error of opening a store to a finding, if it says that the store is
// broken.
func brokenStore(err error) (f finding, broken bool) {
	var damaged *store.DamagedError
	var corrupt *store.CorruptError
	switch {
	case errors.As(err, &damaged):
		return finding{Problem: "damaged or not a Lessor store: " + damaged.Problem}, true
	case errors.As(err, &corrupt):
		return findingOf(verify.Finding{Keyspace: corrupt.Keyspace, Key: corrupt.Key, Problem: corrupt.Problem}), true
	}
	return f, false
}
