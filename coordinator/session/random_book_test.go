package session

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// book has what was said on all lines, as the coordinator's end has it: after the faults on the way
// to it, and before those on the way back. It compares each frame of the coordinator with what was
// said before.
type book struct {
	w *world

	mu     sync.Mutex // guards the rest
	talks  map[string]*talk
	lines  map[*line]*talk
	hellos map[*line]*lessorv1.SessionRequest // the handshakes
	issued map[string]ticketOf                // the session tokens
	used   map[string]useOf                   // by instance: the newest token with which it has registered
	leases map[string]*leaseOf                // by lease id
	fences map[string]map[uint32]uint64       // the fencing tokens of each task, by attempt
	drains map[string]bool                    // instances that an operator has drained
	left   map[string]bool                    // instances that have said goodbye, or were replaced
	rooms  map[string][]roomOf                // by instance, oldest first

	slow        bool                 // commits take time, so that these are not exact
	every       []*talk              // also earlier ones of a session
	stocks      map[string][]stockOf // by instance, oldest first
	audits      map[string]int       // entries of the audit about ends of orders
	strayAudits int                  // those about ends that nobody asked for
	strays      int                  // such ends that were told
	doubted     bool                 // some may have come too late
}

// ticketOf is a session token that was issued; a later one has a higher number.
type ticketOf struct {
	session string
	number  int
}

type useOf struct {
	number int
	talk   *talk
	at     time.Time // when the register came in
}

// roomOf is how many slots an instance had from a time on.
type roomOf struct {
	at    time.Time
	slots int
}

// leaseOf is what workers were told of a lease, and what they said.
type leaseOf struct {
	task      string
	attempt   uint32
	instance  string
	told      time.Time // until when it lives, by the last word
	ended     string    // what told that it has ended; empty: nothing
	acked     time.Time // zero: it was not acknowledged
	committed string    // the content that was COMMITTED
	fresh     int       // COMMITTED without replayed
	cancelled bool      // a report was CANCELLED
}

func newBook(w *world) *book {
	return &book{
		w: w, talks: map[string]*talk{}, lines: map[*line]*talk{}, hellos: map[*line]*lessorv1.SessionRequest{},
		issued: map[string]ticketOf{},
		used:   map[string]useOf{}, leases: map[string]*leaseOf{}, fences: map[string]map[uint32]uint64{},
		drains: map[string]bool{}, left: map[string]bool{}, rooms: map[string][]roomOf{},
		stocks: map[string][]stockOf{}, audits: map[string]int{},
	}
}

// talk is a session since its sequences began.
type talk struct {
	session string
	line    *line     // the line that has it
	lost    time.Time // when that line ended
	ticket  int       // number of the token that was issued on this line

	registered   bool      // on this line
	entered      time.Time // when it registered first
	draining     bool
	drainedAt    time.Time
	over         bool // the coordinator has said its last word on this line
	gone         bool // the worker has said goodbye
	slots        uint32
	unwell, full bool
	heard, beat  time.Time // when the last frame, the last heartbeat came
	beatBefore   time.Time // when the last heartbeat at another instant came

	// The frames of the worker.
	next, gap    uint64
	perhaps      uint64 // seq of a frame that may have been taken when its line ended
	perhapsAcked uint64 // the coordinator's frame that it acknowledges
	gaps         int    // that are to be told
	acks         map[string]int
	asked        map[string]*question
	names        map[string]bool // ids that were taken
	loose        map[string]bool // frames without a seq
	refused      map[string]bool // frames that may be refused
	wereRefused  map[string]bool // frames that were refused: a repeat is refused again, and not acknowledged

	// The frames of the coordinator.
	last, acked uint64
	wanted      uint64 // the frame that the worker has asked for last
	said        map[uint64]*lessorv1.SessionResponse
	dispatched  map[uint64][]*leaseOf
	handed      map[string]bool // leases
	reliable    bool            // the worker has shown that it acknowledges
	asks        []asking        // frames that ask for an acknowledgement and have none
	drainSaid   bool

	packagesOf
}

// asking is a frame that asks for an acknowledgement.
type asking struct {
	seq   uint64
	since time.Time
	times int
}

// question is a frame that has to be answered.
type question struct {
	frame *lessorv1.SessionRequest
	at    time.Time
	due   int // answers
	maybe int // answers that may still come, or not: its stream was lost
}

func (t *talk) instance() string { return lease.InstanceOf(t.session) }

func (b *book) problem(l *line, format string, args ...any) {
	b.w.Errorf("%v %s: %s", time.Since(epoch), l.name, fmt.Sprintf(format, args...))
}

// restarted forgets what ends with the coordinator's process.
func (b *book) restarted() {
	b.mu.Lock()
	defer b.mu.Unlock()
	clear(b.talks)
	clear(b.lines)
	clear(b.hellos)
	clear(b.used)
	clear(b.drains)
	clear(b.left)
	clear(b.audits)
	b.every, b.strayAudits, b.strays, b.doubted = nil, 0, 0, false
	for _, l := range b.leases {
		if time.Since(l.acked) < time.Second {
			l.acked = time.Time{} // it may not be durable
		}
	}
}

