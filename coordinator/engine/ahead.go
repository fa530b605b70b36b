package engine

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Reading ahead. A line that may be too long for memory is read on from the disk before its head runs dry, beside the loop, which would else stand
// still for it: until all that was decided is durable, and then for as long as the reading takes.
//
// What is read is an older state than that of the loop. So from the moment at which it is asked for, the line keeps a list of all that changes
// behind the bound of its head; the reading begins once everything before that moment is durable; and what it has found is taken together
// with the list. What moves the bound meanwhile makes the reading void: then the line is read on as if nobody had read ahead.

// ahead is one reading of a line.
type ahead struct {
	line  *line
	after place  // the bound of the head
	room  int    // how many tasks to read with their places
	batch uint64 // the last one that it has to see
	begun bool

	// changed is what became of places behind the bound since, oldest first; seqs are the tasks that it is about.
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

// reading is what follows a place of a line on disk, in order, with the tasks as they are there; more tells whether there is more behind it.
type reading struct {
	places []place
	tasks  []*lease.Task // of the first places; nil where an index entry has no task
	more   bool
}

const (
	// linePart is how many places of a line are read at once.
	linePart = lineHead / 2
	// maxAhead bounds the readings under way, and with them the memory of their tasks.
	maxAhead = 4
	// maxMoved bounds the list of a reading that takes long. Beyond, it is given up.
	maxMoved = 16 * lineHead
)

// readOn asks for a reading of a line whose head has become short.
func (e *Engine) readOn(l *line) {
	waiting := l.head.entries.Len()
	if l.ahead != nil || !l.head.more || waiting == 0 || waiting > lineHead-linePart || len(e.aheads) >= maxAhead {
		return
	}
	l.ahead = &ahead{line: l, after: l.head.bound, room: e.set.room(), batch: e.batch.number, seqs: map[uint64]struct{}{}}
	e.aheads[l.ahead] = struct{}{}
}

// shift takes note that a task took a place in a line, or left it, for a reading that may not see it.
func (e *Engine) shift(l *line, at place, taken bool) {
	a := l.ahead
	if a == nil || !placeLess(a.after, at) {
		return
	}
	if len(a.changed) == maxMoved {
		e.giveUp(a)
		return
	}
	a.changed = append(a.changed, moved{at, taken})
	a.seqs[at.seq] = struct{}{}
}

// giveUp makes a reading void.
func (e *Engine) giveUp(a *ahead) {
	if a != nil {
		a.line.ahead = nil
		delete(e.aheads, a)
	}
}

// beginReading starts the readings for which everything is durable now.
func (e *Engine) beginReading(durable uint64) {
	for a := range e.aheads {
		if a.batch > durable || a.begun {
			continue
		}
		a.begun = true
		e.readers.Go(func() {
			a.err = e.st.View(func(r store.Reader) (err error) {
				a.found, err = readLine(r, a.line.queue.space.number, a.line.kind, a.after, a.room)
				return err
			})
			_ = e.inbox.insist("", op{run: func() { e.takeReading(a) }}) // an engine that has stopped needs it no more
		})
	}
}

// takeReading puts what was read behind the head, as it is by now.
func (e *Engine) takeReading(a *ahead) {
	if a.err != nil {
		panic(corrupt{a.err})
	}
	l := a.line
	if l.ahead != a {
		return
	}
	e.giveUp(a)
	if l.head.bound != a.after {
		return
	}
	e.take(l, a.found, a.seqs)
	for _, m := range a.changed {
		if m.taken {
			l.head.insert(m.place)
		} else {
			l.head.remove(m.place)
		}
	}
	e.settle(l)
	e.stir(l.queue)
}

// take puts a reading behind the head of a line, and its tasks into the working set but those that have changed since.
func (e *Engine) take(l *line, found reading, changed map[uint64]struct{}) {
	for i, t := range found.tasks {
		if _, ok := changed[found.places[i].seq]; !ok && t != nil {
			e.set.expect(t)
		}
	}
	l.head.refill(found.places, found.more)
}

// refillLine reads on in a line whose head has run dry.
func (e *Engine) refillLine(l *line) {
	e.giveUp(l.ahead)
	e.flush()
	var found reading
	e.set.read(func(r store.Reader) (err error) {
		found, err = readLine(r, l.queue.space.number, l.kind, l.head.bound, e.set.room())
		return err
	})
	e.take(l, found, nil)
}

// readLine reads what follows a place of a line, with so many of the tasks.
func readLine(r store.Reader, space uint32, kind lease.Line, after place, room int) (found reading, err error) {
	from := store.ReadyKey{Priority: after.priority, Place: after.place, Seq: after.seq}
	err = records.Ready(r, space, kind, from, func(k store.ReadyKey) (bool, error) {
		if found.more = len(found.places) == linePart; found.more {
			return false, nil
		}
		found.places = append(found.places, place{k.Priority, k.Place, k.Seq})
		if len(found.tasks) >= room {
			return true, nil
		}
		t, err := records.Resting(r, k.Task())
		found.tasks = append(found.tasks, t)
		return true, err
	})
	return found, err
}
