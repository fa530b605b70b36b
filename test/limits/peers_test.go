package limits

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// peer is a worker with streams, of which it has one at a time, or none. Its frames have no seq.
type peer struct {
	w        *world
	tn       *tenant
	name     string
	instance int
	frames   int

	mu      sync.Mutex // guards the rest
	line    *line      // the newest one; nil: it has had none
	lines   []*line
	retired bool // it opens no stream any more
	accept  *lessorv1.Accept
	drains  string              // the newest session of which the coordinator knows that it drains
	seen    uint64              // seq of the newest frame of the coordinator
	waiting map[string]*pending // by the id of the frame that has no answer yet
	working map[string]bool     // leases that it works on or has worked on
}

// pending is a frame without an answer.
type pending struct {
	l      *held
	what   string // "report", or what is not one
	report report
	began  time.Time
	answer chan answer
}

// line is one stream.
type line struct {
	stream   grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	cut      context.CancelFunc
	ended    chan struct{}
	turn     chan struct{} // holds one token, for who sends
	slow     time.Duration // for how long the worker does not read after each frame
	mute     bool          // it acknowledges no dispatch, and does nothing with it
	silent   bool          // it sends no heartbeats
	acks     atomic.Int32  // answers to heartbeats
	client   *client
	with     *credential
	register *lessorv1.Register
	of       *instance
	// id of the frame that says that the worker drains; empty: there is none, or it was refused.
	// Guarded by peer.mu
	drain string

	// Guarded by book.mu:
	session      string    // empty: it was not accepted
	fresh        bool      // nothing comes on it that was sent on an earlier one
	since, until time.Time // when it was accepted, and when it has ended
}

func newPeer(w *world, tn *tenant, name string) *peer {
	return &peer{w: w, tn: tn, name: name, waiting: map[string]*pending{}, working: map[string]bool{}}
}

func (p *peer) worker() workerOf { return workerOf{p.tn, p.name} }

func (l *line) hasEnded() bool {
	select {
	case <-l.ended:
		return true
	default:
		return false
	}
}

// connects opens a stream of a worker, which may have one already: it resumes its session, comes
// without a token, or is a new instance that replaces the one before.
func (w *world) connects(tn *tenant) {
	p := pick(w.rng, tn.peers...)
	l := &line{turn: make(chan struct{}, 1), ended: make(chan struct{}), mute: one(w.rng, 10)}
	if one(w.rng, 3) {
		l.slow = upTo(w.rng, pick(w.rng, 5*time.Second, 60*time.Second))
	}
	l.silent = one(w.rng, 12)
	hello := &lessorv1.Handshake{
		Protocol: 1,
		Worker:   &lessorv1.WorkerInfo{Name: p.name, InstanceId: fmt.Sprint(p.name, p.instance)},
	}
	switch w.rng.IntN(4) {
	case 0:
		p.instance++
		hello.ReplacesInstanceId, hello.Worker.InstanceId = hello.GetWorker().GetInstanceId(), fmt.Sprint(p.name, p.instance)
		w.book.leaves(p.worker(), hello.GetReplacesInstanceId())
	case 1:
	default:
		p.mu.Lock()
		hello.Resume = p.resume()
		p.mu.Unlock()
	}
	caps := w.capabilities()
	caps.Concurrency.MaxParallel = 1 + w.rng.Uint32N(8)
	w.note("%s: %s connects, slow %v, mute %v, resumes %v, replaces %q", tn.name, hello.GetWorker().GetInstanceId(),
		l.slow, l.mute, hello.GetResume() != nil, hello.GetReplacesInstanceId())
	p.connect(l, hello, &lessorv1.Register{Queues: queues, WorkspaceId: pick(w.rng, tn.spaces...), Capabilities: caps})
}