// endOf notes that the coordinator has ended a line.
func (b *book) endOf(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.lines[l]; t != nil && t.line == l {
		t.lost = time.Now()
		b.mayBeLate(t)
		for _, known := range b.leases { // what came at the end may not have been taken
			if known.instance == t.instance() && !known.acked.Add(b.w.slack).Before(t.lost) {
				known.acked = time.Time{}
			}
		}
	}
	delete(b.hellos, l)
	delete(b.lines, l)
}

// delivered takes in a frame of a worker that the coordinator receives.
func (b *book) delivered(l *line, f *lessorv1.SessionRequest) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.lines[l]
	if t == nil {
		if n := slices.IndexFunc(b.every, func(t *talk) bool { return t.line == l }); n >= 0 { // it has ended
			b.late(b.every[n], f)
		} else if f.GetHandshake() != nil && b.hellos[l] == nil {
			b.hellos[l], l.greeted = f, time.Now()
		}
		return
	}
	if t.line != l {
		return
	}
	if t.over || !b.w.open.serves(l) {
		b.late(t, f)
		return
	}
	t.heard = time.Now()
	t.acknowledge(seqNamed(f.GetAck().GetFor()))
	switch t.order(f) {
	case inOrder:
		t.names[f.GetId()], t.reliable = true, t.reliable || f.GetSeq() != 0
		if f.GetAck().GetRequest() {
			t.acks[f.GetId()]++
		}
		b.take(t, f)
	case repeated:
		t.acks[f.GetId()]++
	case earlyNew:
		t.gaps++
	}
}

// late notes a frame that comes while its line is ending, or has just ended: the reader may still
// have it in its hands then.
func (b *book) late(t *talk, f *lessorv1.SessionRequest) {
	t.tooLate(f)
	b.packagesTooLate(t, f)
}

// tooLate notes a frame that comes while its line is ending. It is taken only where it comes at
// that very instant.
func (t *talk) tooLate(f *lessorv1.SessionRequest) {
	if seq := seqNamed(f.GetAck().GetFor()); seq <= t.last {
		t.perhapsAcked = max(t.perhapsAcked, seq)
	}
	if seq := f.GetSeq(); seq != 0 && seq != t.next {
		return
	}
	t.gone = t.gone || f.GetGoodbye() != nil
	t.names[f.GetId()], t.perhaps = true, f.GetSeq()
	if f.GetHeartbeat() != nil || f.GetReports() != nil {
		if t.asked[f.GetId()] == nil {
			t.asked[f.GetId()] = &question{frame: f, at: time.Now()}
		}
		t.asked[f.GetId()].maybe++
	}
}

// seqNamed returns the seq in the id of a coordinator's frame; 0: it has none.
func seqNamed(id string) (seq uint64) {
	if _, err := fmt.Sscanf(strings.TrimLeft(id, "cd"), "%d", &seq); err != nil {
		return 0
	}
	return seq
}

// order is W6 and W7 as plainly as possible.
func (t *talk) order(f *lessorv1.SessionRequest) order {
	switch seq := f.GetSeq(); {
	case seq == 0:
		volatile := f.GetHeartbeat() != nil || f.GetFeedback() != nil || f.GetPayload() == nil
		name := looseName(f)
		if volatile && !f.GetAck().GetRequest() {
			return inOrder
		}
		if t.loose[name] {
			return repeated
		}
		t.loose[name] = true
	case seq < t.next:
		return repeated
	case seq > t.next:
		news := t.gap == 0 || seq <= t.gap
		if t.gap = max(t.gap, seq); news {
			return earlyNew
		}
		return early
	default:
		t.next, t.gap = seq+1, 0
	}
	return inOrder
}

func looseName(f *lessorv1.SessionRequest) string { return f.GetId() + " " + f.GetCorr() }

// refuse notes that a frame is refused, and so not remembered: without a seq, a repeat of it is no
// duplicate, and counts once its time has come.
func (t *talk) refuse(f *lessorv1.SessionRequest) {
	t.refused[f.GetId()] = true
	delete(t.loose, looseName(f))
}

// acknowledge notes that the worker has all frames up to a seq.
func (t *talk) acknowledge(seq uint64) {
	if seq > t.last {
		return
	}
	if t.acked = max(t.acked, seq); seq > 0 {
		t.reliable = true
	}
	for len(t.asks) > 0 && t.asks[0].seq <= seq {
		if t.asks = t.asks[1:]; len(t.asks) > 0 { // from now on it is the one that is sent again
			t.asks[0].since = time.Now()
		}
	}
	for at, leases := range t.dispatched {
		if at <= seq {
			for _, l := range leases {
				l.ack()
			}
			delete(t.dispatched, at)
		}
	}
}

