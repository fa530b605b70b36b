package store

import (
	"bytes"
	"errors"
	"fmt"
	"time"
)

// ErrClosed is returned by every call after Close; nothing was done.
var ErrClosed = errors.New("store is closed")

// CommitError means that the outcome of a commit is unknown, not that it was refused: after an I/O error on the last sync
// of a commit its changes may well be there when the store is opened again. A *DamagedError in it was found beside the service.
type CommitError struct {
	Err error
}

func (e *CommitError) Error() string {
	return "the outcome of what was not acknowledged is unknown: " + e.Err.Error()
}

func (e *CommitError) Unwrap() error { return e.Err }

// CorruptError means that a record is not what was written. There is no guess at what it was: the store has to be
// restored from a backup, or the record to be looked at by a person.
type CorruptError struct {
	Keyspace Keyspace
	Key      []byte
	Problem  string
}

func corrupt(ks Keyspace, key []byte, problem string) error {
	return &CorruptError{Keyspace: ks, Key: bytes.Clone(key), Problem: problem}
}

func (e *CorruptError) Error() string {
	return fmt.Sprintf("corrupt record in %v under key %x: %s", e.Keyspace, e.Key, e.Problem)
}

// DamagedError means that the file is not a store, or no longer one that can be opened safely.
type DamagedError struct {
	Path    string
	Problem string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged or not a Lessor store: %s", e.Path, e.Problem)
}

// TornError means that not all of the newest commit is in the file, and all of the one before is: as a loss of power leaves it, in which case nobody was told of that commit. Whoever
// opens the store to change it takes the commit back.
type TornError struct {
	Path    string
	Problem string // with the newest commit
}

func (e *TornError) Error() string {
	return fmt.Sprintf("the last commit to %s is not whole: %s", e.Path, e.Problem)
}

// InUseError means that another process has the store open. What it says of that process is the process's own word and
// zero where it left none.
type InUseError struct {
	Dir   string
	PID   int
	Host  string
	Since time.Time
}

func (e *InUseError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("store %s is in use by another process", e.Dir)
	}
	return fmt.Sprintf("store %s is in use by pid %d (host %s, since %s)", e.Dir, e.PID, e.Host, e.Since.Format(time.RFC3339))
}

// UnfinishedError means that a restore into the directory did not come to its end.
type UnfinishedError struct {
	Dir  string
	Name string // of what it left there
}

func (e *UnfinishedError) Error() string {
	return fmt.Sprintf("a restore into %s did not come to its end: it left %s there, and no store", e.Dir, e.Name)
}

// NotEmptyError means that a store was to be restored where there is something.
type NotEmptyError struct {
	Dir  string
	Name string // of what is there, among others
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("%s is not empty: %s is in it", e.Dir, e.Name)
}

// NewerFormatError means that a newer version of Lessor wrote the store. It was not changed.
type NewerFormatError struct {
	Have uint32 // format of the store
	Want uint32 // newest format that this program knows
}

func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("the store has format %d, this version of Lessor reads up to %d: use a newer version", e.Have, e.Want)
}