// resume returns what the worker knows of its session; nil: it has had none. The caller holds mu.
func (p *peer) resume() *lessorv1.Resume {
	if p.accept == nil {
		return nil
	}
	return &lessorv1.Resume{SessionId: p.accept.GetSessionId(), SessionToken: p.accept.GetSessionToken(), LastSeenSeq: p.seen}
}

func (p *peer) connect(l *line, hello *lessorv1.Handshake, register *lessorv1.Register) {
	now := p.w.now.Load()
	if now == nil {
		return
	}
	ctx, with := p.tn.withToken(context.Background())
	ctx, cut := context.WithCancel(ctx)
	l.cut, l.with, l.register = cut, with, register
	p.mu.Lock()
	if p.retired {
		p.mu.Unlock()
		cut()
		return
	}
	p.line, p.lines, p.seen = l, append(p.lines, l), 0
	p.w.book.connects(p.worker(), hello.GetWorker().GetInstanceId(), l)
	if r := hello.GetResume(); r != nil {
		p.seen = r.GetLastSeenSeq()
	}
	p.mu.Unlock()
	if l.slow > 0 { // its connection stands still with it
		l.client = p.w.dial(now)
	} else {
		l.client = now.clients[p.tn.name]
	}
	p.w.busy.Go(func() {
		defer close(l.ended)
		defer p.w.book.disconnected(l)
		defer cut()
		if l.slow > 0 {
			defer l.client.conn.Close()
		}
		stream, err := l.client.workers.Session(ctx)
		if err != nil {
			p.w.check(p.tn, l.with, "Session", err)
			return
		}
		l.stream = stream
		l.turn <- struct{}{}
		p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Handshake{Handshake: hello}}, nil)
		if !l.silent {
			p.w.busy.Go(func() { p.keepAlive(l) })
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				p.w.count("end of a stream", status.Convert(err).Message())
				return
			}
			p.handle(l, m)
			select {
			case <-ctx.Done(): // what has come meanwhile is lost
				return
			case <-time.After(l.slow):
			}
		}
	})
}

// keepAlive sends the heartbeats of the session for as long as the stream lasts.
func (p *peer) keepAlive(l *line) {
	for {
		select {
		case <-l.ended:
			return
		case <-time.After(beatEvery):
			p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{Healthy: true}}}, nil)
		}
	}
}

// send sends a frame. If it waits for an answer, the answer comes to the channel of the pending.
func (p *peer) send(l *line, m *lessorv1.SessionRequest, wants *pending) {
	select {
	case <-l.turn:
	case <-l.ended:
		return
	}
	p.mu.Lock()
	p.frames++
	m.Id = fmt.Sprint(p.name, "-", p.frames)
	if wants != nil {
		p.waiting[m.GetId()] = wants
	}
	if m.GetDrain() != nil {
		l.drain = m.GetId()
	}
	p.mu.Unlock()
	m.Tenant, m.Sender = p.tn.name, &lessorv1.Sender{Role: "worker", Id: p.name}
	_ = l.stream.Send(m) // Recv says why
	l.turn <- struct{}{}
}