func (l *leaseOf) ack() {
	if l != nil && l.acked.IsZero() {
		l.acked = time.Now()
	}
}

// asking notes that a frame asks for an acknowledgement.
func (t *talk) asking(seq uint64) {
	if seq <= t.acked {
		return
	}
	n := slices.IndexFunc(t.asks, func(a asking) bool { return a.seq == seq })
	if n < 0 {
		t.asks = append(t.asks, asking{seq: seq, since: time.Now(), times: 1})
		return
	}
	t.asks[n].times++
}

// take notes the effect of a frame.
func (b *book) take(t *talk, f *lessorv1.SessionRequest) {
	now := time.Now()
	switch p := f.GetPayload().(type) {
	case nil:
		return
	case *lessorv1.SessionRequest_Error:
		// without a key, or another session holds the lease; a frame after the next one
		t.refused[f.GetId()] = p.Error.GetCode() == refusal.CodeConcurrency || p.Error.GetExpectedSeq() > t.last+1
		if t.wanted = p.Error.GetExpectedSeq(); t.wanted > t.last {
			t.wanted = 0 // it was not said yet
		}
		return
	case *lessorv1.SessionRequest_Goodbye:
		t.over, t.gone = true, true
		if t.registered && b.used[t.instance()].talk == t {
			b.left[t.instance()] = true
		}
		return
	case *lessorv1.SessionRequest_Register:
		if p.Register.GetCapabilities().GetConcurrency().GetMaxParallel() == 0 {
			t.refuse(f)
			return
		}
		// the worker is not told of leases that ended before: it hears of their end when it names
		// them
		if !t.registered {
			maps.DeleteFunc(t.line.handed, func(_ string, known *leaseOf) bool { return b.hasEnded(known) })
		}
		t.slots, t.registered = p.Register.GetCapabilities().GetConcurrency().GetMaxParallel(), true
		if t.entered.IsZero() {
			t.entered = now
		}
		if t.beat.IsZero() {
			t.beat = now
		}
		b.used[t.instance()] = useOf{t.ticket, t, now}
		b.registers(t, p.Register)
		delete(b.left, t.instance())
	default:
		if !t.registered || f.GetHandshake() != nil {
			t.refuse(f)
			return
		}
	}
	switch p := f.GetPayload().(type) {
	case *lessorv1.SessionRequest_PkgEvent:
		b.happens(t, f, true)
	case *lessorv1.SessionRequest_Capacity:
		t.slots = p.Capacity.GetMaxParallel()
	case *lessorv1.SessionRequest_Drain:
		if !t.draining {
			t.draining, t.drainedAt = true, now
		}
	case *lessorv1.SessionRequest_Heartbeat:
		if now.After(t.beat) {
			t.beatBefore = t.beat
		}
		t.beat, t.unwell = now, !p.Heartbeat.GetHealthy()
		if pct, told := p.Heartbeat.GetMetrics()[memPct]; told {
			t.full = pct >= 90 || t.full && pct > 85
		}
		for _, r := range p.Heartbeat.GetLeases() {
			b.leases[r.GetLeaseId()].ack()
			b.claimed(t.line, r.GetLeaseId())
		}
		t.ask(f)
	case *lessorv1.SessionRequest_Reports:
		for _, r := range p.Reports.GetReports() {
			b.leases[r.GetStart().GetLeaseId()].ack()
			b.claimed(t.line, r.GetStart().GetLeaseId())
		}
		t.ask(f)
	}
	b.resized(t)
}

// claimed notes that the worker of a line starts or renews a lease. The lease may move to its
// instance, and then the line that had it is not told of its end.
func (b *book) claimed(l *line, leaseID string) {
	for other := range b.lines {
		if other != l {
			delete(other.handed, leaseID)
		}
	}
}

func (t *talk) ask(f *lessorv1.SessionRequest) {
	if q := t.asked[f.GetId()]; q != nil {
		q.due++
		return
	}
	t.asked[f.GetId()] = &question{frame: f, at: time.Now(), due: 1}
}

// resized notes how many slots a session has now.
func (b *book) resized(t *talk) {
	slots := int(t.slots)
	if !t.registered || t.draining || t.unwell || t.full || b.drains[t.instance()] {
		slots = 0
	}
	rooms := b.rooms[t.instance()]
	if n := len(rooms); n == 0 || rooms[n-1].slots != slots {
		b.rooms[t.instance()] = append(rooms, roomOf{time.Now(), slots})
	}
}

// roomSince returns the most slots that an instance had since a time.
func (b *book) roomSince(instance string, since time.Time) (most int) {
	for n, r := range b.rooms[instance] {
		if later := b.rooms[instance][n+1:]; len(later) == 0 || !later[0].at.Before(since) {
			most = max(most, r.slots)
		}
	}
	return most
}

