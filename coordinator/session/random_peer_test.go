package session

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// peer is a worker whose frames the test makes itself. By itself it keeps the order of the frames
// in both directions, as W6 and W7 say, and sends heartbeats; the history decides what else it
// says. Once it is diligent it does all that a worker has to do.
type peer struct {
	w        *world
	name     string
	instance string
	numbered bool // its frames have a seq

	mu       sync.Mutex // guards the rest
	diligent bool
	lazy     bool // it acknowledges nothing by itself, and sends no heartbeats
	line     *line
	since    time.Time // when the line was opened
	accepted bool
	id       string // of the session
	token    string
	tokens   []*lessorv1.Resume // earlier ones
	drained  map[string]bool    // sessions that it drains
	// sessions of which it has acknowledged frames that it had not taken: it may never hear of an
	// order in them
	missed   map[string]bool
	installs bool
	packages map[string]lessorv1.PackageStatus // what it has, by its own words
	orders   []*PackageOrder                   // that it was told

	frames   int // that were named
	next     uint64
	kept     []*lessorv1.SessionRequest // not acknowledged
	tries    int                        // of the first of them
	taken    uint64
	newest   string // id of the frame that was taken last
	gap      bool   // frame taken+1 is missing
	beatAt   time.Time
	sent     []*lessorv1.SessionRequest // the last frames with a seq
	unjudged []*judging
	held     []*lessorv1.Assignment // leases, ended ones included
	ended    map[string]bool        // leases of which it was told that they have ended
	done     map[string]bool        // leases with an outcome
	ticker   *time.Timer
}

// judging is a frame of reports without verdicts.
type judging struct {
	id      string
	seq     uint64
	since   time.Time
	reports []*lessorv1.Report
}

// tick is how often a peer looks what it has to do.
const tick = time.Second

// connect opens a line, and says who is there. A line that the peer has is left behind.
func (p *peer) connect(resume *lessorv1.Resume, replaces string) {
	p.w.await(p.name)
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.w.dial(context.Background(), p.name)
	if l == nil {
		return
	}
	p.line, p.since, p.accepted, p.newest, p.gap = l, time.Now(), false, "", false
	f := p.named(&lessorv1.Handshake{
		Protocol: Protocol, Worker: &lessorv1.WorkerInfo{Name: p.name, InstanceId: p.instance}, Resume: resume,
		ReplacesInstanceId: replaces,
	})
	f.Tenant, f.Sender = home.Tenant, &lessorv1.Sender{Role: "worker", Id: p.name}
	l.sendUp(f)
	go p.listen(l)
	if p.ticker == nil {
		p.ticker = time.AfterFunc(tick, p.tick)
	}
}

// resume is what the peer knows of its session; nil: nothing, or it is diligent, and the session is
// of no more use.
func (p *peer) resume() *lessorv1.Resume {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.token == "" || p.diligent && p.useless() {
		return nil
	}
	return &lessorv1.Resume{SessionId: p.id, SessionToken: p.token, LastSeenSeq: p.taken}
}

// useless reports whether a diligent peer needs another session: this one gets no more work, or
// orders in it may never end.
func (p *peer) useless() bool { return p.drained[p.id] || p.missed[p.id] }

// listen takes the frames of a line.
func (p *peer) listen(l *line) {
	for {
		f, ok := l.down.get()
		p.mu.Lock()
		if !ok {
			if p.line == l {
				p.line = nil
			}
			p.mu.Unlock()
			return
		}
		if p.line == l {
			p.hear(f)
			p.flush()
		}
		p.mu.Unlock()
	}
}

// named gives a frame its id.
func (p *peer) named(payload proto.Message) *lessorv1.SessionRequest {
	p.frames++
	f := &lessorv1.SessionRequest{Id: p.instance + "-" + strconv.Itoa(p.frames)}
	if payload != nil {
		setPayload(f, payload)
	}
	return f
}