// handle does what a frame of the coordinator asks for.
func (p *peer) handle(l *line, m *lessorv1.SessionResponse) {
	p.hear(l, m)
	if m.GetAck().GetRequest() && !l.mute {
		ack := &lessorv1.SessionRequest{Ack: &lessorv1.Ack{For: m.GetId()}}
		p.w.busy.Go(func() { p.send(l, ack, nil) })
	}
	switch payload := m.GetPayload().(type) {
	case *lessorv1.SessionResponse_Accept:
		p.w.busy.Go(func() {
			p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: l.register}}, nil)
		})
	case *lessorv1.SessionResponse_Dispatch:
		p.dispatched(l, payload.Dispatch)
	case *lessorv1.SessionResponse_Verdicts:
		for _, v := range payload.Verdicts.GetVerdicts() {
			p.answered(m.GetCorr(), v.GetError(),
				answer{v.GetVerdict(), v.GetReason(), v.GetShouldCancel(), v.GetExpiresAt().AsTime()})
		}
	case *lessorv1.SessionResponse_HeartbeatAck:
		l.acks.Add(1)
		for _, v := range payload.HeartbeatAck.GetLeases() {
			p.answered(m.GetCorr(), v.GetError(),
				answer{v.GetVerdict(), v.GetReason(), v.GetShouldCancel(), v.GetExpiresAt().AsTime()})
		}
	case *lessorv1.SessionResponse_Drain:
		p.w.book.told(l, payload.Drain)
	case *lessorv1.SessionResponse_Reset_:
		reason, _, _ := strings.Cut(payload.Reset_.GetReason(), ": "+kickReason)
		p.w.count("reset", payload.Reset_.GetCode()+" "+reason)
	case *lessorv1.SessionResponse_Error:
		p.w.count("error frame", payload.Error.GetCode())
		p.answered(m.GetCorr(), &lessorv1.ItemError{Code: payload.Error.GetCode()}, answer{})
		switch code := payload.Error.GetCode(); code {
		case "E.QUOTA.FRAMES", "E.QUOTA.SESSIONS", "E.SESSION.STALE_BINDING", "E.SESSION.DENIED", "E.AUTH.INVALID_TOKEN":
		default:
			p.w.note("%s: %s: error %v", p.tn.name, p.name, payload.Error)
		}
	}
}

// hear notes what a frame says of the session.
func (p *peer) hear(l *line, m *lessorv1.SessionResponse) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if a := m.GetAccept(); a != nil {
		if !a.GetResumed() || m.GetSeq() < p.seen {
			p.seen = m.GetSeq()
		}
		p.accept = a
		p.w.book.accepted(l, a.GetSessionId(), !a.GetResumed())
		switch {
		case p.drains != a.GetSessionId():
		case !a.GetResumed() || m.GetSeq() == 1: // the coordinator has lost what the worker said
			p.drains = ""
		case p.line == l:
			p.w.book.drains(l)
		}
	}
	p.seen = max(p.seen, m.GetSeq())
	switch {
	case l.drain == "":
	case l.drain != m.GetAck().GetFor():
		if l.drain == m.GetCorr() { // it was refused
			l.drain = ""
		}
	case p.line == l:
		p.drains = l.session
		p.w.book.drains(l)
	}
}

// dispatched begins to work on new leases. A lease that is dispatched again is one that the worker
// has.
func (p *peer) dispatched(l *line, d *lessorv1.Dispatch) {
	for _, a := range d.GetAssignments() {
		p.mu.Lock()
		known := p.working[a.GetLeaseId()]
		p.working[a.GetLeaseId()] = known || !l.mute
		p.mu.Unlock()
		keyed := a.GetTask().GetSpec().GetConcurrencyKey() != ""
		if rng := p.w.fate("refuse" + a.GetLeaseId()); keyed && !known && !p.w.calm.Load() && one(rng, 40) {
			p.w.busy.Go(func() { p.refuse(l, a) })
			continue
		}
		if h := p.w.handed(p.tn, a, l.of); !known && !l.mute {
			p.w.busy.Go(func() { p.w.work(h, p) })
		}
	}
}

// answered passes an answer on to who waits for it. It may come on a later stream than the
// question, and twice.
func (p *peer) answered(frame string, failed *lessorv1.ItemError, a answer) {
	p.mu.Lock()
	q := p.waiting[frame]
	delete(p.waiting, frame)
	p.mu.Unlock()
	switch {
	case q == nil:
		return
	case failed != nil:
		p.w.note("%s: %s: no verdict on a %s: %v", p.tn.name, p.name, q.what, failed)
		a.verdict = lessorv1.Verdict_VERDICT_UNSPECIFIED
	case q.what == "report":
		p.w.count("report on a stream", a.verdict.String()+" "+a.reason.String())
		p.w.book.judged(q.l.leaseRecord, q.report, a.verdict, a.reason, q.began)
	default:
		p.w.count(q.what+" on a stream", a.verdict.String()+" "+a.reason.String())
		p.w.book.answered(q.l.leaseRecord, q.what, a.verdict, a.reason, q.began)
	}
	q.answer <- a
}