// drained notes that an operator has drained an instance, or has taken that back.
func (b *book) drained(instance string, is bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.drains[instance] = is
	if t := b.used[instance].talk; t != nil {
		b.resized(t)
	}
}

// said takes in a frame of the coordinator.
func (b *book) said(l *line, m *lessorv1.SessionResponse) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if m.GetAccept() != nil {
		b.accepted(l, m)
		return
	}
	t := b.lines[l]
	if t == nil || m.GetReset_() != nil {
		b.unnumbered(l, t, m)
		return
	}
	if id := m.GetAck().GetFor(); id != "" && !t.names[id] {
		b.problem(l, "frame %s acknowledges %q, which was not taken", m.GetId(), id)
	}
	if m.GetSeq() > l.said+1 {
		b.problem(l, "seq %d follows %d on the line", m.GetSeq(), l.said)
	}
	l.said = max(l.said, m.GetSeq())
	before, again := t.said[m.GetSeq()]
	switch {
	case again:
		if before.GetId() != m.GetId() || before.GetCorr() != m.GetCorr() || m.GetPayload() != nil && payloadOf(before) != payloadOf(m) {
			b.problem(l, "seq %d is %v and was %v", m.GetSeq(), m, before)
		}
	case m.GetSeq() != t.last+1:
		b.problem(l, "seq %d follows %d: %v", m.GetSeq(), t.last, m)
	default:
		t.last = m.GetSeq()
		t.said[t.last] = m
	}
	if m.GetAck().GetRequest() {
		t.asking(m.GetSeq())
	}
	b.check(l, t, m, !again)
}

func payloadOf(m *lessorv1.SessionResponse) string { return fmt.Sprintf("%T", m.GetPayload()) }

// unnumbered checks a frame that is in no sequence: before a session is open, and a reset.
func (b *book) unnumbered(l *line, t *talk, m *lessorv1.SessionResponse) {
	if m.GetSeq() != 0 {
		b.problem(l, "a frame outside of a session has a seq: %v", m)
	}
	r := m.GetReset_()
	if r == nil || t == nil {
		return
	}
	if t.line == l {
		t.over = true
	}
	beat := t.beat
	if beat.Equal(time.Now()) { // it may have come a moment too late
		beat = t.beatBefore
	}
	if since := time.Since(beat); strings.Contains(r.GetReason(), "heartbeats") && since < 3*heartbeats {
		b.problem(l, "it is reset for missed heartbeats, and the last one came %v ago", since)
	}
	if since := time.Since(t.heard); strings.Contains(r.GetReason(), "no frame") && since < idle {
		b.problem(l, "it is reset for its silence, and the last frame came %v ago", since)
	}
	if r.GetCode() == refusal.CodeSeqGap && t.wanted > 1 && t.wanted <= t.last && t.last-t.wanted < uint64(maxRetained) {
		b.problem(l, "frame %d is not stored any more; the last is %d, acknowledged are those up to %d",
			t.wanted, t.last, t.acked)
	}
}

// accepted checks how a session begins, or goes on (W8).
func (b *book) accepted(l *line, m *lessorv1.SessionResponse) {
	a, hello := m.GetAccept(), b.hellos[l].GetHandshake()
	instance := engine.Instance(home.Tenant, hello.GetWorker().GetName(), hello.GetWorker().GetInstanceId())
	if lease.InstanceOf(a.GetSessionId()) != instance {
		b.problem(l, "the session %s is not of the instance %s", a.GetSessionId(), instance)
	}
	whole := strings.HasPrefix(m.GetId(), "a")
	r := hello.GetResume()
	if r == nil {
		if whole || a.GetResumed() || b.talks[a.GetSessionId()] != nil {
			b.problem(l, "a new session goes on with an old one: %v", a)
		}
	} else {
		b.resumed(l, a, r, whole)
	}
	t := b.talks[a.GetSessionId()]
	if whole && t != nil {
		b.goesOn(l, t, m)
	} else {
		if m.GetSeq() != 1 || a.GetNextSeq() != 1 {
			b.problem(l, "new sequences begin with %d and %d", m.GetSeq(), a.GetNextSeq())
		}
		t = &talk{
			session: a.GetSessionId(), next: 1, last: 1, acks: map[string]int{}, asked: map[string]*question{},
			names:   map[string]bool{},
			refused: map[string]bool{}, wereRefused: map[string]bool{}, said: map[uint64]*lessorv1.SessionResponse{},
			dispatched: map[uint64][]*leaseOf{},
			handed:     map[string]bool{},
		}
		t.state = stateOf(l, t.session)
		b.talks[t.session] = t
		b.every = append(b.every, t)
	}
	b.issued[a.GetSessionToken()] = ticketOf{t.session, len(b.issued) + 1}
	b.lines[l], t.line, t.ticket, t.lost, l.said = t, l, len(b.issued), time.Time{}, m.GetSeq()
	if old := hello.GetReplacesInstanceId(); old != "" {
		replaced := engine.Instance(home.Tenant, hello.GetWorker().GetName(), old)
		b.left[replaced] = true
		for _, t := range b.talks {
			t.gone = t.gone || t.instance() == replaced
		}
	}
	t.registered, t.over, t.gap, t.gaps = false, false, 0, 0
	t.beat, t.heard = time.Time{}, time.Now()
	id := b.hellos[l].GetId()
	t.loose, t.names[id] = map[string]bool{id + " ": true}, true
}

