package main

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/store/boltstore"
)

// compactCmd is lessor compact.
type compactCmd struct {
	Data string `type:"file" required:"" placeholder:"DIR" help:"Data directory of a coordinator that is not running."`
}

// Help is shown below the flags.
func (compactCmd) Help() string {
	return `Shrinks the file of a store: writes a copy without the free space inside the file, verifies the copy, and replaces the store with it in one step.
Until then the store is unchanged. The disk must have room for both files.

Example:
  lessor compact --data /var/lib/lessor`
}

// compacted is what lessor compact --json prints.
type compacted struct {
	Data   string `json:"data"`
	Before int64  `json:"bytes_before"`
	After  int64  `json:"bytes_after"`
}

func (c compacted) String() string {
	return fmt.Sprintf("%s: %s became %s", c.Data, words.Bytes(uint64(c.Before)), words.Bytes(uint64(c.After)))
}

func (c compactCmd) Run(a *app) (err error) {
	done := compacted{Data: c.Data}
	done.Before, done.After, err = boltstore.Compact(c.Data, boltstore.Options{}, func(st *boltstore.Store) error {
		_, err := verifyOrFail(st)
		return err
	})
	if errors.Is(err, fs.ErrNotExist) {
		return fail(exitCannotStart, "name the --data directory of lessor serve", "there is no store in %s", c.Data)
	}
	if err != nil {
		return storeError(c.Data, err)
	}
	return unheard(a.line(done, done.String()), "", "the store in %s was compacted", c.Data)
}
