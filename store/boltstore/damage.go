package boltstore

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"

	"go.etcd.io/bbolt"
	bolterrors "go.etcd.io/bbolt/errors"

	"github.com/lessor-dev/lessor/store"
)

// A store can be damaged while it serves, after the check has found it sound: the disk returns an
// error or other bytes for a page, or somebody cuts the file off or writes into it. Then bbolt
// panics, or an access to the mapped file faults. The functions here make the store fail instead,
// so that its callers learn why. They cannot do so if damaged pages lead bbolt into an endless loop
// or recursion.
//
// A panic may leave bbolt in the middle of a call, with its locks held. After that the store must
// not call bbolt any more, because the call may never return.

// guarded calls do, which reads pages, and returns its error. If do meets damage, the store fails.
func (s *Store) guarded(do func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		switch p := recover(); {
		case p == nil:
		case isFault(p):
			err = s.failDamaged(errors.New("a part of it cannot be read: the disk has a fault, or the file was cut off"))
		case inBbolt():
			err = s.failDamaged(fmt.Errorf("%v", p))
		default: // a bug of our own
			panic(p)
		}
	}()
	return do()
}

// guardedCall is guarded for a do that holds locks of bbolt if it panics.
func (s *Store) guardedCall(do func() error) error {
	return s.guarded(func() error {
		ended := false
		defer func() {
			if !ended {
				s.stuck.Store(true) // before the store fails, because then it may be closed
			}
		}()
		err := do()
		ended = true
		return err
	})
}

func (s *Store) failDamaged(problem error) error { return s.fail(damaged(s.path, problem)) }

// isFault reports whether a panic is an access to an address at which nothing can be read. A nil
// pointer is not one.
func isFault(p any) bool {
	_, ok := p.(interface {
		runtime.Error
		Addr() uintptr
	})
	return ok
}

// inBbolt reports whether the panic that the caller has recovered arose in a call of bbolt.
func inBbolt() bool {
	callers := make([]uintptr, 64)
	frames := runtime.CallersFrames(callers[:runtime.Callers(0, callers)])
	panicked := false
	for {
		frame, more := frames.Next()
		switch {
		case frame.Function == "runtime.gopanic":
			panicked = true
		case panicked && strings.HasPrefix(frame.Function, "go.etcd.io/bbolt"):
			return true
		case panicked && strings.HasPrefix(frame.Function, "github.com/lessor-dev/lessor/"), !more:
			return false
		}
	}
}

// begin begins a transaction of bbolt, in the newest state, which may not be durable yet.
func (s *Store) begin(writable bool) (tx *bbolt.Tx, err error) {
	err = s.guarded(s.probe)
	if err == nil {
		err = s.guardedCall(func() (err error) {
			tx, err = s.db.Begin(writable)
			return err
		})
	}
	if errors.Is(err, bolterrors.ErrDatabaseNotOpen) {
		err = store.ErrClosed
	}
	return tx, err
}

// probe reads the meta pages before bbolt does: bbolt would hold the lock that all transactions
// need if it panicked there.
func (s *Store) probe() error {
	_, first := parseMeta(s.metaPages)
	_, second := parseMeta(s.metaPages[s.pageSize:])
	if !first && !second {
		return s.failDamaged(errors.New("it has no valid meta page"))
	}
	return nil
}

// mapMetaPages maps the two meta pages of the file at path.
func mapMetaPages(path string, pageSize int) ([]byte, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	pages, err := syscall.Mmap(int(file.Fd()), 0, 2*pageSize, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", path, err)
	}
	return pages, nil
}

// requireNewest fails the store if a transaction begins with an older commit than expected: then
// the meta page of the newest commit is damaged, and bbolt uses that of the commit before. A commit
// that begins there would overwrite what was acknowledged.
func (s *Store) requireNewest(found, expected int) error {
	if found < expected {
		return s.failDamaged(fmt.Errorf("the meta page of commit %d, its newest, was changed", expected))
	}
	return nil
}