// resumed checks whether a token may resume its session.
func (b *book) resumed(l *line, a *lessorv1.Accept, r *lessorv1.Resume, whole bool) {
	k, genuine := b.issued[r.GetSessionToken()]
	if !genuine || k.session != r.GetSessionId() || k.session != a.GetSessionId() || !a.GetResumed() {
		b.problem(l, "session %s is resumed as %v with a token of %q", r.GetSessionId(), a, k.session)
	}
	newest := b.used[lease.InstanceOf(k.session)]
	// A register and a handshake that come in at the same time may be handled in either order.
	if t := newest.talk; t != nil && k.number < newest.number && newest.at.Add(b.w.slack).Before(l.greeted) && t.line.open() && !t.over {
		b.problem(l, "token %d resumes although %d is in use", k.number, newest.number)
	}
	seen, t := r.GetLastSeenSeq(), b.talks[k.session]
	if t == nil || newest.talk != t || whole || t.gone {
		return
	}
	if !t.lost.IsZero() && (time.Since(t.lost) >= keepFor || !t.entered.Add(b.w.slack).Before(t.lost)) {
		return // it is kept no more, or has perhaps not entered the engine
	}
	if max(seen, 1) >= max(t.acked, t.perhapsAcked) && seen <= t.last && t.last-seen < uint64(maxRetained/2) {
		b.problem(l, "the sequences begin anew: seen are %d of %d frames, %d are acknowledged; the line was lost at %v",
			seen, t.last, t.acked, t.lost)
	}
}

// goesOn checks where a session goes on.
func (b *book) goesOn(l *line, t *talk, m *lessorv1.SessionResponse) {
	seen, next := b.hellos[l].GetHandshake().GetResume().GetLastSeenSeq(), m.GetAccept().GetNextSeq()
	if m.GetSeq() != max(seen, 1) {
		b.problem(l, "it goes on after %d, and %d was seen", m.GetSeq(), seen)
	}
	// The last frames of a line that ended at their instant may have come too late.
	if now := time.Now(); next > max(t.next, t.perhaps+1) || next < t.next && !t.over && t.heard.Before(now) && (t.lost.IsZero() || t.heard.Add(b.w.slack).Before(t.lost)) {
		b.problem(l, "next_seq is %d, and the next frame is %d; the last one came at %v, and the line was lost at %v",
			next, t.next, t.heard, t.lost)
	}
	b.mayBeLate(t)
	t.next = next
	t.holdsOn(b.w.slack)
	for id, q := range t.asked {
		if seq := q.frame.GetSeq(); seq == 0 || seq >= next {
			q.due, q.maybe = 0, q.maybe+q.due
		}
		if q.due+q.maybe == 0 {
			delete(t.asked, id)
		}
	}
	clear(t.acks) // see check
}

// holdsOn keeps what the worker has said of itself (W9, W10), unless it came at the very end of the
// line, perhaps too late.
func (t *talk) holdsOn(slack time.Duration) {
	end := t.lost
	if end.IsZero() { // the line was still open
		end = time.Now()
	}
	inTime := func(at time.Time) bool { return at.Add(slack).Before(end) }
	t.draining = t.draining && inTime(t.drainedAt)
	t.unwell, t.full = t.unwell && inTime(t.beat), t.full && inTime(t.beat)
}

// check checks what a frame says. news is false if it was said before.
func (b *book) check(l *line, t *talk, m *lessorv1.SessionResponse, news bool) {
	switch p := m.GetPayload().(type) {
	case nil:
		if news && t.acks[m.GetCorr()] > 0 {
			t.acks[m.GetCorr()]--
		}
	case *lessorv1.SessionResponse_Dispatch:
		for _, a := range p.Dispatch.GetAssignments() {
			b.assigned(l, t, m.GetSeq(), a)
		}
	case *lessorv1.SessionResponse_Verdicts:
		if q := b.answered(l, t, m, news); q != nil && news {
			b.judged(l, q, p.Verdicts.GetVerdicts())
		}
	case *lessorv1.SessionResponse_HeartbeatAck:
		if q := b.answered(l, t, m, news); q != nil && news {
			b.renewed(l, q, p.HeartbeatAck.GetLeases())
		}
	case *lessorv1.SessionResponse_Cancel:
		if p.Cancel.GetGrace().AsDuration() == 0 {
			b.lost(l, p.Cancel.GetLeaseId(), m.String())
		}
	case *lessorv1.SessionResponse_Drain:
		if t.drainSaid = true; news && len(b.drains) == 0 {
			b.problem(l, "nobody asked for %v", m)
		}
	case *lessorv1.SessionResponse_PkgInstall, *lessorv1.SessionResponse_PkgUninstall:
		if news {
			b.told(l, t, m)
		}
	case *lessorv1.SessionResponse_Error:
		b.refusedFrame(l, t, m, news)
	}
}