// setPayload sets the payload of a frame.
func setPayload(f *lessorv1.SessionRequest, payload proto.Message) {
	switch m := payload.(type) {
	case *lessorv1.Handshake:
		f.Payload = &lessorv1.SessionRequest_Handshake{Handshake: m}
	case *lessorv1.Register:
		f.Payload = &lessorv1.SessionRequest_Register{Register: m}
	case *lessorv1.WorkerHeartbeat:
		f.Payload = &lessorv1.SessionRequest_Heartbeat{Heartbeat: m}
	case *lessorv1.Reports:
		f.Payload = &lessorv1.SessionRequest_Reports{Reports: m}
	case *lessorv1.Feedback:
		f.Payload = &lessorv1.SessionRequest_Feedback{Feedback: m}
	case *lessorv1.Capacity:
		f.Payload = &lessorv1.SessionRequest_Capacity{Capacity: m}
	case *lessorv1.Drain:
		f.Payload = &lessorv1.SessionRequest_Drain{Drain: m}
	case *lessorv1.PkgEvent:
		f.Payload = &lessorv1.SessionRequest_PkgEvent{PkgEvent: m}
	case *lessorv1.Error:
		f.Payload = &lessorv1.SessionRequest_Error{Error: m}
	case *lessorv1.Goodbye:
		f.Payload = &lessorv1.SessionRequest_Goodbye{Goodbye: m}
	default:
		panic(fmt.Sprintf("no payload of a frame: %T", m))
	}
}

// say sends a payload. The caller holds mu.
func (p *peer) say(payload proto.Message) *lessorv1.SessionRequest {
	f := p.named(payload)
	if p.numbered {
		f.Seq = p.next
		p.next++
		p.kept = append(p.kept, f)
		if p.sent = append(p.sent, f); len(p.sent) > 20 {
			p.sent = p.sent[1:]
		}
	}
	if _, reports := payload.(*lessorv1.Reports); !reports && p.numbered {
		f.Ack = &lessorv1.Ack{Request: true}
	}
	p.send(f)
	return f
}

// send sends a frame, with the acknowledgement that is due.
func (p *peer) send(f *lessorv1.SessionRequest) {
	if p.line == nil {
		return
	}
	if p.newest != "" && !p.lazy {
		f = proto.CloneOf(f)
		f.Ack = &lessorv1.Ack{For: p.newest, Request: f.GetAck().GetRequest()}
		p.newest = ""
	}
	p.line.sendUp(f)
}

// flush acknowledges what was taken.
func (p *peer) flush() {
	if p.newest != "" && !p.lazy && p.accepted {
		p.send(p.named(nil))
	}
}

// hear takes a frame.
func (p *peer) hear(f *lessorv1.SessionResponse) {
	if r := f.GetReset_(); r != nil {
		p.lost(r.GetCode())
		return
	}
	if a := f.GetAccept(); a != nil {
		if !p.accepted {
			p.goOn(f, a)
		}
		return
	}
	if e := f.GetError(); e != nil && !p.accepted {
		p.lost(e.GetCode())
		return
	}
	p.acknowledged(f.GetAck().GetFor())
	if e := f.GetError(); e.GetCode() == refusal.CodeSeqGap {
		p.resend(e.GetExpectedSeq())
	} else {
		p.acknowledged(f.GetCorr())
	}
	switch seq := f.GetSeq(); {
	case !p.accepted || seq > p.taken+1:
		p.miss()
	case seq <= p.taken:
		p.newest = f.GetId()
	default:
		p.taken, p.newest, p.gap = seq, f.GetId(), false
		p.heed(f)
	}
}

// miss asks for the frame that is missing.
func (p *peer) miss() {
	if p.accepted && !p.gap {
		p.gap = true
		p.say(&lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: p.taken + 1})
	}
}

// lost leaves a line that the coordinator ends.
func (p *peer) lost(code string) {
	p.w.note("%s lost its session: %s", p.name, code)
	p.line.cut()
	p.line = nil
	if code == refusal.CodeStaleBinding || code == refusal.CodeToken {
		p.id, p.token, p.taken = "", "", 0
	}
}

