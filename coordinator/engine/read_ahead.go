package engine

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Reading ahead. If a line may be longer than its head in memory, a separate goroutine reads the
// next places from the store before the head runs dry. Otherwise the loop itself would have to wait
// until all its changes are durable, and then for the reading.
//
// The reader sees an older state than the loop. Therefore, from the request on, the reading keeps a
// list of all changes of the line beyond the bound of its head. The reading begins once all earlier
// changes are durable. When it has ended, the loop adds its places to the head and then applies the
// changes on the list to the head. If the bound of the head has moved meanwhile, the reading is
// void.

// readAhead is one reading of a line.
type readAhead struct {
	line  *line
	after place       // the bound of the head
	room  int         // number of places for which to read the task, too
	needs batchNumber // the last batch that must be durable before the reading begins
	begun bool

	// changed lists the places beyond the bound that tasks have taken or left since the request,
	// oldest first; seqs holds the tasks of these places.
	changed []moved
	seqs    map[uint64]struct{}

	found reading
	err   error
}

// moved is a place that was taken or left.
type moved struct {
	place place
	taken bool
}

// reading holds places that follow a given place of a line on disk, in order, and the tasks of the
// first of them.
type reading struct {
	places []place
	tasks  []*lease.Task // of the first places; nil if an index entry has no task
	more   bool          // there are more places after these
}

// linePart returns how many places of a line are read at once.
func linePart() int { return lineHead / 2 }

var (
	// maxReadAheads bounds the readings under way, and with them the memory of their tasks.
	maxReadAheads = 4
	// maxMoved bounds the length of readAhead.changed. If a reading takes so long that it needs a
	// longer list, it is given up.
	maxMoved = 1 << 16
)

// startReading requests a reading if the head of the line has become short.
func (ls *lines) startReading(l *line) {
	waiting := l.head.entries.Len()
	if l.readAhead != nil || !l.head.more || waiting == 0 || waiting > lineHead-linePart() ||
		len(ls.readings) >= maxReadAheads {
		return
	}
	l.readAhead = &readAhead{
		line: l, after: l.head.bound, room: ls.set.room(),
		needs: ls.pipeline.current().number, seqs: map[uint64]struct{}{},
	}
	ls.readings[l.readAhead] = struct{}{}
}

// noteMove records that a task took or left a place in a line, because a reading under way may not
// see that change.
func (ls *lines) noteMove(l *line, at place, taken bool) {
	a := l.readAhead
	if a == nil || !placeLess(a.after, at) {
		return
	}
	if len(a.changed) == maxMoved {
		ls.dropReading(a)
		return
	}
	a.changed = append(a.changed, moved{at, taken})
	a.seqs[at.seq] = struct{}{}
}

// dropReading makes a reading void. It does nothing if a is nil.
func (ls *lines) dropReading(a *readAhead) {
	if a != nil {
		a.line.readAhead = nil
		delete(ls.readings, a)
	}
}

// beginReadings starts the requested readings for which all earlier batches are durable now.
func (ls *lines) beginReadings(durable batchNumber) {
	for a := range ls.readings {
		if a.needs > durable || a.begun {
			continue
		}
		a.begun = true
		ls.readers.Go(func() {
			a.err = ls.st.View(func(r store.Reader) (err error) {
				a.found, err = readLine(r, a.line.queue.space.number, a.line.kind, a.after, a.room)
				return err
			})
			ls.inbox.later("", func() { ls.finishReading(a) })
		})
	}
}

// finishReading adds what was read to the head of the line, and applies what has changed since.
func (ls *lines) finishReading(a *readAhead) {
	if a.err != nil {
		panic(corrupt{a.err})
	}
	l := a.line
	if l.readAhead != a {
		return
	}
	ls.dropReading(a)
	if l.head.bound != a.after {
		return
	}
	ls.addReading(l, a.found, a.seqs)
	for _, m := range a.changed {
		if m.taken {
			l.head.insert(m.place)
		} else {
			l.head.remove(m.place)
		}
	}
	ls.relist(l)
	ls.agenda.add(l.queue)
}

// addReading adds the places of a reading to the head of a line. Its tasks go into the working set,
// except those that have changed since.
func (ls *lines) addReading(l *line, found reading, changed map[uint64]struct{}) {
	for i, t := range found.tasks {
		if _, ok := changed[found.places[i].seq]; !ok && t != nil {
			ls.set.cache(t)
		}
	}
	l.head.refill(found.places, found.more)
}

// refill reads the next places of a line of which too few are in memory. The loop waits for the
// reading, and before it for the line's changes to be durable.
func (ls *lines) refill(l *line) {
	ls.dropReading(l.readAhead)
	ls.pipeline.flushTo(l.head.changedIn)
	var found reading
	ls.set.read(func(r store.Reader) (err error) {
		found, err = readLine(r, l.queue.space.number, l.kind, l.head.bound, ls.set.room())
		return err
	})
	ls.addReading(l, found, nil)
}

// readLine reads at most linePart places of a line that follow the place after. It also reads the
// tasks of the first room places.
func readLine(r store.Reader, space uint32, kind lease.Line, after place, room int) (found reading, err error) {
	from := store.ReadyKey{Priority: after.priority, Place: after.place, Seq: after.seq}
	err = records.Ready(r, space, kind, from, func(k store.ReadyKey) (bool, error) {
		if found.more = len(found.places) == linePart(); found.more {
			return false, nil
		}
		found.places = append(found.places, place{k.Priority, k.Place, k.Seq})
		if len(found.tasks) >= room {
			return true, nil
		}
		t, err := records.TaskWithoutLease(r, k.Task())
		found.tasks = append(found.tasks, t)
		return true, err
	})
	return found, err
}