// answered finds the question of an answer.
func (b *book) answered(l *line, t *talk, m *lessorv1.SessionResponse, news bool) *question {
	q := t.asked[m.GetCorr()]
	switch {
	case !news:
		return q
	case q == nil:
		b.problem(l, "an answer to a frame that was not taken: %v", m)
	case q.due > 0:
		q.due--
	case q.maybe > 0:
		q.maybe--
	default:
		b.problem(l, "one more answer to %v: %v", q.frame, m)
	}
	return q
}

// assigned checks an assignment: its lease is new, or it was not told yet that it has ended.
func (b *book) assigned(l *line, t *talk, seq uint64, a *lessorv1.Assignment) {
	known := b.leases[a.GetLeaseId()]
	if known == nil {
		known = &leaseOf{task: a.GetTask().GetTaskId(), attempt: a.GetAttempt(), instance: t.instance()}
		b.leases[a.GetLeaseId()] = known
		b.fence(l, known, a.GetFencingToken())
	}
	if known.ended != "" {
		b.problem(l, "%s is handed out after %s", known.task, known.ended)
	}
	if known.instance != t.instance() {
		b.problem(l, "%s is handed out to another instance", known.task)
	}
	known.hold(a.GetExpiresAt().AsTime())
	t.dispatched[seq] = append(t.dispatched[seq], known)
	t.handed[a.GetLeaseId()], l.handed[a.GetLeaseId()] = true, known
}

// fence checks that fencing tokens rise with the attempts (A2), in whatever order they are told.
func (b *book) fence(l *line, known *leaseOf, token uint64) {
	if b.fences[known.task] == nil {
		b.fences[known.task] = map[uint32]uint64{}
	}
	b.fences[known.task][known.attempt] = token
	for other, before := range b.fences[known.task] {
		if other < known.attempt && before >= token || other > known.attempt && before <= token {
			b.problem(l, "A2: attempt %d of %s has the fencing token %d, and attempt %d has %d",
				known.attempt, known.task, token, other, before)
		}
	}
}

func (l *leaseOf) hold(until time.Time) {
	if until.After(l.told) {
		l.told = until
	}
}

// lost checks a word that a lease has ended.
func (b *book) lost(l *line, id, why string) {
	known := b.leases[id]
	if known == nil {
		return
	}
	if known.ended == "" {
		known.ended = why
	}
	if t := b.w.task(known.task); t != nil && t.Lease != nil && t.Lease.Attempt == known.attempt {
		b.problem(l, "the lease of %s is live, and this says that it has ended: %s", known.task, why)
	}
}

// renewed checks the answer to a heartbeat.
func (b *book) renewed(l *line, q *question, acks []*lessorv1.LeaseAck) {
	asked := q.frame.GetHeartbeat().GetLeases()
	if len(acks) != len(asked) {
		b.problem(l, "%d answers to %d renewals", len(acks), len(asked))
		return
	}
	for n, a := range acks {
		known := b.leases[a.GetLeaseId()]
		switch {
		case a.GetLeaseId() != asked[n].GetLeaseId():
			b.problem(l, "the answers to a heartbeat are out of order")
		case a.GetError() != nil:
			b.unjudged(l, a.GetError())
		case known == nil:
		case a.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED:
			if until := a.GetExpiresAt().AsTime(); until.Before(q.at.Add(leaseTTL)) {
				b.problem(l, "a heartbeat at %v renews the lease until %v only", q.at, until)
			}
			known.hold(a.GetExpiresAt().AsTime())
		case a.GetVerdict() == lessorv1.Verdict_VERDICT_CANCELLED && a.GetReason() != lessorv1.Reason_REASON_ALREADY_REPORTED:
			b.lost(l, a.GetLeaseId(), a.String())
		}
	}
}

// unjudged checks an item that has no verdict.
func (b *book) unjudged(l *line, e *lessorv1.ItemError) {
	if b.w.restarted.Load() == 0 {
		b.problem(l, "no verdict: %v", e)
	}
}

// judged checks verdicts: one for each report, in order, and none contradicts another one (A5, A10,
// V4, V5).
func (b *book) judged(l *line, q *question, verdicts []*lessorv1.ReportVerdict) {
	asked := q.frame.GetReports().GetReports()
	if len(verdicts) != len(asked) {
		b.problem(l, "%d verdicts on %d reports", len(verdicts), len(asked))
		return
	}
	for n, v := range verdicts {
		content, id, report := contentOf(asked[n])
		known := b.leases[v.GetLeaseId()]
		switch {
		case v.GetLeaseId() != id || v.GetReportId() != report:
			b.problem(l, "the verdicts are out of order: %v on %v", v, asked[n])
		case v.GetError() != nil:
			b.unjudged(l, v.GetError())
		case known == nil:
		case content == "":
			b.begun(l, known, v)
		default:
			b.reported(l, known, content, v)
		}
	}
}