// goOn begins a session, or goes on with it.
func (p *peer) goOn(f *lessorv1.SessionResponse, a *lessorv1.Accept) {
	if p.token != "" {
		p.tokens = append(p.tokens, &lessorv1.Resume{SessionId: p.id, SessionToken: p.token, LastSeenSeq: p.taken})
	}
	p.accepted, p.id, p.token, p.next, p.kept, p.tries = true, a.GetSessionId(), a.GetSessionToken(), a.GetNextSeq(), nil, 0
	p.taken, p.sent = f.GetSeq(), nil
	again := p.unjudged
	p.unjudged = nil
	p.say(p.registration(p.slots()))
	if p.diligent {
		p.carryOutAll()
	}
	for _, j := range again {
		if a.GetResumed() && j.seq != 0 && j.seq < a.GetNextSeq() {
			j.since = time.Now()
			p.unjudged = append(p.unjudged, j)
		} else {
			p.report(j.reports...)
		}
	}
	p.beat(true, nil)
}

func (p *peer) slots() uint32 {
	if p.diligent {
		return 6
	}
	return 1 + uint32(p.frames)%4
}

// acknowledged forgets the frames up to one that the coordinator has taken.
func (p *peer) acknowledged(id string) {
	n := slices.IndexFunc(p.kept, func(f *lessorv1.SessionRequest) bool { return f.GetId() == id })
	if n >= 0 {
		p.kept, p.tries = p.kept[n+1:], 0
	}
}

// resend sends the frames from one on again.
func (p *peer) resend(from uint64) {
	for _, f := range slices.Clone(p.kept) {
		if f.GetSeq() >= from {
			p.send(f)
		}
	}
}

// report sends reports, and waits for their verdicts.
func (p *peer) report(reports ...*lessorv1.Report) {
	f := p.say(&lessorv1.Reports{Reports: reports})
	p.unjudged = append(p.unjudged, &judging{f.GetId(), f.GetSeq(), time.Now(), reports})
}

// heed does what a frame says.
func (p *peer) heed(f *lessorv1.SessionResponse) {
	switch m := f.GetPayload().(type) {
	case *lessorv1.SessionResponse_Dispatch:
		for _, a := range m.Dispatch.GetAssignments() {
			if !slices.ContainsFunc(p.held, func(h *lessorv1.Assignment) bool { return h.GetLeaseId() == a.GetLeaseId() }) {
				p.held = append(p.held, a)
			}
		}
		if p.diligent {
			p.finish()
		}
	case *lessorv1.SessionResponse_Verdicts:
		n := slices.IndexFunc(p.unjudged, func(j *judging) bool { return j.id == f.GetCorr() })
		if n < 0 {
			return // of a frame that was said anew meanwhile
		}
		j := p.unjudged[n]
		p.unjudged = slices.Delete(p.unjudged, n, n+1)
		p.verdicts(j.reports, m.Verdicts.GetVerdicts())
	case *lessorv1.SessionResponse_HeartbeatAck:
		for _, a := range m.HeartbeatAck.GetLeases() {
			if a.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED && a.GetError() == nil {
				p.ended[a.GetLeaseId()] = true
			}
		}
	case *lessorv1.SessionResponse_PkgInstall:
		o := m.PkgInstall
		p.carriesOut(&PackageOrder{Operation: o.GetOperationId(), Name: o.GetName(), Version: o.GetVersion()})
	case *lessorv1.SessionResponse_PkgUninstall:
		o := m.PkgUninstall
		p.carriesOut(&PackageOrder{Operation: o.GetOperationId(), Name: o.GetName(), Version: o.GetVersion(), Remove: true})
	case *lessorv1.SessionResponse_Cancel:
		if m.Cancel.GetGrace().AsDuration() == 0 {
			p.ended[m.Cancel.GetLeaseId()] = true
		}
	}
}

// verdicts takes verdicts. A report without one is said again.
func (p *peer) verdicts(reports []*lessorv1.Report, verdicts []*lessorv1.ReportVerdict) {
	for n, v := range verdicts {
		content, id, _ := contentOf(reports[n])
		switch {
		case v.GetError() != nil:
			p.report(reports[n])
		case content != "", v.GetVerdict() == lessorv1.Verdict_VERDICT_CANCELLED:
			p.ended[id] = true
		}
	}
}

