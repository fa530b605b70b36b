package main

import (
	"crypto/rand"
	"errors"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/lessor-dev/lessor/internal/durable"
)

// pendingFile is a file that gets its name in one step, when all of its content is on the disk.
// Until then, its name says that it is partial.
type pendingFile struct {
	*os.File
	name  string
	force bool // may replace a file that has the name
	link  func(oldname, newname string) error
	sync  func(dir string) error
}

// Permissions of a pendingFile.
const (
	secret = 0o600 // only its owner may read it
	public = 0o666 // less the umask
)

// newPendingFile begins a file. It refuses a name that exists already, unless force is set. Even
// then it replaces only a regular file: otherwise root could replace /dev/stdout for every process
// of the machine. It also refuses -, which elsewhere means standard output.
func newPendingFile(name string, force bool, perm fs.FileMode) (*pendingFile, error) {
	if name == "-" {
		return nil, fail(exitUsage, "name a file; one whose name is - is ./-",
			"-: only a file can be flushed and get its name in one step, not standard output")
	}
	there, err := os.Lstat(name)
	switch {
	case err == nil && there.IsDir():
		return nil, fail(exitCannotStart, "name a file, in it or elsewhere", "%s is a directory", name)
	case err == nil && !there.Mode().IsRegular():
		return nil, fail(exitCannotStart, "name a new file or one that can be replaced",
			"%s is a link, a device or a pipe", name)
	case err == nil && !force:
		return nil, existsError(name)
	}
	temp, err := os.OpenFile(name+".partial-"+rand.Text()[:10], os.O_RDWR|os.O_CREATE|os.O_EXCL, perm)
	if err != nil {
		return nil, writeError(name, err)
	}
	return &pendingFile{File: temp, name: name, force: force, link: os.Link, sync: durable.SyncDir}, nil
}

func existsError(name string) error {
	return fail(exitFailed, "choose another name, or use --force to replace it", "%s already exists", name)
}

func writeError(name string, err error) error {
	return fail(exitCannotStart, "nothing was changed; the directory of the file must exist, be writable and have free space", "cannot write %s: %v", name, err)
}

// Write adds to the file.
func (u *pendingFile) Write(p []byte) (int, error) {
	n, err := u.File.Write(p)
	if err != nil {
		err = writeError(u.name, err)
	}
	return n, err
}

// keep flushes the file to the disk and gives it its name.
func (u *pendingFile) keep() error {
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
	if err := u.sync(filepath.Dir(u.name)); err != nil {
		return fail(exitCannotStart, "the file is complete, but a loss of power may take it away: check the disk, then write the file again",
			"cannot flush the directory of %s: %v", u.name, err)
	}
	return nil
}

// rename gives the file its name. Without force it makes a link, because a link fails if somebody
// made a file with that name in the meantime, and a rename does not. If the file system has no
// links, such as that of some network disks, it renames.
func (u *pendingFile) rename() (err error) {
	linked := false
	if !u.force {
		if err = u.link(u.Name(), u.name); errors.Is(err, fs.ErrExist) {
			return err
		}
		linked = err == nil
		if _, there := os.Lstat(u.name); !linked && there == nil {
			return fs.ErrExist
		}
	}
	if !linked {
		err = os.Rename(u.Name(), u.name)
	}
	return err
}

// discard removes a file that was not kept; it does nothing to one that was.
func (u *pendingFile) discard() error {
	_ = u.Close() // closed already, if it was kept
	if err := os.Remove(u.Name()); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}