// contentOf returns what a report says (V13), empty for a Start, and the ids of its lease and of
// itself.
func contentOf(r *lessorv1.Report) (content, leaseID, report string) {
	switch p := r.GetReport().(type) {
	case *lessorv1.Report_Complete:
		return "complete " + string(p.Complete.GetOutput()), p.Complete.GetLeaseId(), p.Complete.GetReportId()
	case *lessorv1.Report_Fail:
		return "fail " + p.Fail.GetError().String(), p.Fail.GetLeaseId(), p.Fail.GetReportId()
	case *lessorv1.Report_Release:
		return "release", p.Release.GetLeaseId(), p.Release.GetReportId()
	}
	return "", r.GetStart().GetLeaseId(), ""
}

func (b *book) begun(l *line, known *leaseOf, v *lessorv1.ReportVerdict) {
	switch {
	case v.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED:
		known.hold(v.GetExpiresAt().AsTime())
	case v.GetVerdict() == lessorv1.Verdict_VERDICT_CANCELLED && v.GetReason() != lessorv1.Reason_REASON_ALREADY_REPORTED:
		b.lost(l, v.GetLeaseId(), v.String())
	}
}

func (b *book) reported(l *line, known *leaseOf, content string, v *lessorv1.ReportVerdict) {
	switch v.GetVerdict() {
	case lessorv1.Verdict_VERDICT_COMMITTED:
		if known.committed != "" && known.committed != content {
			b.problem(l, "A5: %q and %q are COMMITTED for %s", known.committed, content, known.task)
		}
		known.committed = content
		if !v.GetReplayed() {
			known.fresh++
		}
		b.lost(l, v.GetLeaseId(), v.String())
	case lessorv1.Verdict_VERDICT_CANCELLED:
		known.cancelled = true
		b.lost(l, v.GetLeaseId(), v.String())
	default:
	}
	if known.fresh > 1 || known.cancelled && known.committed != "" {
		b.problem(l, "A10: %v contradicts an earlier verdict: %+v", v, *known)
	}
}

// refusedFrame checks an error frame.
func (b *book) refusedFrame(l *line, t *talk, m *lessorv1.SessionResponse, news bool) {
	e := m.GetError()
	switch {
	case !news:
	case e.GetCode() != refusal.CodeSeqGap:
		if !t.refused[m.GetCorr()] {
			b.problem(l, "a good frame is refused: %v", m)
		}
		if t.wereRefused[m.GetCorr()] && t.acks[m.GetCorr()] > 0 {
			t.acks[m.GetCorr()]--
		}
		t.wereRefused[m.GetCorr()] = true
	case e.GetExpectedSeq() > t.next:
		b.problem(l, "%v, and the next frame is %d", m, t.next)
	default:
		t.gaps--
	}
}

// settled checks that nothing is left to say on lines on which frames pass, when all that was said
// has had its effect. swift: commits take no time.
func (b *book) settled(swift bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	for l, t := range b.lines {
		if other := b.used[t.instance()].talk; swift && l.open() && !l.up.standsStill() && !l.down.standsStill() && (t.line != l || t.registered && t != other) {
			b.problem(l, "another line has taken over, and the line goes on")
		}
	}
	for l := range b.hellos {
		if since := now.Sub(l.since); b.lines[l] == nil && l.open() && since > handshakeWithin+time.Second && !l.down.standsStill() {
			b.problem(l, "it has no session after %v", since)
		}
	}
	for _, t := range b.talks {
		l := t.line
		if t.over || !l.open() || l.up.standsStill() || l.down.standsStill() {
			continue
		}
		// One miss may not count, because the reader handled a frame at that moment.
		if since := now.Sub(t.beat); t.registered && since > time.Duration(b.w.misses+2)*heartbeats {
			b.problem(l, "the last heartbeat came %v ago, and the session goes on", since)
		}
		if !swift || !t.registered {
			continue
		}
		if len(t.asks) > 0 && t.reliable && t.asks[0].times == 1 && now.Sub(t.asks[0].since) > time.Second && l.since.Before(t.asks[0].since) {
			b.problem(l, "frame %d of %v is not acknowledged, and was not sent again", t.asks[0].seq, t.asks[0].since)
		}
		b.checkTold(l)
		if o := t.untold(); o != nil {
			b.problem(l, "the worker was not told %+v", o.PackageOrder)
		}
		if b.drains[t.instance()] && !t.drainSaid {
			b.problem(l, "the worker was not told that an operator drains it")
		}
		for id, q := range t.asked {
			if q.due > 0 {
				b.problem(l, "the frame %s of %v has no answer: %v", id, q.at, q.frame)
			}
		}
		for id, n := range t.acks {
			if n > 0 {
				b.problem(l, "the frame %s is not acknowledged", id)
			}
		}
		if t.gaps > 0 {
			b.problem(l, "that the frame %d is missing was not told", t.next)
		}
	}
	b.checkPackages(swift)
}