// finish starts and completes all that the peer holds.
func (p *peer) finish() {
	for _, a := range p.held {
		if !p.ended[a.GetLeaseId()] && !p.done[a.GetLeaseId()] {
			p.report(p.begin(a), p.complete(a, "done"))
		}
	}
	p.held = nil
}

func (p *peer) begin(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Start{
		Start: &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

func (p *peer) complete(a *lessorv1.Assignment, output string) *lessorv1.Report {
	p.done[a.GetLeaseId()] = true
	return &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), ReportId: "r-" + output, Output: []byte(output),
	}}}
}

func (p *peer) fail(a *lessorv1.Assignment, message string) *lessorv1.Report {
	p.done[a.GetLeaseId()] = true
	return &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), ReportId: "f", Error: &lessorv1.TaskError{Message: message},
	}}}
}

func (p *peer) release(a *lessorv1.Assignment) *lessorv1.Report {
	p.done[a.GetLeaseId()] = true
	return &lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Delay: durationpb.New(time.Second),
	}}}
}

// beat sends a heartbeat that renews all leases that the peer holds.
func (p *peer) beat(healthy bool, metrics map[string]float64) {
	m := &lessorv1.WorkerHeartbeat{Healthy: healthy, Metrics: metrics}
	if p.diligent { // a heartbeat that came late may have said otherwise
		m.Metrics = map[string]float64{memPct: 1}
	}
	for _, a := range p.held {
		if !p.ended[a.GetLeaseId()] && !p.done[a.GetLeaseId()] {
			m.Leases = append(m.Leases, &lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
		}
	}
	p.beatAt = time.Now()
	p.send(p.named(m))
}

// tick does what is due: heartbeats, resends, and once the peer is diligent another line.
func (p *peer) tick() {
	p.mu.Lock()
	if p.ticker == nil {
		p.mu.Unlock()
		return
	}
	p.ticker.Reset(tick)
	now := time.Now()
	if p.line != nil && !p.line.open() {
		p.line = nil
	}
	switch {
	case p.line == nil:
		again := p.diligent
		p.mu.Unlock()
		if again {
			p.connect(p.resume(), "")
		}
		return
	case !p.accepted && now.Sub(p.since) > handshakeWithin, p.tries > wire.ResendTries,
		len(p.unjudged) > 0 && now.Sub(p.unjudged[0].since) > 30*time.Second && p.accepted:
		p.giveUp()
	case p.accepted:
		p.due(now)
	}
	p.mu.Unlock()
}

// giveUp leaves a line on which nothing comes back. Nobody knows what became of the reports: they
// are said anew.
func (p *peer) giveUp() {
	p.w.note("%s gives its line up", p.name)
	p.line.cut()
	p.line = nil
	for _, j := range p.unjudged {
		j.seq = 0
	}
}

func (p *peer) due(now time.Time) {
	p.gap = false // ask for it again where the next frame shows it
	if len(p.kept) > 0 {
		p.tries++
		f := proto.CloneOf(p.kept[0])
		f.Ack = &lessorv1.Ack{Request: true}
		p.send(f)
	}
	if !p.lazy && now.Sub(p.beatAt) >= heartbeats {
		p.beat(true, nil)
	}
	if !p.numbered {
		for _, j := range p.unjudged {
			if now.Sub(j.since) > 5*time.Second { // nothing else shows that the frame was lost
				p.resay(j)
			}
		}
	}
	p.flush()
}

// resay sends a frame without a seq again, under its old id.
func (p *peer) resay(j *judging) {
	f := &lessorv1.SessionRequest{Id: j.id}
	setPayload(f, &lessorv1.Reports{Reports: j.reports})
	p.send(f)
}

// stop ends the peer, and the lines that it left behind.
func (p *peer) stop() {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.ticker != nil {
		p.ticker.Stop()
		p.ticker = nil
	}
	p.diligent = false
	if p.line != nil {
		p.line.cut()
		p.line = nil
	}
}
