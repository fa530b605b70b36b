package standby

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// queueBytes is how many bytes of changes wait for the store of the standby before Mark waits.
const queueBytes = 16 << 20

// Place is where a standby keeps its stores. Only a complete store may take the place of the
// coordinator's.
type Place interface {
	// Complete returns the store that is complete; nil if there is none of the newest format.
	Complete() store.Store
	// Older returns the store that is complete, but of an older format, and may only be read until
	// Replace; nil if there is none.
	Older() store.Store
	// Empty makes an empty store for a new copy. It discards an earlier one that was not finished.
	// The complete store stays.
	Empty() (store.Store, error)
	// Replace makes the store of Empty the complete one, and closes and removes the one that was
	// it.
	Replace() error
}

// DivergedError means that the store of the standby differs from that of the coordinator: it needs
// a new copy.
type DivergedError struct {
	At       records.Position
	Keyspace store.Keyspace // the first one that differs
}

func (e *DivergedError) Error() string {
	return fmt.Sprintf("the standby differs from the coordinator in the records of %v", e.Keyspace)
}

// OtherStoreError means that the coordinator serves another store than the complete copy is of,
// such as an empty one after its disk was lost, or a store that lacks commits of the copy. The
// complete copy was kept: it may be the last one there is.
type OtherStoreError struct {
	Have, Got uint32 // epochs
	Older     bool   // it is the same store, from before commits of the copy, whatever came after
	Lacks     uint64 // number of these commits, or one less; 0: not known
}

func (e *OtherStoreError) Error() string {
	var text string
	switch {
	case e.Older && e.Got == e.Have:
		text = "the coordinator serves an older state of its store than the copy has: it has lost commits that were durable"
	case e.Older && e.Got < e.Have:
		text = fmt.Sprintf("the coordinator serves an older store (epoch %d) than the copy is of (epoch %d)",
			e.Got, e.Have)
	case e.Older:
		text = fmt.Sprintf("the store of the coordinator was promoted or restored (epoch %d) from an older state than the copy has (epoch %d)", e.Got, e.Have)
	default:
		text = fmt.Sprintf("the coordinator serves another store (epoch %d) than the copy is of (epoch %d)",
			e.Got, e.Have)
	}
	if e.Lacks > 0 {
		text += fmt.Sprintf("; commits of the copy that it lacks: at least %d", e.Lacks)
	}
	return text
}

// Replica is the Sink of a standby. One goroutine at a time may use it. Another goroutine, its own,
// commits what came, so that the next changes can arrive meanwhile: all that wait are one commit.
type Replica struct {
	place  Place
	ack    func(records.Position, lease.Wall)
	fail   func(error)
	to     store.Store      // the one that is followed or copied to
	copies bool             // to is the store of Place.Empty
	copied *Cursor          // how much of it is durable; nil: nothing, or it does not help any more
	at     records.Position // of what is durable of it
	next   *store.Batch
	done   chan struct{}

	mu       sync.Mutex
	changed  sync.Cond
	queue    []received
	bytes    int64 // of queue, and of what is being committed
	busy     bool  // something is being committed
	closed   bool
	err      error // of the store, or a *DivergedError; nothing is applied any more
	diverged bool  // the complete store
}

// received is what came until a mark.
type received struct {
	changes *store.Batch
	mark    Mark
}

// NewReplica returns a Replica, which must be closed. From another goroutine, it calls ack when it
// has made everything up to a position durable, with the time at which the coordinator wrote the
// commit of the position, and fail with the error that the next Mark will return, so that nobody
// has to wait for another one.
func NewReplica(p Place, ack func(records.Position, lease.Wall), fail func(error)) *Replica {
	r := &Replica{place: p, ack: ack, fail: fail, next: new(store.Batch), done: make(chan struct{})}
	r.changed.L = &r.mu
	go r.run()
	return r
}

