package session

import (
	"container/list"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// Bounds of what the coordinator keeps of sessions whose stream was lost.
const (
	keepFor         = time.Minute // how long the worker has to come back
	resumeStateSize = 1 << 10     // bytes for which one session counts, in addition to its outbox
)

// maxKeptBytes is how many bytes all of them may take together; the oldest are forgotten first.
var maxKeptBytes = 64 << 20

// errStale refuses a session token because a newer one of the same instance is in use.
var errStale = errors.New("a newer stream of this instance has resumed the session")

// resumeState is the part of a session that outlives its streams (W8): the order of its incoming frames, what they said of the worker, and its
// outbox. It belongs to one stream at a time.
type resumeState struct {
	id  string // of the session
	in  incoming
	out *outbox
	// takingOver is held while a stream takes the session over.
	takingOver waitLock

	// Guarded by resumeTable.mu.
	stream  *Session      // the stream to which it belongs; nil: none, and it is kept for keepFor
	joined  bool          // a stream has registered
	usedGen uint64        // newest generation of its tokens that the worker has certainly received; 0: none
	kept    *list.Element // its element in resumeTable.kept while there is no stream; else nil
	bytes   int           // bytes for which it counts in resumeTable.bytes
	expiry  *time.Timer   // forgets it
}

// resumeTable holds the sessions that workers can resume.
type resumeTable struct {
	mu     sync.Mutex
	byID   map[string]*resumeState
	newest map[string]*resumeState // by instance: the session that registered last
	kept   *list.List              // the sessions without a stream, oldest first
	bytes  int                     // size of the kept sessions together
	gen    uint64                  // newest generation of a token that was issued
}

func newResumeTable() *resumeTable {
	return &resumeTable{byID: map[string]*resumeState{}, newest: map[string]*resumeState{}, kept: list.New()}
}

// admission is the result of an accepted handshake: a session, and the values for its accept frame.
type admission struct {
	state    *resumeState
	gen      uint64     // generation of the token to issue
	nextSeq  uint64     // seq that the worker's next frame must have
	lastSeen uint64     // seq of the last frame of the coordinator that the worker has, accept included
	resumed  bool       // the worker sent a valid token of the session
	intact   bool       // the state still exists, so the unacknowledged frames are sent again
	said     selfReport // what the worker said on earlier streams of the session
}

// begin opens a new session.
func (all *resumeTable) begin(ss *Session, id string, log *slog.Logger, now lease.Wall) admission {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.beginLocked(ss, id, log, now, 0)
}

func (all *resumeTable) beginLocked(ss *Session, id string, log *slog.Logger, now lease.Wall, after uint64) admission {
	d := &resumeState{id: id, in: incoming{stream: ss, next: 1}, out: newOutbox(log), stream: ss}
	d.out.attach(&ss.writer, 1)
	all.byID[id] = d
	all.gen = max(all.gen+1, after+1, uint64(now))
	return admission{state: d, gen: all.gen, nextSeq: 1, lastSeen: 1}
}

// resume resumes a session, and ends the stream that has it, if any. If the session is not known any more, or a frame that the worker has not
// seen is not retained any more, the sequence numbers start again at 1. The error is errStale.
func (all *resumeTable) resume(ss *Session, k ticket, seen uint64, log *slog.Logger, now lease.Wall) (admission, error) {
	all.mu.Lock()
	if newest := all.newest[lease.InstanceOf(k.session)]; newest != nil && k.gen < newest.usedGen {
		all.mu.Unlock()
		return admission{}, errStale
	}
	d := all.byID[k.session]
	if d == nil {
		defer all.mu.Unlock()
		return all.beginLocked(ss, k.session, log, now, k.gen), nil
	}
	old := d.stream
	all.unkeep(d)
	d.stream = ss
	all.gen = max(all.gen+1, k.gen+1, uint64(now))
	a := admission{state: d, gen: all.gen, lastSeen: max(seen, 1), intact: true}
	all.mu.Unlock()

	if all.takeOver(&a, ss, old) {
		return a, nil
	}
	return all.restart(ss, a, log, now)
}

// takeOver moves the session from the old stream to ss. The old stream first finishes the frame that it handles, and then handles and sends no
// more frames of the session. ok is false if a frame to send again is not retained any more, or if a later stream already has the session.
func (all *resumeTable) takeOver(a *admission, ss, old *Session) (ok bool) {
	d := a.state
	d.takingOver.Lock()
	defer d.takingOver.Unlock()
	if old != nil {
		old.displaced(errStale.Error())
	}
	if !all.belongs(d, ss) {
		return false
	}
	d.out.detach() // first, because a reader that waits for room holds in.mu
	a.nextSeq, a.said = d.in.attach(ss)
	return d.out.attach(&ss.writer, a.lastSeen)
}

// belongs reports whether a session belongs to a stream.
func (all *resumeTable) belongs(d *resumeState, ss *Session) bool {
	all.mu.Lock()
	defer all.mu.Unlock()
	return d.stream == ss
}

// restart makes a new resumeState for a session, whose sequence numbers start again at 1.
func (all *resumeTable) restart(ss *Session, a admission, log *slog.Logger, now lease.Wall) (admission, error) {
	all.mu.Lock()
	defer all.mu.Unlock()
	d := a.state
	if d.stream != ss { // a later stream has taken over the session
		return admission{}, errStale
	}
	instance := lease.InstanceOf(d.id)
	wasNewest := all.newest[instance] == d
	all.forget(d)
	b := all.beginLocked(ss, d.id, log, now, a.gen)
	b.state.usedGen = d.usedGen
	if wasNewest { // an older token stays stale also until the worker has registered
		all.newest[instance] = b.state
	}
	return b, nil
}

// registered records that the worker has received the accept frame with the token of a.gen. From now on the session is the newest session of its
// instance. first is true if no stream has registered before since the sequence numbers began at 1: then a.state has no frame with an older lease.
func (all *resumeTable) registered(a admission) (first bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	d := a.state
	first, d.joined = !d.joined, true
	d.usedGen = max(d.usedGen, a.gen)
	instance := lease.InstanceOf(d.id)
	if before := all.newest[instance]; before != nil && before != d && before.stream == nil {
		all.forget(before)
	}
	all.newest[instance] = d
	return first
}

// leave is called when a stream has ended. It keeps the session for keepFor, unless the worker will not come back to it: it said goodbye, or has
// registered in a newer session.
func (all *resumeTable) leave(d *resumeState, ss *Session, forGood bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	switch {
	case d.stream != ss: // another stream has the session
	case forGood, all.newest[lease.InstanceOf(d.id)] != d:
		all.forget(d)
	default:
		all.keep(d)
	}
}

func (all *resumeTable) keep(d *resumeState) {
	d.stream = nil
	d.out.detach()
	d.bytes = resumeStateSize + d.out.size()
	d.kept = all.kept.PushBack(d)
	place := d.kept
	d.expiry = time.AfterFunc(keepFor, func() { all.expire(d, place) })
	for all.bytes += d.bytes; all.bytes > maxKeptBytes; {
		all.forget(all.kept.Front().Value.(*resumeState))
	}
}

func (all *resumeTable) unkeep(d *resumeState) {
	if d.kept == nil {
		return
	}
	d.expiry.Stop()
	all.kept.Remove(d.kept)
	all.bytes -= d.bytes
	d.kept, d.expiry = nil, nil
}

func (all *resumeTable) expire(d *resumeState, place *list.Element) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if d.kept == place {
		all.forget(d)
	}
}

// replaced forgets the kept session of an instance that another instance has replaced.
func (all *resumeTable) replaced(instance string) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if d := all.newest[instance]; d != nil && d.stream == nil {
		all.forget(d)
	}
}

func (all *resumeTable) forget(d *resumeState) {
	all.unkeep(d)
	if all.byID[d.id] == d {
		delete(all.byID, d.id)
	}
	if instance := lease.InstanceOf(d.id); all.newest[instance] == d {
		delete(all.newest, instance)
	}
	d.out.forget()
}
