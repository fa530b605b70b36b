package store

import (
	"context"
	"encoding/binary"
	"fmt"

	"github.com/lessor-dev/lessor/lease"
)

// Migration brings a store from one format to the next.
type Migration struct {
	// Name says in a few words what changes. It is part of the error if the migration fails.
	Name string
	// Apply reads the old state and adds to b what has to change. Its changes and the new format
	// are one commit, so that a crash leaves either the old store or the new one.
	Apply func(r Reader, b *Batch) error
}

// Migrations is the history of the layout, oldest first: a store starts at format 1, and each
// migration leads to the next. Entries are only ever added at the end.
type Migrations []Migration

// Current returns the migrations up to the layout of doc.go.
func Current() Migrations {
	return Migrations{
		{Name: "lines are known by their tasks", Apply: dropLines},
		{Name: "tasks have requirements, trace metadata and last words", Apply: noChange},
		{Name: "credentials and audit", Apply: noChange},
		// an older spec has a record of the task beside it
		{Name: "a spec tells how its task was at first", Apply: noChange},
		{Name: "a queue tells how far its rate limit is used up", Apply: noChange},
		// a queue that has not counted them is kept
		{Name: "the sums have a checksum, and queues count ended tasks", Apply: noChange},
		{Name: "tasks are found by their run", Apply: markOlderTasks},
		// keys of older tasks stay in Idempotency
		{Name: "tasks may require a package, keys are in segments, and timers in a log", Apply: noChange},
		// those of older tasks stay together: see records.Space
		{Name: "queues count ended tasks by their state", Apply: noChange},
	}
}

// noChange changes nothing. It is for a format whose new keyspaces and fields are empty in older
// stores, and whose older records are still read as they are.
func noChange(Reader, *Batch) error { return nil }

// dropLines empties Line. Everything else that is new in format 2 is empty in a store of format 1.
func dropLines(r Reader, b *Batch) error {
	return r.Scan(Line, nil, nil, func(key, _ []byte) bool {
		b.Delete(Line, key)
		return true
	})
}

// FirstWithRun is the first format that has Run.
const FirstWithRun = 8

// OlderTasks is the group in Run that holds, for each space that is older than that format, its
// newest task at that time. Tasks up to this one may be missing in Run. Adding all of them would
// keep a large store from starting for minutes; they become fewer as their retention ends.
const OlderTasks = 0

// markOlderTasks adds OlderTasks.
func markOlderTasks(r Reader, b *Batch) error {
	for space, next := uint32(0), []byte{}; next != nil; next = PrefixEnd(AppendSpacePrefix(nil, space)) {
		oldest, err := firstTask(r, next)
		if err != nil || oldest == nil {
			return err
		}
		space = oldest.Space
		newest := *oldest
		for step := uint64(1) << 63; step > 0; step >>= 1 { // keys can only be searched upwards
			further := lease.TaskID{Space: space, Seq: newest.Seq + step}
			if further.Seq < newest.Seq {
				continue
			}
			beyond, err := firstTask(r, AppendTaskKey(nil, further))
			if err != nil {
				return err
			}
			if beyond != nil && beyond.Space == space {
				newest = further
			}
		}
		b.Put(Run, AppendGroupKey(nil, OlderTasks, newest), nil)
	}
	return nil
}

// firstTask returns the first task from a key on; nil if there is none.
func firstTask(r Reader, from []byte) (*lease.TaskID, error) {
	key, err := FirstKey(r, Spec, from)
	if err != nil || key == nil {
		return nil, err
	}
	id, err := ParseTaskKey(Spec, key)
	return &id, err
}

// Format is the number of the newest format.
func (m Migrations) Format() uint32 { return uint32(1 + len(m)) }

// Stamp adds to b the record which says that an empty store has the newest format.
func (m Migrations) Stamp(b *Batch) { putFormat(b, m.Format()) }

// Upgrade brings s to the newest format, one commit for each migration that it lacks. The error is
// a *NewerFormatError if s has a newer format than m, and a *CorruptError if the format of s cannot
// be read.
func (m Migrations) Upgrade(ctx context.Context, s Store) error {
	have, err := m.Check(s)
	if err != nil {
		return err
	}
	for ; have < m.Format(); have++ {
		if err := m[have-1].run(ctx, s, have+1); err != nil {
			return fmt.Errorf("migration to format %d (%s): %w", have+1, m[have-1].Name, err)
		}
	}
	return nil
}

// Check returns the format of s, and the error that Upgrade would return before it begins.
func (m Migrations) Check(s Store) (have uint32, err error) {
	err = s.View(func(r Reader) (err error) {
		have, err = ReadFormat(r)
		return err
	})
	if err == nil && have > m.Format() {
		err = &NewerFormatError{Have: have, Want: m.Format()}
	}
	return have, err
}

func (m Migration) run(ctx context.Context, s Store, to uint32) error {
	var b Batch
	if err := s.View(func(r Reader) error { return m.Apply(r, &b) }); err != nil {
		return err
	}
	putFormat(&b, to)
	return s.Commit(ctx, &b)
}

// formatVersion is the version byte of the format record. This one record must stay readable for
// ever, so that any version of Lessor can tell a newer store from a broken one.
const formatVersion = 1

func putFormat(b *Batch, format uint32) {
	b.PutSealed(Meta, []byte(MetaFormat), formatVersion, binary.BigEndian.AppendUint32(nil, format))
}

// ReadFormat reads the format of a store. The error is a *CorruptError.
func ReadFormat(r Reader) (uint32, error) { return ParseFormat(r.Get(Meta, []byte(MetaFormat))) }

// ParseFormat parses the record that contains the format of a store. The error is a *CorruptError.
func ParseFormat(value []byte) (uint32, error) {
	key := []byte(MetaFormat)
	_, payload, err := Open(Meta, key, value)
	if err != nil {
		return 0, err
	}
	if len(payload) != 4 || binary.BigEndian.Uint32(payload) == 0 {
		return 0, Corrupt(Meta, key, "it is not a format number")
	}
	return binary.BigEndian.Uint32(payload), nil
}