// Start returns what the replica has: of a copy that was begun, or else of the complete store,
// unless that has been found to differ from the coordinator's. It waits until what was received is
// durable.
func (r *Replica) Start() (s Start, err error) {
	r.mu.Lock()
	r.settle()
	diverged := r.diverged
	r.mu.Unlock()
	if r.copied != nil {
		return Start{At: r.at, Copied: r.copied}, nil
	}
	st := r.place.Complete()
	if st == nil || diverged {
		return Start{}, nil
	}
	err = st.View(func(reader store.Reader) (err error) {
		s.At, s.Written, err = records.PositionOf(reader)
		return err
	})
	return s, err
}

// settle waits until nothing is being committed, and nothing waits for that. The caller holds the
// lock.
func (r *Replica) settle() {
	for r.busy || len(r.queue) > 0 {
		r.changed.Wait()
	}
}

// Begin implements Sink. It may be called again, when the standby has connected again.
func (r *Replica) Begin(b Begin) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.settle()
	if r.err != nil && !errors.As(r.err, new(*DivergedError)) {
		return r.err
	}
	r.err, r.next = nil, new(store.Batch)
	if b.Copy {
		r.copies, r.copied = true, nil
		r.to, r.err = r.place.Empty()
		return r.err
	}
	if r.copied != nil {
		return nil // the copy goes on
	}
	r.copies = false
	if r.to = r.place.Complete(); r.to == nil || r.diverged {
		return errors.New("the coordinator goes on, but there is no complete copy to go on with")
	}
	return nil
}

// Changes implements Sink.
func (r *Replica) Changes(ops []store.Op) error {
	for _, op := range ops {
		switch {
		case int(op.Keyspace) >= store.NumKeyspaces:
			return fmt.Errorf("there is no keyspace %d", op.Keyspace)
		case op.Delete:
			r.next.Delete(op.Keyspace, op.Key)
		default:
			r.next.Put(op.Keyspace, op.Key, op.Value)
		}
	}
	return nil
}

// Mark implements Sink. It waits while much is waiting for the store. Its errors are those of the
// store, of Place.Replace, *OtherStoreError and *DivergedError, also for earlier marks; after the
// last one another Begin helps.
func (r *Replica) Mark(m Mark) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.bytes > queueBytes && r.err == nil {
		r.changed.Wait()
	}
	if r.err != nil {
		return r.err
	}
	r.queue = append(r.queue, received{changes: r.next, mark: m})
	r.bytes += int64(r.next.Bytes())
	r.next = new(store.Batch)
	r.changed.Broadcast()
	return nil
}

// Close waits until what was received is durable, and returns the error of Mark, if any.
func (r *Replica) Close() error {
	r.mu.Lock()
	r.closed = true
	r.changed.Broadcast()
	r.mu.Unlock()
	<-r.done
	return r.err
}

// run commits what comes.
func (r *Replica) run() {
	defer close(r.done)
	for {
		group := r.take()
		if group == nil {
			return
		}
		err := r.commit(group)
		if err != nil {
			r.fail(err) // before Start and Begin go on, which may be of the next stream
		}
		r.mu.Lock()
		for _, one := range group {
			r.bytes -= int64(one.changes.Bytes())
		}
		r.busy = false
		if err != nil {
			r.err, r.queue, r.bytes = err, nil, 0
			r.diverged = r.diverged || errors.As(err, new(*DivergedError)) && !r.copies
			r.copied = nil
		}
		r.changed.Broadcast()
		r.mu.Unlock()
	}
}

// take waits for what came, up to the first mark with checksums; nil if nothing will come any more.
func (r *Replica) take() (group []received) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for len(r.queue) == 0 && !r.closed {
		r.changed.Wait()
	}
	n := 0
	for n < len(r.queue) {
		n++
		if r.queue[n-1].mark.Sums != nil {
			break
		}
	}
	group, r.queue = r.queue[:n:n], r.queue[n:]
	r.busy = n > 0
	if n == 0 {
		return nil
	}
	return group
}

