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
	keepFor = time.Minute // how long the worker has to come back
	// resumeStateSize is as how many bytes one session is counted, in addition to its outbox and
	// the counts of dropped feedback.
	resumeStateSize = 1 << 10
)

// maxKeptBytes is how many bytes all of them may take together; the oldest are forgotten first.
var maxKeptBytes = 64 << 20

// errStale refuses a session token because a newer one of the same instance is in use.
var errStale = errors.New("a newer stream of this instance has resumed the session")

// resumeState is the part of a session that outlives its streams (W8): the order of its incoming
// frames, what they said of the worker, its outbox, its packages, and the feedback that the engine
// does not have yet, which later feedback must not overtake. It belongs to one stream at a time.
type resumeState struct {
	id       string // of the session
	in       incoming
	out      *outbox
	packages inventory
	feeds    *feedbackQueue
	// takingOver is held while a stream takes the session over.
	takingOver waitLock

	// Guarded by resumeTable.mu.
	stream  *Session      // the stream to which it belongs; nil: none, and it is kept for keepFor
	joined  bool          // a stream has registered
	usedGen uint64        // newest generation of its tokens that the worker has certainly received; 0: none
	kept    *list.Element // its element in resumeTable.kept while there is no stream; else nil
	bytes   int           // bytes that it is counted as in resumeTable.bytes
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
	// packagesLost is called in a goroutine of its own with the parts of package operations that a
	// session leaves behind.
	packagesLost func([]*packagePart)
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
func (t *resumeTable) begin(ss *Session, id string, log *slog.Logger, now lease.Wall) admission {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.beginLocked(ss, id, log, now, 0)
}

func (t *resumeTable) beginLocked(ss *Session, id string, log *slog.Logger, now lease.Wall, after uint64) admission {
	feeds := &feedbackQueue{srv: ss.srv, tenant: ss.who.Tenant}
	state := &resumeState{id: id, in: incoming{stream: ss, next: 1}, out: newOutbox(log), feeds: feeds, stream: ss}
	state.out.attach(&ss.writer, 1)
	t.byID[id] = state
	t.gen = max(t.gen+1, after+1, uint64(now))
	return admission{state: state, gen: t.gen, nextSeq: 1, lastSeen: 1}
}

// resume resumes a session, and ends the stream that has it, if any. If the session is not known
// any more, or a frame that the worker has not seen is not retained any more, the sequence numbers
// start again at 1. The error is errStale.
func (t *resumeTable) resume(ss *Session, k ticket, seen uint64, log *slog.Logger, now lease.Wall) (admission, error) {
	t.mu.Lock()
	if newest := t.newest[lease.InstanceOf(k.session)]; newest != nil && k.gen < newest.usedGen {
		t.mu.Unlock()
		return admission{}, errStale
	}
	state := t.byID[k.session]
	if state == nil {
		defer t.mu.Unlock()
		return t.beginLocked(ss, k.session, log, now, k.gen), nil
	}
	old := state.stream
	t.unkeep(state)
	state.stream = ss
	t.gen = max(t.gen+1, k.gen+1, uint64(now))
	a := admission{state: state, gen: t.gen, lastSeen: max(seen, 1), intact: true}
	t.mu.Unlock()

	if t.takeOver(&a, ss, old) {
		return a, nil
	}
	return t.restart(ss, a, log, now)
}

// takeOver moves the session from the old stream to ss. The old stream first finishes the frame
// that it handles, and then handles and sends no more frames of the session. ok is false if a frame
// to send again is not retained any more, or if a later stream already has the session.
func (t *resumeTable) takeOver(a *admission, ss, old *Session) (ok bool) {
	state := a.state
	state.takingOver.Lock()
	defer state.takingOver.Unlock()
	if old != nil {
		old.displaced(errStale.Error())
	}
	if t.streamOf(state) != ss {
		return false
	}
	state.out.detach() // first, because a reader that waits for room holds in.mu
	a.nextSeq, a.said = state.in.attach(ss)
	return state.out.attach(&ss.writer, a.lastSeen)
}

// streamOf returns the stream to which a session belongs; nil: none.
func (t *resumeTable) streamOf(state *resumeState) *Session {
	t.mu.Lock()
	defer t.mu.Unlock()
	return state.stream
}

// restart makes a new resumeState for a session, whose sequence numbers start again at 1.
func (t *resumeTable) restart(ss *Session, a admission, log *slog.Logger, now lease.Wall) (admission, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	state := a.state
	if state.stream != ss { // a later stream has taken over the session
		return admission{}, errStale
	}
	instance := lease.InstanceOf(state.id)
	wasNewest := t.newest[instance] == state
	t.forget(state)
	b := t.beginLocked(ss, state.id, log, now, a.gen)
	b.state.usedGen = state.usedGen
	if wasNewest { // an older token stays stale also until the worker has registered
		t.newest[instance] = b.state
	}
	return b, nil
}

// registered records that the worker has received the accept frame with the token of a.gen. From
// now on the session is the newest session of its instance. first is true if no stream has
// registered before since the sequence numbers began at 1: then a.state has no frame with an older
// lease.
func (t *resumeTable) registered(a admission) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	state := a.state
	first, state.joined = !state.joined, true
	state.usedGen = max(state.usedGen, a.gen)
	instance := lease.InstanceOf(state.id)
	if before := t.newest[instance]; before != nil && before != state {
		before.feeds.passAll() // this session has its leases now
		if before.stream == nil {
			t.forget(before)
		}
	}
	t.newest[instance] = state
	return first
}

// leave is called when a stream has ended. It keeps the session for keepFor, unless the worker will
// not come back to it: it said goodbye, or has registered in a newer session.
func (t *resumeTable) leave(state *resumeState, ss *Session, forGood bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case state.stream != ss: // another stream has the session
	case forGood, t.newest[lease.InstanceOf(state.id)] != state:
		t.forget(state)
	default:
		t.keep(state)
	}
}

func (t *resumeTable) keep(state *resumeState) {
	state.stream = nil
	state.out.detach()
	state.feeds.passAll() // a kept session holds no feedback
	state.bytes = resumeStateSize + state.out.size() + state.feeds.lostSize()
	state.kept = t.kept.PushBack(state)
	place := state.kept
	state.expiry = time.AfterFunc(keepFor, func() { t.expire(state, place) })
	for t.bytes += state.bytes; t.bytes > maxKeptBytes; {
		t.forget(t.kept.Front().Value.(*resumeState))
	}
}

func (t *resumeTable) unkeep(state *resumeState) {
	if state.kept == nil {
		return
	}
	state.expiry.Stop()
	t.kept.Remove(state.kept)
	t.bytes -= state.bytes
	state.kept, state.expiry = nil, nil
}

func (t *resumeTable) expire(state *resumeState, place *list.Element) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state.kept == place {
		t.forget(state)
	}
}

// replaced forgets the kept session of an instance that another instance has replaced.
func (t *resumeTable) replaced(instance string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if state := t.newest[instance]; state != nil && state.stream == nil {
		t.forget(state)
	}
}

func (t *resumeTable) forget(state *resumeState) {
	t.unkeep(state)
	if t.byID[state.id] == state {
		delete(t.byID, state.id)
	}
	if instance := lease.InstanceOf(state.id); t.newest[instance] == state {
		delete(t.newest, instance)
	}
	state.out.forget()
	state.feeds.passAll() // its worker may come back in a new session
	if left := state.packages.end(); len(left) > 0 {
		go t.packagesLost(left)
	}
}
