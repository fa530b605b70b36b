package main

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// compactCmd is lessor compact.
type compactCmd struct {
	Dir  string `type:"file" arg:"" optional:"" placeholder:"DIR" help:"Data directory of a coordinator that is not running."`
	Data string `type:"file" placeholder:"DIR" help:"The same, as a flag."`
	To   string `type:"file" placeholder:"DIR" help:"Make the copy in this directory, for example on another disk, and leave the store as it is; it must be empty or missing."`
}

// Help is shown below the flags.
func (compactCmd) Help() string {
	return `Shrinks the file of a store: writes a copy without the free space inside the file, verifies the copy, and replaces the store with it in one step.
Until then the store is unchanged. The disk must have room for both files.

With --to the copy is a store of its own, in another directory, and the disk of the old one may be full or read-only. Serve only one of them from
then on: two coordinators with copies of one store would grant the same tasks. Leases live on, as over a restart.

Examples:
  lessor compact /var/lib/lessor
  lessor compact --data /var/lib/lessor --to /mnt/larger/lessor`
}

// compacted is what lessor compact --json prints.
type compacted struct {
	Data   string `json:"data"`
	To     string `json:"to,omitempty"`
	Before int64  `json:"bytes_before"`
	After  int64  `json:"bytes_after"`
}

func (c compacted) String() string {
	s := fmt.Sprintf("%s: %s became %s", c.Data, words.Bytes(uint64(c.Before)), words.Bytes(uint64(c.After)))
	if c.To != "" {
		s += fmt.Sprintf(" in %s; move %s away, so that nobody serves it any more, then serve %s", c.To, c.Data, c.To)
	}
	return s
}

func (c compactCmd) Run(a *app) (err error) {
	switch {
	case c.Dir == "" && c.Data == "":
		return fail(exitUsage, "write lessor compact DIR", "the data directory of the store is missing")
	case c.Dir != "" && c.Data != "" && c.Dir != c.Data:
		return fail(exitUsage, "write lessor compact DIR; --to names the directory of a copy",
			"two data directories are named: %s and, by --data, %s", c.Dir, c.Data)
	case c.Dir != "":
		c.Data = c.Dir
	}
	done := compacted{Data: c.Data, To: c.To}
	check := func(st *boltstore.Store) error {
		_, err := verifyOrFail(st)
		return err
	}
	if c.To == "" {
		done.Before, done.After, err = boltstore.Compact(c.Data, boltstore.Options{}, check)
	} else {
		done.Before, done.After, err = boltstore.CompactTo(c.Data, c.To, boltstore.Options{}, check)
	}
	if err != nil {
		return c.failure(err)
	}
	return unheard(a.line(done, done.String()), "", "the store in %s was compacted", c.Data)
}

// failure returns the error for a store that could not be compacted.
func (c compactCmd) failure(err error) error {
	var (
		noRoom *store.NoRoomError
		target *boltstore.TargetError
	)
	dir, hint := c.Data, "free space on that disk, or name a directory on another one with --to"
	if c.To != "" {
		dir, hint = c.To, "free space on that disk, or name a directory on another one"
	}
	switch {
	case errors.As(err, &noRoom):
		return fail(exitCannotStart, hint,
			"no room for the copy on the disk of %s: it takes at least %s, and %s are free", dir,
			words.Bytes(uint64(noRoom.Needed)), words.Bytes(uint64(noRoom.Free)))
	case noSpace(err):
		return fail(exitCannotStart, hint, "no space left on the disk of %s", dir)
	case errors.As(err, &target):
		return storeError(c.To, target.Err)
	case errors.Is(err, syscall.EROFS) && c.To == "":
		return fail(exitCannotStart, "name a directory on another one with --to",
			"data directory %s is on a read-only file system", c.Data)
	case errors.Is(err, fs.ErrNotExist):
		return fail(exitCannotStart, "name the --data directory of lessor serve", "there is no store in %s", c.Data)
	}
	return storeError(c.Data, err)
}
