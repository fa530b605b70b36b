package execworker

import (
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"

	"github.com/lessor-dev/lessor/internal/durable"
)

// Spool is a directory for outputs that are too large for a report.
type Spool struct {
	dir string
	own bool // see OwnSpool
}

// partial marks a file that is being written.
const partial = ".part"

// NewSpool returns the spool in dir, which any number of workers may share, of any coordinators. It
// does not make the directory: Check does, or the first file.
func NewSpool(dir string) Spool { return Spool{dir: dir} }

// OwnSpool returns the spool in dir for one process and the tasks of one store: there the file of
// an attempt has the name that SpoolName returns, and replaces what has the name.
func OwnSpool(dir string) Spool { return Spool{dir: dir, own: true} }

// Path returns the path of the file of that name.
func (s Spool) Path(name string) string { return filepath.Join(s.dir, name) }

// SpoolName returns the name of the file for one attempt, in a spool of OwnSpool.
func SpoolName(taskID string, attempt uint32) string {
	return fmt.Sprintf("%s.%d", url.PathEscape(taskID), attempt)
}

// name returns the name of the file for one attempt. The ids of tasks are unique only within their
// store: each new store begins with the same ones. In a shared spool, the random part keeps the
// file of one task from replacing the result of another.
func (s Spool) name(taskID string, attempt uint32) string {
	if s.own {
		return SpoolName(taskID, attempt)
	}
	return SpoolName(taskID, attempt) + "." + strings.ToLower(rand.Text())
}

// Check makes the directory and creates a file there as a test, so that a worker that cannot write
// there fails at its start, and not with its first large output.
func (s Spool) Check() error {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return err
	}
	f, err := os.CreateTemp(s.dir, "check-*"+partial)
	if err != nil {
		return err
	}
	return errors.Join(f.Close(), os.Remove(f.Name()))
}

// Remove removes a file, if it exists.
func (s Spool) Remove(name string) error {
	if err := os.Remove(s.Path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Clean removes the unfinished files of workers that died. No other process may use the spool
// meanwhile.
func (s Spool) Clean() error {
	left, err := fs.Glob(os.DirFS(s.dir), "*"+partial) // filepath.Glob would read a [ in dir as part of the pattern
	if err != nil {
		return err
	}
	for _, name := range left {
		if err := s.Remove(name); err != nil {
			return err
		}
	}
	return nil
}

// create makes an unfinished file for name.
func (s Spool) create(name string) (*os.File, error) {
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return nil, err
	}
	exists := os.O_EXCL // refuse it
	if s.own {
		exists = os.O_TRUNC
	}
	return os.OpenFile(s.Path(name+partial), os.O_WRONLY|os.O_CREATE|exists, 0o600)
}

// keep gives a file from create its name, and makes both durable, because the report that follows
// says that the file exists.
func (s Spool) keep(f *os.File, name string) error { return durable.Keep(f, s.Path(name)) }

// discard closes and removes an unfinished file.
func (s Spool) discard(f *os.File, name string) {
	_ = f.Close()
	_ = s.Remove(name + partial)
}
