package service

import (
	"cmp"
	"container/heap"
	"context"
	"math"
	"slices"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// watchStep bounds a step of runHistory: it has up to twice as many events, and each of its
// transactions reads as many tasks.
var watchStep = 10_000

// runHistory reads the events of a run from the store for catchUp, in steps, in the order of their
// sequence numbers.
//
// The store has the events by task. A run may have millions of tasks, so their events do not fit
// into memory, and each step must not read all tasks again. So runHistory divides the tasks, in the
// order of their ids, into parts of a few, and notes of each part what its next event is. A step
// then reads only the parts whose next event is among the first of all. It finds the parts as it
// goes: no event is older than its task, so that the tasks that no step has come to are one part,
// whose next event is the submit of the first of them.
//
// A step reads the store in short transactions, and what one of them finds may have changed before
// the next. That does no harm, because events up to last are neither made nor changed any more.
// They may only be gone: a history keeps no more than lease.MaxHistory events, then a note comes in
// their place, and of a deleted task the watch is told.
type runHistory struct {
	*runWatcher
	number uint32        // of the space
	last   uint64        // the newest event of the space when the watch began to catch up
	turn   chan struct{} // has room for a token of each that may read now; nil: it need not wait for that

	parts  partHeap // those of which the store has events that are neither sent nor in events
	events []runEvent
	bound  uint64 // events has all events up to this one that were not sent, and no others
}

// runEvent is an event of a task in a part.
type runEvent struct {
	durableEvent
	of *part
}

// part is a range of tasks of a run.
type part struct {
	first, last uint64 // sequences of the ids of the tasks
	// next is the lowest number of an event that is neither sent nor in runHistory.events, or a
	// lower number; none if there is none.
	next uint64
	// held is the number of its events in runHistory.events, and 1 while it is being read. If it is
	// 0, the part is in the heap.
	held int
}

const none = math.MaxUint64

// partSize returns how many tasks a new part has. The more parts there are, the larger it is, so
// that the number of parts grows only with the logarithm of the number of tasks: to some 60,000 for
// a million tasks, in 3 MB.
func (h *runHistory) partSize() int { return 8 << min(len(h.parts)/(2*watchStep), 20) }

// begin finds out how far the history goes.
func (h *runHistory) begin(r store.Reader) error {
	s, err := records.SpaceOf(r, h.space.Tenant, h.space.Workspace)
	if s != nil && s.NextSeq > h.told+1 {
		h.number, h.last = s.Number, s.NextSeq-1
		h.parts = partHeap{{first: 1, last: h.last, next: h.told + 1}}
	}
	return err
}

// read sets events and bound to those of the next step. If the call ends meanwhile, read returns an
// error: events of tasks that it has not read could come before those that it has found.
func (h *runHistory) read() error {
	h.bound = h.last
	for h.due() {
		if err := cmp.Or(h.readInTurn(), context.Cause(h.ctx)); err != nil {
			return err
		}
	}
	slices.SortFunc(h.events, inOrder)
	return nil
}

// readInTurn is a transaction of read. Those of watches that have fallen behind come one after the
// other: each may read a whole run to send a few events to a client that does not take them, and
// hundreds at once would leave little of the processors to the work that they watch (W11).
func (h *runHistory) readInTurn() error {
	if h.turn != nil {
		select {
		case h.turn <- struct{}{}:
			defer func() { <-h.turn }()
		case <-h.ctx.Done():
			return nil
		}
	}
	return h.longView(h.readParts)
}

// inOrder compares the numbers of events. Notes come before the event of another task with the same
// number.
func inOrder(a, b runEvent) int {
	return cmp.Or(cmp.Compare(a.seq, b.seq), cmp.Compare(b.missed, a.missed))
}

// due reports whether a part may have events up to bound that are not in events.
func (h *runHistory) due() bool { return len(h.parts) > 0 && h.parts[0].next <= h.bound }

// readParts reads parts that are due, about watchStep tasks.
func (h *runHistory) readParts(r store.Reader) error {
	for left := watchStep; left > 0 && h.due() && h.ctx.Err() == nil; {
		n, err := h.readPart(r, heap.Pop(&h.parts).(*part), left)
		if err != nil {
			return err
		}
		left -= max(n, 1)
	}
	return nil
}

// readPart reads the tasks of a part, at most a number of them, and divides them into new parts. It
// returns how many tasks it has read.
func (h *runHistory) readPart(r store.Reader, p *part, most int) (n int, err error) {
	var now *part // the new part
	size := 0     // how many tasks it may still have
	err = records.Tasks(r, h.number, h.run, p.first-1, func(t *lease.Task) bool {
		seq := t.ID.Seq
		if seq > p.last {
			return false
		}
		if n == most || seq > h.bound { // no event of this task and of those behind it is older
			heap.Push(&h.parts, &part{first: seq, last: p.last, next: max(p.next, seq)})
			return false
		}
		if size == 0 {
			h.release(now)
			now, size = &part{first: seq, next: none, held: 1}, h.partSize()
		}
		now.last = seq
		h.take(t, now)
		n, size = n+1, size-1
		return seq < p.last && h.ctx.Err() == nil
	})
	h.release(now)
	return n, err
}

// take takes the events of a task that belong to the step, and notes the first one of the others.
func (h *runHistory) take(t *lease.Task, of *part) {
	if t.Spec.RunID != h.run {
		return
	}
	for _, e := range unsentEvents(t, max(h.told, h.toldOf[t.ID])) {
		if e.missed > 0 { // older versions of the task may come with news, which have events after last, but no note
			e.seq = min(e.seq, h.last)
		}
		switch {
		case e.seq > h.last: // comes with news
		case e.seq > h.bound:
			of.next = min(of.next, e.seq)
		default:
			h.events = append(h.events, runEvent{e, of})
			of.held++
		}
	}
	if len(h.events) > 2*watchStep {
		h.shrink()
	}
}

// shrink leaves the first watchStep events in events, and those with the number of the last of
// them: an event, and notes of other tasks.
func (h *runHistory) shrink() {
	slices.SortFunc(h.events, inOrder)
	n := watchStep
	for n < len(h.events) && h.events[n].seq == h.events[n-1].seq {
		n++
	}
	h.bound = h.events[n-1].seq
	for _, e := range h.events[n:] {
		e.of.next = min(e.of.next, e.seq)
		h.release(e.of)
	}
	h.events = h.events[:n]
}

// release puts a part back when nothing more of it is in events. nil is ignored.
func (h *runHistory) release(p *part) {
	if p == nil {
		return
	}
	if p.held--; p.held == 0 && p.next != none {
		heap.Push(&h.parts, p)
	}
}

// forget ends a step: its events were sent.
func (h *runHistory) forget() {
	for _, e := range h.events {
		h.release(e.of)
	}
	clear(h.events)
	h.events = h.events[:0]
}

// partHeap is a heap of parts by their next event.
type partHeap []*part

func (h partHeap) Len() int           { return len(h) }
func (h partHeap) Less(i, j int) bool { return h[i].next < h[j].next }
func (h partHeap) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *partHeap) Push(p any)        { *h = append(*h, p.(*part)) }

func (h *partHeap) Pop() any {
	last := len(*h) - 1
	p := (*h)[last]
	(*h)[last], *h = nil, (*h)[:last]
	return p
}
