package runner

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// InUseError means that another process works on the run.
type InUseError struct {
	Dir string
	PID string // as the other process wrote it; empty where it left none
}

func (e *InUseError) Error() string {
	if e.PID == "" {
		return fmt.Sprintf("data directory %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("data directory %s is in use by pid %s", e.Dir, e.PID)
}

// lockDir holds the file at path locked until it is closed; the lock also ends with the process.
func lockDir(dir, path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		return nil, errors.Join(&InUseError{Dir: dir, PID: ownerOf(path)}, f.Close())
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = f.WriteString(strconv.Itoa(os.Getpid()) + "\n")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

func ownerOf(path string) string {
	data, _ := os.ReadFile(path) // it is only for the message
	return strings.TrimSpace(string(data))
}
