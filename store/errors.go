package store

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"time"
)

// ErrClosed is what every call after Close returns. The call did nothing.
var ErrClosed = errors.New("store is closed")

// CommitError means that the outcome of a commit is unknown. The commit was not refused: after an
// I/O error of its last sync, its changes may be there when the store is opened again. CommitError
// wraps a *DamagedError if the store was found damaged while it served.
type CommitError struct {
	Err error
}

func (e *CommitError) Error() string {
	return "the outcome of changes that were not acknowledged is unknown: " + e.Err.Error()
}

func (e *CommitError) Unwrap() error { return e.Err }

// CorruptError means that a record is not what was written. The program does not guess what it was:
// a person has to restore the store from a backup, or make one of what can be read (package
// salvage).
type CorruptError struct {
	Keyspace Keyspace
	Key      []byte
	Problem  string
}

// Corrupt returns a *CorruptError with a copy of key.
func Corrupt(ks Keyspace, key []byte, problem string) error {
	return &CorruptError{Keyspace: ks, Key: bytes.Clone(key), Problem: problem}
}

func (e *CorruptError) Error() string {
	of := ""
	if id, ok := TaskOf(e.Keyspace, e.Key); ok {
		of = fmt.Sprintf(" (task %v)", id)
	}
	return fmt.Sprintf("corrupt record in %v under key %x%s: %s", e.Keyspace, e.Key, of, e.Problem)
}

// DamagedError means that the file is not a store, or no longer one that can be opened safely.
type DamagedError struct {
	Path    string
	Problem string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged or not a Lessor store: %s", e.Path, e.Problem)
}

// TornError means that the newest commit is in the file only in part, and the commit before it is
// whole. A loss of power leaves a file like that; then nobody was told of the newest commit.
// Opening the store for writing takes that commit back.
type TornError struct {
	Path    string
	Problem string // with the newest commit
}

func (e *TornError) Error() string {
	return fmt.Sprintf("the last commit to %s is incomplete: %s", e.Path, e.Problem)
}

// InUseError means that another process has the store open. PID, Host and Since are what that
// process has written about itself; they are zero if it has written nothing.
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
	return fmt.Sprintf("store %s is in use by pid %d (host %s, since %s)",
		e.Dir, e.PID, e.Host, e.Since.Format(time.RFC3339))
}

// UnfinishedError means that a restore, a compaction, or a salvage into the directory was
// interrupted, or is under way.
type UnfinishedError struct {
	Dir   string
	Name  string // name of its file there
	Store string // name of the file of a store that is there as well; usually empty, since both want an empty directory
}

func (e *UnfinishedError) Error() string {
	beside := ""
	if e.Store != "" {
		beside = ", beside the store " + e.Store
	}
	return fmt.Sprintf("a restore, compaction or salvage into %s did not finish: %s is still there%s",
		e.Dir, e.Name, beside)
}

// LostError means that a directory had a store, whose file was moved or removed since. To make an
// empty store there would hide the loss.
type LostError struct {
	Dir  string
	File string   // name of the file that is missing
	Left []string // names of the files beside it that the store has left; at least one
}

func (e *LostError) Error() string {
	return fmt.Sprintf("the store in %s is missing: there is %s, but no %s",
		e.Dir, strings.Join(e.Left, " and "), e.File)
}

// StandbyError refuses the directory of a standby. Until the standby is promoted, its store may
// only be read: a coordinator that serves it would grant the tasks of a coordinator that may still
// run, with the same fencing tokens.
type StandbyError struct {
	Dir string
}

func (e *StandbyError) Error() string {
	return fmt.Sprintf("%s is the directory of a standby that was not promoted", e.Dir)
}

// NotStandbyError means that a directory to promote is not that of a standby. After a promotion it
// is none any more.
type NotStandbyError struct {
	Dir string
}

func (e *NotStandbyError) Error() string {
	return fmt.Sprintf("%s is not the directory of a standby, or was promoted already", e.Dir)
}

// NoCopyError means that a standby cannot be promoted, because it has no complete copy of a store.
type NoCopyError struct {
	Dir        string
	Unfinished bool // it has a part of a copy
}

func (e *NoCopyError) Error() string {
	if e.Unfinished {
		return fmt.Sprintf("the standby in %s has no complete copy of a store, only one that did not finish", e.Dir)
	}
	return fmt.Sprintf("the standby in %s has no copy of a store", e.Dir)
}

// NoRoomError means that the disk has no room for a copy of a store. Nothing was written.
type NoRoomError struct {
	Dir    string // where the copy would be
	Needed int64  // bytes that it has at least
	Free   int64  // bytes that are free
}

func (e *NoRoomError) Error() string {
	return fmt.Sprintf("the disk of %s has no room for the copy: it takes at least %d bytes, and %d are free",
		e.Dir, e.Needed, e.Free)
}

// NotEmptyError refuses a restore, a compaction, or a salvage into a directory that is not empty.
type NotEmptyError struct {
	Dir  string
	Name string // name of one of the files there
}

func (e *NotEmptyError) Error() string {
	return fmt.Sprintf("%s is not empty: it contains %s", e.Dir, e.Name)
}

// NewerFormatError means that a newer version of Lessor wrote the store. It was not changed.
type NewerFormatError struct {
	Have uint32 // format of the store
	Want uint32 // newest format that this program knows
}

func (e *NewerFormatError) Error() string {
	return fmt.Sprintf("the store has format %d, but this version of Lessor reads only formats up to %d: use a newer version", e.Have, e.Want)
}
