package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lessor-dev/lessor/internal/durable"
)

// unfinished is a file that gets its name when all of it is on the disk, in one step. Until then it has one that says what it is.
type unfinished struct {
	*os.File
	name  string
	force bool // replaces what has the name
}

// newFile begins a file. One that is there already is refused before anything is done, unless by force.
func newFile(name string, force bool) (*unfinished, error) {
	there, err := os.Lstat(name)
	switch {
	case err == nil && there.IsDir():
		return nil, fail(exitCannotStart, "name a file, in it or elsewhere", "%s is a directory", name)
	case err == nil && !force:
		return nil, existsError(name)
	}
	temp, err := os.CreateTemp(filepath.Dir(name), filepath.Base(name)+".partial-*") // for its owner alone
	if err != nil {
		return nil, writeError(name, err)
	}
	return &unfinished{File: temp, name: name, force: force}, nil
}

func existsError(name string) error {
	return fail(exitFailed, "choose another name, or say --force to replace it", "%s is there already", name)
}

func writeError(name string, err error) error {
	return fail(exitCannotStart, "nothing was changed there; its directory must be there and writable, and have room", "cannot write %s: %v", name, err)
}

// Write adds to the file.
func (u *unfinished) Write(p []byte) (int, error) {
	n, err := u.File.Write(p)
	if err != nil {
		err = writeError(u.name, err)
	}
	return n, err
}

// keep gives the file its name.
func (u *unfinished) keep() error {
	if err := errors.Join(u.Sync(), u.Close()); err != nil {
		return writeError(u.name, err)
	}
	err := u.rename()
	switch {
	case errors.Is(err, fs.ErrExist):
		return existsError(u.name)
	case err != nil:
		return writeError(u.name, err)
	}
	return nil
}

// rename makes the new name durable. A link fails where a rename would replace what came there meanwhile.
func (u *unfinished) rename() (err error) {
	if u.force {
		err = os.Rename(u.Name(), u.name)
	} else {
		err = os.Link(u.Name(), u.name)
	}
	return errors.Join(err, durable.SyncDir(filepath.Dir(u.name)))
}

// discard removes what has no name yet; kept files stay.
func (u *unfinished) discard() error {
	_ = u.Close() // twice, if it was kept
	if err := os.Remove(u.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