// commit makes a group durable, and acknowledges it if the store is complete.
func (r *Replica) commit(group []received) error {
	t, err := r.to.Begin(context.Background())
	if err != nil {
		return err
	}
	for _, one := range group {
		t.Apply(one.changes)
	}
	if err := t.Write(); err != nil {
		return err
	}
	if err := t.Sync(); err != nil {
		return err
	}
	last := group[len(group)-1].mark
	if err := r.compare(last); err != nil {
		return err
	}
	if !last.Complete {
		if r.copies {
			return r.progress(group)
		}
		return nil
	}
	if r.copies {
		if err := r.requireSameStore(); err != nil {
			return err
		}
		if err := r.place.Replace(); err != nil {
			return err
		}
		r.to, r.copies, r.copied = r.place.Complete(), false, nil
		r.mu.Lock()
		r.diverged = false
		r.mu.Unlock()
	}
	written, err := r.written()
	if err != nil {
		return err
	}
	r.ack(last.At, written)
	return nil
}

// written returns when the coordinator wrote the newest commit of the complete store.
func (r *Replica) written() (at lease.Wall, err error) {
	err = r.to.View(func(reader store.Reader) (err error) {
		_, at, err = records.PositionOf(reader)
		return err
	})
	return at, err
}

// progress notes how far the copy is with a group. It returns an *OtherStoreError as soon as the
// copy has what tells: long before it is complete.
func (r *Replica) progress(group []received) error {
	for _, one := range group {
		if one.mark.Copied != nil {
			r.copied = one.mark.Copied
		}
		r.at = one.mark.At
	}
	if r.copied == nil || r.copied.Keyspace <= store.Meta {
		return nil
	}
	return r.requireSameStore()
}

// compare compares the checksums of the store with those of a mark.
func (r *Replica) compare(m Mark) error {
	if m.Sums == nil {
		return nil
	}
	return r.to.View(func(reader store.Reader) error {
		s, ok := reader.(store.Summer)
		if !ok {
			return nil
		}
		sums, err := s.Sums()
		if err != nil {
			return err
		}
		for ks, sum := range sums {
			if ks < len(m.Sums) && sum != m.Sums[ks] {
				return &DivergedError{At: m.At, Keyspace: store.Keyspace(ks)}
			}
		}
		return nil
	})
}

// requireSameStore keeps the complete copy from being replaced by one of another store, or by one
// that lacks commits of it.
func (r *Replica) requireSameStore() error {
	complete := r.place.Complete()
	if complete == nil {
		complete = r.place.Older()
	}
	if complete == nil {
		return nil
	}
	have, found, err := stateOf(complete)
	if err != nil || !found {
		return err
	}
	got, _, err := stateOf(r.to)
	if err != nil {
		return err
	}
	e := &OtherStoreError{Have: have.Epoch, Got: got.Epoch, Older: bytes.Equal(got.Key, have.Key)}
	if upTo, known := got.upTo(have.at.Run); e.Older && known {
		if have.at.Number <= upTo {
			return nil
		}
		e.Lacks = have.at.Number - upTo
	}
	return e
}

// state is what tells whether a store is another one than the copy is of, or lacks commits of it.
type state struct {
	records.Identity
	at      records.Position
	lineage []records.Position
}

// stateOf reads the state of a store; found is false if it was never served.
func stateOf(st store.Store) (s state, found bool, err error) {
	err = st.View(func(r store.Reader) error {
		var errs [3]error
		s.Identity, found, errs[0] = records.ReadIdentity(r)
		s.at, _, errs[1] = records.PositionOf(r)
		s.lineage, errs[2] = records.Lineage(r)
		return errors.Join(errs[:]...)
	})
	return s, found, err
}

// upTo returns up to which number the store has the commits of a run; known is false if it has none
// of them. It never lacks more than the newest commit of its own run, which may be on its way, or
// may have been taken back by a loss of power.
func (s state) upTo(run uint64) (number uint64, known bool) {
	if run == s.at.Run {
		return s.at.Number + 1, true
	}
	for _, p := range s.lineage {
		if p.Run == run {
			return p.Number, true
		}
	}
	return 0, false
}
