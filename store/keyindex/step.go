package keyindex

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Bounds of a step. Each entry costs some microseconds of the loop at most, so a step may not be
// large for no reason; but if many tasks come or go, it must be, or it would never keep up with
// them.
const (
	// filledPerTask is how many entries of a new segment it moves for each task that came since the
	// last step: so many that the recent entries have become a segment long before there are as
	// many again.
	filledPerTask = 4
	// emptiedPerTask is how many entries of an old segment it looks at for each task that went
	// since the last step: half of them stay at most.
	emptiedPerTask = 2
	// sample is how many entries of a segment tell whether it is worth keeping.
	sample = 64
)

// leastOfStep is how many entries a step adds or removes at least, if there are as many.
var leastOfStep = 1000

// Changes are the changes of a step. They belong into one batch, behind those of all earlier steps.
type Changes func(*store.Batch)

// Busy reports whether Step has something to do.
func (x *Index) Busy() bool {
	return x.fills != nil || x.empties != nil || x.recent.Len() >= x.size || x.looks()
}

// looks reports whether it is time to look at a segment: twice for as many removed tasks as a
// segment has entries, and after each segment that was emptied, since there may be more of these.
func (x *Index) looks() bool {
	return len(x.segments) > 0 && (x.emptied || x.removed >= max(x.size/2, 1))
}

// Step does the next part of what there is to do. r must see the changes of all earlier steps. If
// there is nothing to change, the changes are nil.
func (x *Index) Step(r store.Reader) (Changes, error) {
	toFill, toEmpty := max(leastOfStep, filledPerTask*x.added), max(leastOfStep, emptiedPerTask*x.gone)
	x.added, x.gone = 0, 0
	if x.fills == nil && x.recent.Len() >= x.size {
		x.full, x.recent = x.recent, newEntries()
		x.fills = &filling{segment: &segment{number: x.next, filter: newFilter(x.full.Len())}}
		x.next++
		toFill = leastOfStep // all that came since the last segment was filled are no flood
	}
	if x.empties == nil && x.looks() {
		if err := x.look(r); err != nil {
			return nil, err
		}
		toEmpty = leastOfStep
	}
	var all []Changes
	if x.fills != nil {
		changes, last, err := x.fills.next(x, r, toFill)
		if err != nil {
			return nil, err
		}
		if all = append(all, changes); last {
			x.fills = nil
		}
	}
	if x.empties != nil {
		changes, last, err := x.empties.next(x, r, toEmpty)
		if err != nil {
			return nil, err
		}
		if all = append(all, changes); last {
			x.empties = nil
		}
	}
	if len(all) == 0 {
		return nil, nil
	}
	return func(b *store.Batch) {
		for _, changes := range all {
			changes(b)
		}
	}, nil
}

// look looks at the next segment in turn, and begins to empty it if it is not worth keeping.
func (x *Index) look(r store.Reader) error {
	x.removed, x.emptied = 0, false
	s := x.nextInTurn()
	gone, err := mostlyGone(r, s.number)
	if gone {
		x.empties = &emptying{segment: s}
	}
	return err
}

func (x *Index) nextInTurn() *segment {
	i := max(slices.IndexFunc(x.segments, func(s *segment) bool { return s.number > x.turn }), 0)
	x.turn = x.segments[i].number
	return x.segments[i]
}

// mostlyGone reports whether half of the tasks of a segment do not exist any more, judged by its
// first entries: they are in the order of their hashes, and so in no order of their tasks.
func mostlyGone(r store.Reader, number uint32) (bool, error) {
	seen, gone := 0, 0
	err := records.Segment(r, number, store.KeyHash{}, func(k records.KeyEntry) (bool, error) {
		has, err := records.HasKey(r, k.Task, k.Hash)
		if seen++; !has {
			gone++
		}
		return seen < sample, err
	})
	return 2*gone >= seen, err
}

// filling moves the entries of Index.full into a new segment: first it adds them there, in the
// order of their hashes; and when the store has all of them, it removes them from KeyLog, in the
// order of their tasks. Either order keeps the changes of a step on few pages.
type filling struct {
	segment *segment
	after   store.KeyHash // the last one in the segment
	filled  bool          // an earlier step has added the last entries of the segment
	from    lease.TaskID  // where to go on in KeyLog
}

// next returns the changes of the next step, and whether it is the last one.
func (f *filling) next(x *Index, r store.Reader, most int) (Changes, bool, error) {
	if !f.filled {
		return f.fill(x, most), false, nil
	}
	if x.full != nil { // from now on, look-ups find the entries in the segment
		x.full = nil
		x.segments = append(x.segments, f.segment)
	}
	return f.empty(x, r, most)
}

func (f *filling) fill(x *Index, most int) Changes {
	all := make([]records.KeyEntry, 0, min(most, x.full.Len()))
	more := false
	x.full.Ascend(records.KeyEntry{Hash: f.after}, func(k records.KeyEntry) bool {
		if k.Hash == f.after {
			return true // it is there already
		}
		if more = len(all) == most; more {
			return false
		}
		all = append(all, k)
		f.segment.filter.add(k.Hash)
		return true
	})
	f.filled = !more
	if len(all) > 0 {
		f.after = all[len(all)-1].Hash
	}
	return func(b *store.Batch) {
		for _, k := range all {
			records.PutInSegment(b, f.segment.number, k)
		}
	}
}

// empty removes from KeyLog what is not recent.
func (f *filling) empty(x *Index, r store.Reader, most int) (Changes, bool, error) {
	var all []lease.TaskID
	seen, more := 0, false
	err := records.KeyLog(r, f.from, func(k records.KeyEntry) bool {
		if more = seen == most; more {
			f.from = k.Task
			return false
		}
		seen++
		if newest, ok := x.recent.Get(k); !ok || newest.Task != k.Task {
			all = append(all, k.Task)
		}
		return true
	})
	return func(b *store.Batch) {
		for _, id := range all {
			records.DeleteFromKeyLog(b, id)
		}
	}, !more, err
}

// emptying makes the entries of a segment recent whose tasks exist, and removes all of them from
// it.
type emptying struct {
	segment *segment
}

// next returns the changes of the next step, and whether it is the last one.
func (m *emptying) next(x *Index, r store.Reader, most int) (Changes, bool, error) {
	var all []store.KeyHash
	var kept []records.KeyEntry
	more := false
	err := records.Segment(r, m.segment.number, store.KeyHash{}, func(k records.KeyEntry) (bool, error) {
		if more = len(all) == most; more {
			return false, nil
		}
		all = append(all, k.Hash)
		// it is recent itself, after a crash, or its task is gone and the key has another
		if x.inMemory(k.Hash) != nil {
			return true, nil
		}
		has, err := records.HasKey(r, k.Task, k.Hash)
		if has {
			kept = append(kept, k)
		}
		return true, err
	})
	if err != nil {
		return nil, false, err
	}
	for _, k := range kept {
		x.Add(k)
	}
	if !more {
		x.segments = slices.DeleteFunc(x.segments, func(s *segment) bool { return s == m.segment })
		x.emptied = true
	}
	return func(b *store.Batch) {
		for _, k := range kept {
			records.PutInKeyLog(b, k)
		}
		for _, hash := range all {
			records.DeleteFromSegment(b, m.segment.number, hash)
		}
	}, !more, nil
}