// say sends a frame about a lease on the present stream and waits for the answer, for as long as
// the stream lasts.
func (p *peer) say(l *held, what string, r report, m *lessorv1.SessionRequest) (a answer, ok bool) {
	line := p.current()
	p.w.book.names(l.leaseRecord, line.of)
	q := &pending{l: l, what: what, report: r, began: time.Now(), answer: make(chan answer, 1)}
	p.send(line, m, q)
	select {
	case a = <-q.answer:
		return a, a.verdict != lessorv1.Verdict_VERDICT_UNSPECIFIED
	case <-line.ended:
	case <-time.After(patience):
		if line.slow == 0 {
			p.w.problem("%s: %s: there is no answer to a %s of %s", p.tn.name, p.name, what, l.task)
		}
	}
	return a, false
}

func (p *peer) start(l *held) (a answer, ok bool) {
	return p.say(l, "start", report{}, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Reports{Reports: &lessorv1.Reports{Reports: []*lessorv1.Report{{
		Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{TaskId: l.task, LeaseId: l.id}},
	}}}}})
}

func (p *peer) beat(l *held, checkpoint []byte) (a answer, ok bool) {
	p.feed(l)
	return p.say(l, "heartbeat", report{}, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{
		Healthy: true, Leases: []*lessorv1.HeartbeatRequest{{TaskId: l.task, LeaseId: l.id, Checkpoint: checkpoint}},
	}}})
}

func (p *peer) report(l *held, r report) (a answer, ok bool) {
	p.w.book.sending(l.leaseRecord, r)
	return p.say(l, "report", r, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Reports{Reports: &lessorv1.Reports{
		Reports: []*lessorv1.Report{reportProto(l, r)},
	}}})
}

// refuse says that the worker runs another task of the same concurrency key.
func (p *peer) refuse(l *line, a *lessorv1.Assignment) {
	p.w.book.refuses(p.w.book.granted(a, l.of))
	p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Error{Error: &lessorv1.Error{
		Code: "E.CMD.CONCURRENCY_VIOLATION", TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(),
	}}}, nil)
}

// feed sends some output of a running task.
func (p *peer) feed(l *held) {
	line := p.current()
	p.send(line, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Feedback{Feedback: &lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{{
		TaskId: l.task, LeaseId: l.id, Message: "goes on",
		Chunks: []*lessorv1.FeedbackChunk{{Channel: "out", Body: &lessorv1.FeedbackChunk_Text{Text: "a line of output"}}},
	}}}}}, nil)
}

// retire cuts all streams of the worker for good.
func (p *peer) retire() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = true
	for _, l := range p.lines {
		l.cut()
	}
}

// open returns the workers of tenants that have a stream.
func (w *world) open(of ...*tenant) (all []*peer) {
	for _, tn := range of {
		for _, p := range tn.peers {
			if l := p.current(); l != nil && !l.hasEnded() {
				all = append(all, p)
			}
		}
	}
	return all
}

// current returns the stream of the worker; nil: it has none.
func (p *peer) current() *line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.line
}

// allLines returns all streams that the worker has had.
func (p *peer) allLines() []*line {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.lines)
}

// breaks ends the stream of a worker: with a goodbye, after a drain, or without a word.
func (w *world) breaks(tn *tenant) {
	open := w.open(tn)
	if len(open) == 0 {
		return
	}
	p := pick(w.rng, open...)
	l := p.current()
	kind, after, again := w.rng.IntN(4), upTo(w.rng, 20*time.Second), one(w.rng, 2)
	w.note("%s: %s ends its stream, in way %d, and resumes %v", tn.name, p.name, kind, again)
	w.busy.Go(func() {
		if p.leave(l, kind, after); again {
			p.comesBack(l)
		}
	})
}

