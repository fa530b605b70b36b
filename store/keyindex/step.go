package keyindex

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Bounds of a step.
const (
	// leastOfStep is how many entries a step moves or removes. It is more if many tasks come: four times as many as came since the last step, so that
	// the recent entries have become a segment before the next ones fill up.
	leastOfStep = 1000
	// mostRead is how many entries of a segment a step reads that also has to read their tasks.
	mostRead = 1000
	// sample is how many entries of a segment tell whether it is worth keeping.
	sample = 64
)

// stepper does something in several steps. Each returns the changes to be made, and whether it was the last one.
type stepper interface {
	next(x *Index, r store.Reader, most int) (Changes, bool, error)
}

// Changes are the changes of a step. They belong into one batch, after those of all earlier steps.
type Changes func(*store.Batch)

// Busy reports whether Step has something to do.
func (x *Index) Busy() bool {
	return x.step != nil || x.recent.Len() >= x.size || x.looks()
}

// looks reports whether it is time to look at a segment: twice for as many removed tasks as a segment has entries, and after each segment that was emptied,
// since there may be more of these.
func (x *Index) looks() bool {
	return len(x.segments) > 0 && (x.emptied || x.removed >= max(x.size/2, 1))
}

// Step does the next part of what there is to do. batch is the number of the batch that gets the changes; durable is the number of the last batch whose changes
// r sees. The changes are nil if there are none, or if they have to wait for a batch.
func (x *Index) Step(r store.Reader, batch, durable uint64) (Changes, error) {
	most := max(leastOfStep, 4*x.added)
	x.added = 0
	if x.step == nil {
		if err := x.begin(r); err != nil || x.step == nil {
			return nil, err
		}
	}
	if f, ok := x.step.(*filling); ok && f.wait(batch, durable) {
		return nil, nil
	}
	changes, last, err := x.step.next(x, r, most)
	if last {
		x.step = nil
	}
	return changes, err
}

// begin decides what to do next.
func (x *Index) begin(r store.Reader) error {
	if x.recent.Len() >= x.size {
		x.full, x.recent = x.recent, newEntries()
		x.step = &filling{segment: &segment{number: x.next, filter: newFilter(x.full.Len())}}
		x.next++
		return nil
	}
	if !x.looks() {
		return nil
	}
	x.removed, x.emptied = 0, false
	s := x.nextInTurn()
	gone, err := mostlyGone(r, s.number)
	if gone {
		x.step = &emptying{segment: s}
	}
	return err
}

func (x *Index) nextInTurn() *segment {
	i := max(slices.IndexFunc(x.segments, func(s *segment) bool { return s.number > x.turn }), 0)
	x.turn = x.segments[i].number
	return x.segments[i]
}

// mostlyGone reports whether half of the tasks of a segment do not exist any more, judged by its first entries: they are in the order of their hashes, and so
// in no order of their tasks.
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

// filling moves the entries of Index.full into a new segment: first it adds them there, in the order of their hashes; and when the store has all of them, it
// removes them from KeyLog, in the order of their tasks. Either order keeps the changes of a step on few pages.
type filling struct {
	segment *segment
	after   store.KeyHash // the last one in the segment
	filled  uint64        // number of the batch that has the last entries of the segment; 0: not yet
	from    lease.TaskID  // where to go on in KeyLog
	last    uint64        // number of the last batch
}

// wait reports whether the next step has to wait until the segment can be read. It notes the batch of the step.
func (f *filling) wait(batch, durable uint64) bool {
	f.last = batch
	return f.filled > durable
}

func (f *filling) next(x *Index, r store.Reader, most int) (Changes, bool, error) {
	if f.filled == 0 {
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
	if !more {
		f.filled = f.last
	}
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

// emptying makes the entries of a segment recent whose tasks exist, and removes all of them from it.
type emptying struct {
	segment *segment
	after   store.KeyHash
}

func (m *emptying) next(x *Index, r store.Reader, _ int) (Changes, bool, error) {
	var all []store.KeyHash
	var kept []records.KeyEntry
	more := false
	err := records.Segment(r, m.segment.number, m.after, func(k records.KeyEntry) (bool, error) {
		if more = len(all) == mostRead; more {
			return false, nil
		}
		all = append(all, k.Hash)
		m.after = k.Hash
		has, err := records.HasKey(r, k.Task, k.Hash)
		if has && x.inMemory(k.Hash) == nil {
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