// granted checks that a live lease was handed out to the session that its instance has, and that a
// session whose last work went unacknowledged got none until it has said something (W5).
func (b *book) granted(w *world, instance, leaseID string, t *lease.Task) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.left[instance] && !w.slow {
		w.Errorf("%v: attempt %d of %v is leased to an instance that has left", time.Since(epoch), t.Lease.Attempt, t.ID)
	}
	now := b.used[instance].talk
	if now == nil || !now.registered || now.over || !now.line.open() || now.line.up.standsStill() || now.line.down.standsStill() {
		return
	}
	if unacked := t.Lease.AckedAt == 0 && t.Lease.AckBy != 0; !w.slow && unacked && !now.handed[leaseID] {
		b.problem(now.line, "attempt %d of %v was granted at %v, and was not handed out",
			t.Lease.Attempt, t.ID, t.Lease.GrantedAt.Time())
	}
}

// mostRoom returns the most slots that an instance had since a time.
func (b *book) mostRoom(instance string, since time.Time) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.roomSince(instance, since)
}

// isOver reports whether the session of a line has ended, or gone on elsewhere.
func (b *book) isOver(l *line) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.lines[l]
	return t == nil || t.over || t.line != l || !l.open()
}

// concludes compares the histories of the tasks with what was said about their leases.
func (b *book) concludes() {
	b.mu.Lock()
	defer b.mu.Unlock()
	outcomes := map[string]int{}
	for _, l := range b.leases {
		t := b.w.task(l.task)
		if t == nil {
			continue // it was deleted
		}
		for _, e := range t.Events() {
			if e.Attempt == l.attempt {
				b.conclude(t, l, e)
			}
		}
		if strings.HasPrefix(l.committed, "complete") {
			outcomes[l.task]++
			if t.State() != lease.Completed || t.Outcome == nil || t.Outcome.Attempt != l.attempt {
				b.w.Errorf("A5: attempt %d of %v was COMMITTED, and it is %v by %+v", l.attempt, t.ID, t.State(), t.Outcome)
			}
		}
	}
	for task, n := range outcomes {
		if n > 1 {
			b.w.Errorf("A5: %s was completed %d times", task, n)
		}
	}
}

// conclude compares an event with what was said about its lease.
func (b *book) conclude(t *lease.Task, l *leaseOf, e lease.Event) {
	at := e.At.Time()
	switch {
	case e.Type != lease.EventLeaseEnded:
	case e.Reason == lease.LeaseExpired && at.Before(l.told.Add(-time.Second)):
		b.w.Errorf("attempt %d of %v expired at %v, and was told to live until %v", l.attempt, t.ID, at, l.told)
	case e.Reason == lease.DispatchUnacked && !l.acked.IsZero() && l.acked.Before(at.Add(-4*time.Second)):
		b.w.Errorf("attempt %d of %v ended at %v unacknowledged, and was acknowledged at %v", l.attempt, t.ID, at, l.acked)
	}
}

// drainedOnes returns the instances that an operator has drained.
func (b *book) drainedOnes() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.drains))
}

// stuck returns the sessions that have, or had, a line on which frames stand still.
func (b *book) stuck() map[string]bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	all := map[string]bool{}
	for l, t := range b.lines {
		if l.down.standsStill() {
			all[t.session] = true
		}
	}
	return all
}

// serves reports whether a session is open on a line, and not about to end.
func (r *Registry) serves(l *line) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	for ss := range r.all {
		if ss.stream == l {
			return true
		}
	}
	return false
}

// lastSaid returns the seq of the newest frame on a line.
func (b *book) lastSaid(l *line) uint64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if t := b.lines[l]; t != nil {
		return t.last
	}
	return 0
}

// checkTold checks that a worker was told of the end of each lease that it was handed on a line and
// that ended after it had registered there, unless it reported about the lease: the verdict may
// have gone to a session that its instance had before.
func (b *book) checkTold(l *line) {
	for id, known := range l.handed {
		if known.ended == "" && b.hasEnded(known) {
			b.problem(l, "the lease of attempt %d of %s has ended, and that was not told", known.attempt, known.task)
		}
		if known.ended != "" {
			delete(l.handed, id)
		}
	}
}

// hasEnded reports whether the store says that a lease has ended.
func (b *book) hasEnded(known *leaseOf) bool {
	t := b.w.task(known.task)
	return t != nil && slices.ContainsFunc(t.Events(), func(e lease.Event) bool {
		return e.Attempt == known.attempt && e.Type == lease.EventLeaseEnded
	})
}