// leave ends a stream; one that drains, after a while.
func (p *peer) leave(l *line, kind int, after time.Duration) {
	switch kind {
	case 0:
		p.w.book.leaves(l.of.worker, l.of.id)
		p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Goodbye{Goodbye: &lessorv1.Goodbye{}}}, nil)
	case 1:
		p.send(l, &lessorv1.SessionRequest{
			Payload: &lessorv1.SessionRequest_Drain{Drain: &lessorv1.Drain{}},
			Ack:     &lessorv1.Ack{Request: true},
		}, nil)
		time.Sleep(after)
	}
	l.cut()
}

// comesBack opens another stream where one has ended, if it was the newest.
func (p *peer) comesBack(l *line) {
	<-l.ended
	p.mu.Lock()
	hello, newest := &lessorv1.Handshake{
		Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: p.name, InstanceId: l.of.id},
		Resume: p.resume(),
	}, p.line == l
	p.mu.Unlock()
	if newest {
		p.connect(&line{turn: make(chan struct{}, 1), ended: make(chan struct{})}, hello, l.register)
	}
}

// bothers sends a flood of frames, or changes of the slots.
func (w *world) bothers(tn *tenant) {
	p := pick(w.rng, tn.peers...)
	l := p.current()
	if l == nil {
		return
	}
	slots, n, full := w.rng.Uint32N(6), pick(w.rng, 1, 10, 100, 2500), pick(w.rng, 10.0, 93, 99)
	kind := w.rng.IntN(4)
	switch {
	case kind == 1, kind == 3:
		n = min(n, 100)
	case l.slow > time.Second: // more answers than its connection holds
		kind, n = 0, 2000
	}
	w.note("%s: %s bothers in way %d, %d times, %d slots, %v %% full", tn.name, p.name, kind, n, slots, full)
	crowd := int32(0)
	if kind == 1 || kind == 3 { // each is a command of its tenant, as a call is
		crowd = int32(n)
	}
	tn.calls.Add(crowd)
	w.busy.Go(func() {
		defer tn.calls.Add(-crowd)
		for range n {
			switch kind {
			case 0:
				p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{Healthy: true}}}, nil)
			case 1:
				p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Capacity{Capacity: &lessorv1.Capacity{MaxParallel: slots}}}, nil)
			case 2:
				p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{
					Healthy: full != 99, Metrics: map[string]float64{"mem_pct": full},
				}}}, nil)
				return
			case 3:
				again := proto.CloneOf(l.register)
				again.Capabilities.Concurrency.MaxParallel = 1 + slots
				p.send(l, &lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: again}}, nil)
			}
		}
		p.awaitAcks(l)
	})
}

// awaitAcks checks that the heartbeats of a stream have answers, one after the other, until none is
// left or the stream ends.
func (p *peer) awaitAcks(l *line) {
	for before := int32(-1); ; {
		select {
		case <-l.ended:
			return
		case <-time.After(time.Minute):
		}
		now := l.acks.Load()
		if now == before && l.slow == 0 {
			p.w.problem("%s: %s: no heartbeat was answered for a minute", p.tn.name, p.name)
			return
		}
		before = now
	}
}

// generous opens a session that takes every task of a workspace.
func (p *peer) generous(space string) {
	p.instance++
	caps := &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: 10_000}}
	for n := range features {
		caps.Features = append(caps.Features, fmt.Sprint("gpu", n))
	}
	l := &line{turn: make(chan struct{}, 1), ended: make(chan struct{})}
	p.connect(l, &lessorv1.Handshake{
		Protocol: 1,
		Worker:   &lessorv1.WorkerInfo{Name: p.name, InstanceId: fmt.Sprint(p.name, p.instance)},
	},
		&lessorv1.Register{Queues: append(slices.Clone(queues), "hammered"), WorkspaceId: space, Capabilities: caps})
}
