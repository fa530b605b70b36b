package keyindex

import (
	"bytes"
	"math/rand/v2"
	"slices"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Index finds tasks by their idempotency keys. Only one goroutine may use it.
type Index struct {
	size     int // of a segment
	recent   entries
	full     entries    // those that become a segment now; nil: none do
	segments []*segment // by number
	next     uint32     // number of the next segment
	older    bool       // there may be keys in Idempotency

	added   int       // recent entries since the last step
	gone    int       // tasks with keys that were removed since the last step
	removed int       // the same, since a segment was looked at
	emptied bool      // a segment was emptied since a segment was looked at
	turn    uint32    // number of the segment that was looked at last
	fills   *filling  // nil: no segment is being filled
	empties *emptying // nil: no segment is being emptied
}

// DefaultSegmentSize keeps what is in memory of the recent entries at some 5 MiB, twice that while
// they become a segment.
const DefaultSegmentSize = 1 << 16

// segment is a segment on disk.
type segment struct {
	number uint32
	filter filter // nil: not read yet
}

// entries are entries in memory, by hash.
type entries = ordered.Set[records.KeyEntry]

func newEntries() entries {
	return ordered.NewSet(func(a, b records.KeyEntry) bool { return bytes.Compare(a.Hash[:], b.Hash[:]) < 0 })
}

// Load reads the recent entries and the numbers of the segments. Until their filters are read
// (Unread), look-ups ask all of these on the disk. size is how many recent entries become a
// segment.
func Load(r store.Reader, size int) (*Index, error) {
	x := &Index{size: size, recent: newEntries()}
	if err := records.KeyLog(r, lease.TaskID{}, func(k records.KeyEntry) bool { x.recent.Set(k); return true }); err != nil {
		return nil, err
	}
	numbers, err := records.Segments(r)
	if err != nil {
		return nil, err
	}
	for _, number := range numbers {
		x.segments = append(x.segments, &segment{number: number})
		x.next = number + 1
	}
	if len(numbers) > 0 {
		// Each start looks at a segment, since nobody has counted the tasks that were removed
		// before: any, because those before the first that is worth keeping would be looked at
		// again and again.
		x.turn, x.emptied = numbers[rand.IntN(len(numbers))], true
		if err := x.undoFilling(r); err != nil {
			return nil, err
		}
	}
	x.older, err = records.HasOlderKeys(r)
	return x, err
}

// undoFilling begins to empty the last segment if its entries are still in KeyLog, at least some:
// the filling did not end before the process did. The entries will be filled into another segment,
// and without this, each crash might leave one more segment behind.
func (x *Index) undoFilling(r store.Reader) error {
	last := x.segments[len(x.segments)-1]
	return records.Segment(r, last.number, store.KeyHash{}, func(k records.KeyEntry) (bool, error) {
		if recent, ok := x.recent.Get(k); ok && recent.Task == k.Task {
			x.empties = &emptying{segment: last}
		}
		return false, nil
	})
}

// Add adds the entry of a new task, which the caller puts into KeyLog.
func (x *Index) Add(k records.KeyEntry) {
	x.recent.Set(k) // if the key had an entry, the task of that entry has been removed
	x.added++
}

// Removed counts a task with a key that was removed.
func (x *Index) Removed() {
	x.gone++
	x.removed++
}

// MayHave reports whether Find may find a key. It reads nothing.
func (x *Index) MayHave(hash store.KeyHash) bool {
	if x.older || x.inMemory(hash) != nil {
		return true
	}
	return slices.ContainsFunc(x.segments, func(s *segment) bool { return s.filter.has(hash) })
}

// Find returns the task that was submitted with an idempotency key and still exists, and the digest
// of its spec.
func (x *Index) Find(
	r store.Reader, space uint32, key string,
) (id lease.TaskID, d lease.Digest, found bool, err error) {
	hash := store.HashOfKey(space, key)
	if k := x.inMemory(hash); k != nil {
		if found, err := records.HasKey(r, k.Task, hash); found || err != nil {
			return k.Task, k.Digest, found, err
		}
	}
	for _, s := range slices.Backward(x.segments) {
		if !s.filter.has(hash) {
			continue
		}
		k, err := records.InSegment(r, s.number, hash)
		if err != nil {
			return id, d, false, err
		}
		if k == nil {
			continue
		}
		if found, err := records.HasKey(r, k.Task, hash); found || err != nil {
			return k.Task, k.Digest, found, err
		}
	}
	if x.older {
		return records.OlderTaskByKey(r, space, key)
	}
	return id, d, false, nil
}

// inMemory returns the newest entry of a hash in memory, or nil.
func (x *Index) inMemory(hash store.KeyHash) *records.KeyEntry {
	for _, all := range []entries{x.recent, x.full} {
		if all == nil {
			continue
		}
		if k, ok := all.Get(records.KeyEntry{Hash: hash}); ok {
			return &k
		}
	}
	return nil
}

// Unread returns the numbers of the segments whose filters are not read yet.
func (x *Index) Unread() (all []uint32) {
	for _, s := range x.segments {
		if s.filter == nil {
			all = append(all, s.number)
		}
	}
	return all
}

// Filter is what ReadFilter has read.
type Filter struct {
	segment uint32
	filter  filter
}

// ReadFilter reads the filter of a segment. It reads the segment in several parts, so that each
// view is short. It may run beside everything else.
func ReadFilter(view func(func(store.Reader) error) error, number uint32) (Filter, error) {
	const part = 4096
	var all []store.KeyHash
	for more := true; more; {
		more = false
		err := view(func(r store.Reader) error {
			var after store.KeyHash
			if len(all) > 0 {
				after = all[len(all)-1]
			}
			most := len(all) + part
			return records.HashesOfSegment(r, number, after, func(hash store.KeyHash) bool {
				all = append(all, hash)
				more = len(all) == most
				return !more
			})
		})
		if err != nil {
			return Filter{}, err
		}
	}
	f := newFilter(len(all))
	for _, hash := range all {
		f.add(hash)
	}
	return Filter{number, f}, nil
}

// SetFilter begins to use a filter. Since it was read, entries may have left its segment, but none
// have joined it.
func (x *Index) SetFilter(f Filter) {
	for _, s := range x.segments {
		if s.number == f.segment {
			s.filter = f.filter
		}
	}
}
