package exhaustive

import (
	"bytes"
	"crypto/sha256"

	"github.com/lessor-dev/lessor/lease"
)

// key identifies a world up to its symmetries: exchanging the two tasks, or the two workers, makes
// no difference. It is a hash cut to 128 bits; the chance that two of a million worlds collide is
// below 2^-88.
type key [16]byte

func (w *world) key() key {
	var least []byte
	for tasks := range 2 {
		for workers := range 2 {
			e := encoder{buf: make([]byte, 0, 512), tasks: tasks, workers: workers}
			e.world(w)
			if least == nil || bytes.Compare(e.buf, least) < 0 {
				least = e.buf
			}
		}
	}
	sum := sha256.Sum256(least)
	return key(sum[:16])
}

// encoder writes a world, with its tasks or workers exchanged if tasks or workers is 1.
type encoder struct {
	buf            []byte
	tasks, workers int
}

func (e *encoder) num(n ...int) {
	for _, n := range n {
		e.buf = append(e.buf, byte(n))
	}
}

func (e *encoder) bit(all ...bool) {
	for _, b := range all {
		if b {
			e.num(1)
		} else {
			e.num(0)
		}
	}
}

// at writes an instant as a number of ticks from now.
func (e *encoder) at(i lease.Instant) {
	if i == 0 {
		e.num(100)
		return
	}
	e.num(int((i - now.Serving) / tick))
}

func (e *encoder) worker(name string) {
	for i, w := range workers {
		if w == name {
			e.num(1 + i ^ e.workers)
			return
		}
	}
	e.num(0)
}

func (e *encoder) world(w *world) {
	e.num(w.steps, int(w.clockBehind/tick), int(w.epoch), w.crashes, w.cancels, w.adoptions)
	for i := range taskCount {
		task := i ^ e.tasks
		e.database(&w.memory, task)
		if w.steps > 0 {
			e.database(&w.disk, task)
		}
		for j := range slots {
			t := &w.workerView[task][j]
			e.num(int(t.ticket.Attempt), int(t.ticket.Nonce), int(t.ticket.Epoch), int(t.reported), int(t.state),
				int(t.cancelReason))
			e.at(t.liveUntil)
		}
	}
	for _, n := range w.batch {
		e.pendingNews(&n)
	}
}

func (e *encoder) pendingNews(n *pendingNews) {
	a := &n.answer
	e.num(n.task^e.tasks, int(n.attempt), int(n.kind), int(n.ticket.Nonce), int(n.ticket.Epoch), int(a.Verdict),
		int(a.Reason), int(a.State))
	e.bit(n.granted, n.ended, a.Replayed)
	e.at(n.liveUntil)
}

func (e *encoder) database(d *database, task int) {
	e.task(d.tasks[task])
	for j, done := range d.ledger[task] {
		if e.bit(d.kept[task][j], done != nil); done != nil {
			e.num(int(done.Kind), int(done.Nonce), int(done.State))
		}
	}
}

func (e *encoder) task(t *lease.Task) {
	e.num(int(t.Rest), int(t.Reason), int(t.Attempts), int(t.Failures), int(t.Losses), int(t.Releases), int(t.Unacked),
		len(t.Discarded))
	e.num(int(t.Last.Attempt), int(t.Last.Nonce), int(t.Last.Cause))
	e.worker(t.UnackedBy)
	e.bit(t.Parked, t.Cancel != nil, t.Outcome != nil, t.Lease != nil)
	e.at(t.RetryAt)
	if o := t.Outcome; o != nil {
		e.num(int(o.Attempt), int(o.Nonce), int(o.Kind), int(o.State))
	}
	for i := range t.Discarded {
		e.num(int(t.Discarded[i].Attempt))
	}
	if t.Lease != nil {
		e.lease(t.Lease)
	}
}

func (e *encoder) lease(l *lease.Lease) {
	e.num(int(l.Epoch), int(l.Attempt), int(l.Nonce))
	e.worker(l.Worker)
	e.bit(l.AckedAt != 0, l.StartedAt != 0)
	e.at(l.ExpiresAt)
	// later it has no effect, and a lease that is renewed for ever would make ever more states of
	// it
	if l.AckedAt == 0 {
		e.at(l.AckBy)
	}
	e.at(l.CancelBy)
}
