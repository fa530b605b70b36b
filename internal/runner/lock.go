package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// InUseError means that another process works on the run.
type InUseError struct {
	Dir string
	PID string // as the other process wrote it; empty if it wrote none
}

func (e *InUseError) Error() string {
	if e.PID == "" {
		return fmt.Sprintf("data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by pid %s", e.Dir, e.PID)
}

// mark is the beginning of a run's lock file. It distinguishes the data directory of a run from
// other directories with files of the same names.
const mark = "lessor run, pid "

// lockTimeout is how long lockDir waits for another process. If lessor run was killed while it
// started a command, that command has the lock for some more milliseconds, until it is executed.
const lockTimeout = time.Second

// lockDir opens the file at path and locks it until it is closed; the lock also ends with the
// process.
func lockDir(dir, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	const pause = 10 * time.Millisecond
	for deadline := time.Now().Add(lockTimeout); ; time.Sleep(pause) {
		err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if !errors.Is(err, syscall.EWOULDBLOCK) || !time.Now().Before(deadline) {
			break
		}
	}
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(&InUseError{Dir: dir, PID: ownerOf(path)}, f.Close())
	}
	if err == nil {
		err = sign(f)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// sign writes the mark over the line of an earlier process, and only then cuts off the rest, so
// that a crash never removes the mark.
func sign(f *os.File) error {
	line := mark + strconv.Itoa(os.Getpid()) + "\n"
	if _, err := f.WriteString(line); err != nil {
		return err
	}
	if err := f.Truncate(int64(len(line))); err != nil {
		return err
	}
	return f.Sync()
}

func ownerOf(path string) string {
	data, _ := os.ReadFile(path) // the PID is only for the message
	return strings.TrimSpace(strings.TrimPrefix(string(data), mark))
}
