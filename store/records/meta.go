package records

import (
	"cmp"
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Identity identifies a store: its epoch and the secret key that signs its leases. A lease of
// another store, or of a copy of this one, does not match it.
type Identity struct {
	Epoch uint32
	Key   []byte
	// KnownFrom is the first epoch of which the store has all grants: 1, or the one that began when
	// it was last made from a backup, a standby or a damaged store. Where it is not known it is
	// Epoch; 0 is stored as that.
	KnownFrom uint32
}

func identityFields(c *codec, i *Identity) {
	num(c, &i.Epoch)
	c.bytes(&i.Key)
	switch {
	case c.reading && len(c.in) == 0: // as all records were before the field was added
		i.KnownFrom = i.Epoch
	case c.reading:
		if num(c, &i.KnownFrom); i.KnownFrom == 0 || i.KnownFrom >= i.Epoch {
			c.fail()
		}
	case i.KnownFrom > 0 && i.KnownFrom < i.Epoch:
		num(c, &i.KnownFrom)
	}
}

// PutIdentity stores the identity.
func PutIdentity(b *store.Batch, i Identity) {
	put(b, store.Meta, []byte(store.MetaIdentity), &i, identityFields)
}

// ReadIdentity reads the identity; found is false in a new store.
func ReadIdentity(r store.Reader) (i Identity, found bool, err error) {
	kept, err := read(r, store.Meta, []byte(store.MetaIdentity), identityFields)
	if kept == nil {
		return Identity{}, false, err
	}
	return *kept, true, nil
}

func clockFields(c *codec, i *lease.Instant) { num(c, i) }

// PutClock stores a reading of the serving clock (A9).
func PutClock(b *store.Batch, i lease.Instant) {
	put(b, store.Meta, []byte(store.MetaClock), &i, clockFields)
}

// ServingClock reads the last stored reading of the serving clock; 0 in a new store.
func ServingClock(r store.Reader) (lease.Instant, error) {
	kept, err := read(r, store.Meta, []byte(store.MetaClock), clockFields)
	if kept == nil {
		return 0, err
	}
	return *kept, nil
}

// Backups tells when a backup was last sent completely, and when one last failed; 0: never. In a
// backup these are the times of earlier backups.
type Backups struct {
	Done, Failed lease.Wall
}

func backupsFields(c *codec, b *Backups) {
	num(c, &b.Done)
	num(c, &b.Failed)
}

// PutBackups stores the times of the last backups.
func PutBackups(to *store.Batch, b Backups) {
	put(to, store.Meta, []byte(store.MetaBackups), &b, backupsFields)
}

// LastBackups reads the times of the last backups.
func LastBackups(r store.Reader) (Backups, error) {
	kept, err := read(r, store.Meta, []byte(store.MetaBackups), backupsFields)
	if kept == nil {
		return Backups{}, err
	}
	return *kept, nil
}

// Position says which state a store is in: the one that a commit with this number made, in that run
// of a coordinator. Two stores that have one origin, and whose positions are equal, have the same
// records, unless a program that keeps no position has changed one of them.
type Position struct {
	Run    uint64 // a random number, new at each start of a coordinator; not 0
	Number uint64 // of the commit, from 1
}

// timedPosition is a position, and when the commit was written.
type timedPosition struct {
	Position
	at lease.Wall
}

func positionFields(c *codec, p *Position) {
	num(c, &p.Run)
	num(c, &p.Number)
}

func timedPositionFields(c *codec, p *timedPosition) {
	positionFields(c, &p.Position)
	num(c, &p.at)
}

// PutPosition stores the position of the state that the commit of b makes, and when that commit is
// written: later than all before it.
func PutPosition(b *store.Batch, p Position, at lease.Wall) {
	put(b, store.Meta, []byte(store.MetaPosition), &timedPosition{p, at}, timedPositionFields)
}

// PositionOf reads the position, and when its commit was written; both are zero in a store that
// never had a standby.
func PositionOf(r store.Reader) (Position, lease.Wall, error) {
	kept, err := read(r, store.Meta, []byte(store.MetaPosition), timedPositionFields)
	if kept == nil {
		return Position{}, 0, err
	}
	return kept.Position, kept.at, nil
}

// maxLineage is how many earlier runs a store remembers. So their record fits into one page of the
// disk with what else is in Meta, which each commit changes.
const maxLineage = 256

func lineageFields(c *codec, l *[]Position) { list(c, l, positionFields) }

// PutLineage stores the lineage.
func PutLineage(b *store.Batch, l []Position) {
	put(b, store.Meta, []byte(store.MetaLineage), &l, lineageFields)
}

// Lineage reads for each earlier run whose commits the store has, the newest run last, the number
// up to which it has them. It lacks those with a higher number, and somebody may have been told of
// them. Runs without a position are not listed, nor those before the last 256.
func Lineage(r store.Reader) ([]Position, error) {
	kept, err := read(r, store.Meta, []byte(store.MetaLineage), lineageFields)
	if kept == nil {
		return nil, err
	}
	return *kept, nil
}

// Descend returns the lineage of a store that goes on in another run, or another epoch, after
// having had such a lineage and the commits up to p.
func Descend(l []Position, p Position) []Position {
	l = append(slices.Clip(l), p)
	return l[max(0, len(l)-maxLineage):]
}

// Space is a workspace of a tenant, with its number and the sequence number of its next task.
type Space struct {
	Tenant, Workspace string
	Number            uint32
	NextSeq           uint64
	// No task or event has a sequence from LostFrom to before LostTo: the newest restore left them
	// out. Both are 0 if there was none.
	LostFrom, LostTo uint64
	// CountedFrom is the sequence from which on queues count ended tasks by their state; they count
	// those with earlier ones in Queue.Older. 0 in a space that was made in format 10 or later.
	CountedFrom uint64
}

func spaceFields(c *codec, s *Space) {
	num(c, &s.Number)
	num(c, &s.NextSeq)
	if c.since(6) {
		num(c, &s.LostFrom)
		num(c, &s.LostTo)
	}
	if c.since(10) {
		num(c, &s.CountedFrom)
	} else {
		s.CountedFrom = s.NextSeq // any change of it writes the record anew
	}
}

// PutSpace stores a space.
func PutSpace(b *store.Batch, s Space) {
	put(b, store.Space, store.AppendTenantKey(nil, s.Tenant, s.Workspace), &s, spaceFields)
}

// SpaceOf reads the space of a workspace; nil if the workspace has none yet.
func SpaceOf(r store.Reader, tenant, workspace string) (*Space, error) {
	s, err := read(r, store.Space, store.AppendTenantKey(nil, tenant, workspace), spaceFields)
	if s != nil {
		s.Tenant, s.Workspace = tenant, workspace
	}
	return s, err
}

// Spaces calls fn with every space.
func Spaces(r store.Reader, fn func(Space) error) error {
	return each(r, store.Space, spaceFields, func(key []byte, s *Space) (err error) {
		s.Tenant, s.Workspace, err = store.ParseTenantKey(store.Space, key)
		return err
	}, fn)
}

// Queue is a queue with its counts of tasks. Parked tasks wait for their concurrency key; they are
// part of Ready. Older are the ended tasks, in whatever state, that were submitted before the store
// had format 10, which counts the others by their state; see Space.CountedFrom and OlderKnown.
type Queue struct {
	Space                            uint32
	Name                             string
	CreatedAt                        lease.Wall
	Ready, Scheduled, Leased, Parked uint64
	Completed, Failed, Cancelled     uint64
	Older                            uint64
	// Bucket is that of the rate limit; nil: there is none, or the record is older than format 6.
	Bucket *lease.Bucket
}

// Add counts a task of the queue. countedFrom is that of its space.
func (q *Queue) Add(t *lease.Task, countedFrom uint64) {
	switch {
	case t.Lease != nil:
		q.Leased++
	case t.Rest == lease.Ready:
		q.Ready++
	case t.Rest == lease.Scheduled:
		q.Scheduled++
	case t.ID.Seq < countedFrom:
		q.Older++
	case t.Rest == lease.Completed:
		q.Completed++
	case t.Rest == lease.Failed:
		q.Failed++
	default:
		q.Cancelled++
	}
	if t.Parked {
		q.Parked++
	}
}

// olderUnknown is what Older begins with in a queue from before format 7, which did not count ended
// tasks. Later changes add to it or subtract from it.
const olderUnknown = 1 << 63

// OlderKnown reports whether a number of ended tasks, as in Queue.Older, is right.
func OlderKnown(n uint64) bool { return n < olderUnknown/2 }

func queueFields(c *codec, q *Queue) {
	num(c, &q.CreatedAt)
	num(c, &q.Ready)
	num(c, &q.Scheduled)
	num(c, &q.Leased)
	if c.since(2) {
		num(c, &q.Parked)
	}
	if c.since(6) {
		optional(c, &q.Bucket, bucketFields)
	}
	if c.since(7) {
		num(c, &q.Older) // in formats 7 to 9, all ended tasks
	} else {
		q.Older = olderUnknown
	}
	if c.since(10) {
		num(c, &q.Completed)
		num(c, &q.Failed)
		num(c, &q.Cancelled)
	}
}

func bucketFields(c *codec, b *lease.Bucket) {
	c.float(&b.Used)
	num(c, &b.At)
}

// DeleteQueue deletes a queue.
func DeleteQueue(b *store.Batch, space uint32, name string) {
	b.Delete(store.Queue, store.AppendNameKey(nil, space, name))
}

// PutQueue stores a queue.
func PutQueue(b *store.Batch, q Queue) {
	put(b, store.Queue, store.AppendNameKey(nil, q.Space, q.Name), &q, queueFields)
}

// Queues calls fn with every queue.
func Queues(r store.Reader, fn func(Queue) error) error {
	return each(r, store.Queue, queueFields, func(key []byte, q *Queue) (err error) {
		q.Space, q.Name, err = store.ParseNameKey(store.Queue, key)
		return err
	}, fn)
}

func settingsFields(c *codec, s *lease.Settings) {
	pauseField(c, s)
	num(c, &s.MaxInflight)
	c.float(&s.Rate.PerSecond)
	num(c, &s.Rate.Burst)
	policyFields(c, &s.Retry)
	table(c, &s.Weights, (*codec).float)
}

// pauseField is 0 for a queue that is not paused, 1 for one that is paused since a time that is not
// known, and otherwise that time. Records did not always have the time, but always the 0 or 1.
func pauseField(c *codec, s *lease.Settings) {
	at := lease.Wall(0)
	if s.Paused {
		at = cmp.Or(s.PausedAt, 1)
	}
	if num(c, &at); !c.reading {
		return
	}
	if s.Paused = at != 0; at != 1 {
		s.PausedAt = at
	}
}

// PutSettings stores the settings of a queue.
func PutSettings(b *store.Batch, space uint32, queue string, s *lease.Settings) {
	put(b, store.Settings, store.AppendNameKey(nil, space, queue), s, settingsFields)
}

// Settings calls fn with the settings of every queue that has any.
func Settings(r store.Reader, fn func(space uint32, queue string, s *lease.Settings) error) error {
	return scan(r, store.Settings, nil, nil, func(key, value []byte) (bool, error) {
		s := new(lease.Settings)
		space, queue, err := store.ParseNameKey(store.Settings, key)
		if err == nil {
			err = decode(store.Settings, key, value, s, settingsFields)
		}
		if err != nil {
			return false, err
		}
		return true, fn(space, queue, s)
	})
}
