package session_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/inside"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// The bytes of a script are steps of two workers, a producer and the clock; step lists them.
// Whatever the script is, nothing panics, every report gets a verdict, every stream ends when its
// worker cuts it, every package operation ends, and no answer contradicts an earlier one (A2, A5,
// A10, W13).
func FuzzSession(f *testing.F) {
	for _, script := range []string{
		"OHRS.G0C0.G0C0", "OHRSSS.G0S0B0..C1F2", "oOhHrRSS.g0G0.c0C0tc0C0", "OHRS.XOh.C0", "OHRSS.XtOu.G0C0RtttC0", "OHRS.tttttC0H.", "OHRS.K0C0", "OHRSLAE.Zab\xff",
		"OHRS.G0C0YYYY.", "OHRrSW.XOHRC0.", "Otttttttt", "OHQRSSS.B0B1B2.tB0.DtttN.",
		"OHVI0I1I4P0P1P8.I2XOU.VP2RN.", "oOhHvVi1i3MP3XI9OH.P9tttttttt",
	} {
		f.Add([]byte(script))
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		const most = 200
		synctest.Test(t, func(t *testing.T) {
			p := newPlay(t)
			defer p.end()
			p.play(script[:min(len(script), most)])
		})
	})
}

// scriptRun is the run of one script.
type scriptRun struct {
	t        *testing.T
	script   []byte
	c        inside.Parts
	tasks    lessorv1.TaskServiceServer
	admin    lessorv1.AdminServiceServer
	log      *bytes.Buffer
	stop     func() error
	actors   [2]*scriptWorker
	leases   []*lessorv1.Assignment // as the workers received them
	tokens   map[string]uint64      // the newest fencing token of each task
	verdicts map[string]*lessorv1.ReportVerdict
	outputs  map[string]string // the committed output of each task
	orders   []packageOrder    // those that workers carry out or have carried out
}

// packageOrder is the request of an operator, and how far the workers were when it was made last.
type packageOrder struct {
	remove      bool
	version, id string
	last        *lessorv1.PackageOperation
}

// scriptWorker is one of the two workers.
type scriptWorker struct {
	name       string
	stream     *fakeStream // nil if there is none
	accept     *lessorv1.Accept
	sentFrames int
	seq        uint64 // of the next frame; 0 if frames have none
	newest     uint64 // seq of the newest frame that it has received
	dispatch   string // id of the last dispatch
	sent       map[string]*lessorv1.SessionRequest
	last       *lessorv1.SessionRequest
}

func newPlay(t *testing.T) *scriptRun {
	t.Helper()
	p := &scriptRun{
		t: t, log: &bytes.Buffer{},
		tokens: map[string]uint64{}, verdicts: map[string]*lessorv1.ReportVerdict{}, outputs: map[string]string{},
	}
	p.c, p.stop = wiretest.Unserved(t, coordinator.Config{Logger: slog.New(slog.NewTextHandler(p.log, &slog.HandlerOptions{Level: slog.LevelError}))})
	p.tasks, p.admin = p.c.Services.Tasks, p.c.Services.Admin
	for i, name := range []string{"ann", "bob"} {
		p.actors[i] = &scriptWorker{name: name, sent: map[string]*lessorv1.SessionRequest{}}
	}
	return p
}

// play takes the steps of a script.
func (p *scriptRun) play(script []byte) {
	for p.script = script; len(p.script) > 0; {
		p.step(p.nextByte())
		synctest.Wait()
		p.handleReceived()
	}
}

// end checks the final state of all tasks, stops the coordinator, and checks that nothing panicked.
func (p *scriptRun) end() {
	for _, a := range p.actors {
		p.cut(a)
	}
	for id, output := range p.outputs {
		m, err := p.tasks.GetTask(p.ctx(), &lessorv1.GetTaskRequest{TaskId: id})
		if task := m.GetTask(); err != nil || task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED || string(task.GetOutput()) != output {
			p.t.Errorf("A5: %s was committed with %q, and is %v (%v)", id, output, task, err)
		}
	}
	for id := range p.tokens {
		p.checkHistory(id)
	}
	time.Sleep(keepFor + time.Second)
	for _, o := range p.orders {
		if op := p.order(o); op.GetDone()+op.GetFailed() != op.GetSessions() {
			p.t.Errorf("W13: all sessions are over, and the operation is %v", op)
		}
	}
	if err := p.stop(); err != nil {
		p.t.Errorf("the engine ended: %v", err)
	}
	if strings.Contains(p.log.String(), "panic") {
		p.t.Error(p.log)
	}
}

// checkHistory checks that the history of a task has at most one live lease at a time, and at most
// one COMPLETED (A1, A5).
func (p *scriptRun) checkHistory(id string) {
	m, err := p.tasks.GetTask(p.ctx(), &lessorv1.GetTaskRequest{TaskId: id})
	if err != nil {
		p.t.Errorf("%s: %v", id, err)
		return
	}
	live, completed := false, 0
	for _, e := range m.GetTask().GetHistory() {
		switch e.GetType() {
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
			if live {
				p.t.Errorf("A1: %s is granted while a lease lives: %v", id, m.GetTask().GetHistory())
			}
			live = true
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED:
			completed++
			live = false
		case lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED,
			lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED:
			live = false
		}
	}
	if completed > 1 {
		p.t.Errorf("A5: %s was completed %d times", id, completed)
	}
}

func (p *scriptRun) ctx() context.Context { return wiretest.ContextAfterGate(p.t.Context(), p.t) }

// nextByte returns the next byte of the script; 0 after its end.
func (p *scriptRun) nextByte() byte {
	if len(p.script) == 0 {
		return 0
	}
	b := p.script[0]
	p.script = p.script[1:]
	return b
}

// step takes the step of one byte. An upper-case letter is a step of the first worker, a lower-case
// letter the same step of the second.
func (p *scriptRun) step(b byte) {
	a := p.actors[0]
	if b >= 'a' && b <= 'z' {
		a, b = p.actors[1], b-'a'+'A'
	}
	switch b {
	case 'O':
		p.cut(a)
		a.stream = newFakeStream(p.ctx())
		a.newest, a.sent = 0, map[string]*lessorv1.SessionRequest{}
		stream := a.stream
		go func() {
			defer close(stream.ended)
			stream.err = p.c.Services.Workers.Session(stream)
		}()
	case 'X':
		p.cut(a)
	case 'H':
		p.send(a, wiretest.HandshakeOf(a.name))
	case 'U': // resume
		h := wiretest.HandshakeOf(a.name)
		h.Resume = &lessorv1.Resume{
			SessionId: a.accept.GetSessionId(), SessionToken: a.accept.GetSessionToken(),
			LastSeenSeq: a.newest,
		}
		p.send(a, h)
	case 'W': // a new instance that replaces the worker's first one
		h := wiretest.HandshakeOf(a.name)
		h.Worker.InstanceId, h.ReplacesInstanceId = a.name+"2", a.name
		p.send(a, h)
	case 'R':
		p.send(a, wiretest.Registration(2))
	case 'Q':
		p.send(a, &lessorv1.Capacity{MaxParallel: uint32(p.nextByte() % 4)})
	case 'D':
		p.send(a, &lessorv1.Drain{})
	case 'N':
		p.send(a, &lessorv1.Goodbye{})
	case 'E':
		p.send(a, &lessorv1.Error{Code: refusal.CodeSeqGap, ExpectedSeq: uint64(p.nextByte() % 8)})
	case 'A':
		p.sendFrame(a, &lessorv1.SessionRequest{Id: p.frameID(a), Ack: &lessorv1.Ack{For: a.dispatch, Request: true}})
	case 'B':
		m := &lessorv1.WorkerHeartbeat{Healthy: true}
		if l := p.pickLease(); l != nil {
			m.Leases = append(m.Leases, wiretest.Renewal(l), wiretest.Renewal(l))
		}
		p.send(a, m)
	case 'G', 'C', 'F', 'L':
		p.report(a, b)
	case 'S', 'K', 'M':
		p.callProducer(b)
	case 'V':
		p.send(a, installer("p@0"))
	case 'I':
		c := p.nextByte()
		p.order(packageOrder{remove: c&1 > 0, version: fmt.Sprint(c >> 1 & 1), id: fmt.Sprint(c >> 2 & 3)})
	case 'P':
		c := p.nextByte()
		p.send(a, &lessorv1.PkgEvent{
			Name: "p", Version: fmt.Sprint(c >> 1 & 1), OperationId: fmt.Sprint(c >> 2 & 3),
			Status: lessorv1.PackageStatus(1 + (c>>4+c&1)%5),
		})
	case 'Y':
		if a.last != nil {
			p.sendFrame(a, a.last)
		}
	case 'Z': // arbitrary bytes as a frame
		n := min(int(p.nextByte()%16), len(p.script))
		p.sendBytes(a, p.script[:n])
		p.script = p.script[n:]
	case 'T':
		time.Sleep(11 * time.Second)
	case '.':
		time.Sleep(100 * time.Millisecond)
	case '+': // the next frames have a seq that may be wrong
		a.seq = uint64(p.nextByte() % 8)
	}
}

// order gives an order to all workers, or repeats one, and checks that what has ended does not
// change.
func (p *scriptRun) order(o packageOrder) *lessorv1.PackageOperation {
	all := &lessorv1.WorkerFilter{}
	if o.remove {
		m, _ := p.admin.UninstallPackage(p.ctx(),
			&lessorv1.UninstallPackageRequest{Name: "p", Version: o.version, Workers: all, RequestId: o.id})
		o.last = m.GetOperation()
	} else {
		m, _ := p.admin.InstallPackage(p.ctx(),
			&lessorv1.InstallPackageRequest{Name: "p", Version: o.version, Workers: all, RequestId: o.id})
		o.last = m.GetOperation()
	}
	if o.last == nil {
		return nil // no session was selected
	}
	i := slices.IndexFunc(p.orders, func(was packageOrder) bool {
		return was.remove == o.remove && was.version == o.version && was.id == o.id
	})
	if i < 0 {
		p.orders = append(p.orders, o)
		return o.last
	}
	for j, was := range p.orders[i].last.GetResults() {
		if now := o.last.GetResults()[j]; was.GetStatus() != installing && was.GetStatus() != uninstalling && !proto.Equal(was, now) {
			p.t.Errorf("W13: the result of a session was %v, and is %v", was, now)
		}
	}
	p.orders[i] = o
	return o.last
}

func (p *scriptRun) callProducer(b byte) {
	if b != 'K' {
		spec := &lessorv1.TaskSpec{
			Queue: "q", HeartbeatTimeout: durationpb.New(30 * time.Second),
			CancelGrace: durationpb.New(5 * time.Second),
		}
		if b == 'M' {
			spec.Requirements = &lessorv1.Requirements{Package: "p@0"}
		}
		_, _ = p.tasks.SubmitTask(p.ctx(), &lessorv1.SubmitTaskRequest{Task: spec})
		return
	}
	if l := p.pickLease(); l != nil {
		_, _ = p.tasks.CancelTask(p.ctx(), &lessorv1.CancelTaskRequest{TaskId: l.GetTask().GetTaskId()})
	}
}

// pickLease returns one of the leases that workers have received, or nil if there is none.
func (p *scriptRun) pickLease() *lessorv1.Assignment {
	if b := int(p.nextByte()); len(p.leases) > 0 {
		return p.leases[b%len(p.leases)]
	}
	return nil
}

// report sends a report about a lease, twice in one frame.
func (p *scriptRun) report(a *scriptWorker, b byte) {
	l := p.pickLease()
	if l == nil {
		return
	}
	var r *lessorv1.Report
	switch b {
	case 'G':
		r = wiretest.Started(l)
	case 'C':
		r = wiretest.Completed(l, fmt.Sprint(a.name, a.sentFrames))
	case 'F':
		r = &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{
			TaskId: l.GetTask().GetTaskId(), LeaseId: l.GetLeaseId(), Error: &lessorv1.TaskError{Message: "no"},
		}}}
	case 'L':
		r = wiretest.Released(l)
	}
	p.send(a, &lessorv1.Reports{Reports: []*lessorv1.Report{r, r}})
}

func (p *scriptRun) frameID(a *scriptWorker) string {
	a.sentFrames++
	return fmt.Sprint(a.name, "-", a.sentFrames)
}

func (p *scriptRun) send(a *scriptWorker, payload proto.Message) {
	m := &lessorv1.SessionRequest{
		Id: p.frameID(a), Tenant: gate.DefaultTenant,
		Sender: &lessorv1.Sender{Role: "worker", Id: a.name}, Seq: a.seq,
	}
	if a.seq > 0 {
		a.seq++
	}
	wiretest.SetPayload(m, payload)
	p.sendFrame(a, m)
}

func (p *scriptRun) sendFrame(a *scriptWorker, m *lessorv1.SessionRequest) {
	a.last = m
	a.sent[m.GetId()] = m
	raw, err := proto.Marshal(m)
	if err != nil {
		p.t.Fatal(err)
	}
	p.sendBytes(a, raw)
}

func (p *scriptRun) sendBytes(a *scriptWorker, frame []byte) {
	if a.stream == nil {
		return
	}
	select {
	case a.stream.in <- bytes.Clone(frame):
	default: // the stream has stopped reading
	}
}

// cut ends the worker's stream, and fails the test if the coordinator does not end it, too.
func (p *scriptRun) cut(a *scriptWorker) {
	if a.stream == nil {
		return
	}
	p.handleReceived()
	a.stream.cut()
	select {
	case <-a.stream.ended:
	case <-time.After(time.Minute):
		p.t.Fatalf("the stream of %s does not end", a.name)
	}
	a.stream = nil
}

// handleReceived handles the frames that the workers have received since the last call.
func (p *scriptRun) handleReceived() {
	for _, a := range p.actors {
		for a.stream != nil && len(a.stream.out) > 0 {
			p.handleFrame(a, <-a.stream.out)
		}
	}
}

// handleFrame checks a frame against what was sent and received before, and remembers it.
func (p *scriptRun) handleFrame(a *scriptWorker, m *lessorv1.SessionResponse) {
	if accept := m.GetAccept(); accept != nil {
		a.accept, a.seq = accept, accept.GetNextSeq()
	}
	if seq := m.GetSeq(); seq > 0 && m.GetAccept() == nil {
		if seq <= a.newest {
			return // sent again after a resume
		}
		a.newest = seq
	}
	switch {
	case m.GetDispatch() != nil:
		a.dispatch = m.GetId()
		for _, l := range m.GetDispatch().GetAssignments() {
			p.checkGrant(l)
		}
	case m.GetVerdicts() != nil:
		p.checkVerdicts(a, m)
	}
}

func (p *scriptRun) checkGrant(l *lessorv1.Assignment) {
	id := l.GetTask().GetTaskId()
	for _, known := range p.leases {
		if known.GetLeaseId() == l.GetLeaseId() {
			return // sent again to a worker that resumes
		}
	}
	if l.GetFencingToken() <= p.tokens[id] {
		p.t.Errorf("A2: the fencing token of %s is %d after %d", id, l.GetFencingToken(), p.tokens[id])
	}
	if output, committed := p.outputs[id]; committed {
		p.t.Errorf("A5: %s was committed with %q, and is granted again", id, output)
	}
	p.tokens[id] = l.GetFencingToken()
	p.leases = append(p.leases, l)
}

// checkVerdicts checks that each report has a verdict, and that none contradicts an earlier one
// (A10).
func (p *scriptRun) checkVerdicts(a *scriptWorker, m *lessorv1.SessionResponse) {
	asked := a.sent[m.GetCorr()].GetReports().GetReports()
	if len(asked) == 0 {
		return // the answer to a frame of an earlier stream
	}
	verdicts := m.GetVerdicts().GetVerdicts()
	if len(verdicts) != len(asked) {
		p.t.Fatalf("%d verdicts on %d reports", len(verdicts), len(asked))
	}
	for i, v := range verdicts {
		if asked[i].GetStart() != nil {
			continue // a Start is no outcome
		}
		text := asked[i].String()
		before := p.verdicts[text]
		if before.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED && v.GetVerdict() != before.GetVerdict() {
			p.t.Errorf("A10: %s was COMMITTED, and is %v", text, v)
		}
		if before.GetVerdict() == lessorv1.Verdict_VERDICT_CANCELLED && v.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
			p.t.Errorf("A10: %s was %v, and is COMMITTED", text, before)
		}
		p.verdicts[text] = v
		if c := asked[i].GetComplete(); c != nil && v.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
			p.checkOutput(c.GetTaskId(), string(c.GetOutput()))
		}
	}
}

func (p *scriptRun) checkOutput(id, output string) {
	if other, ok := p.outputs[id]; ok && other != output {
		p.t.Errorf("A5: %s was committed with %q and with %q", id, other, output)
	}
	p.outputs[id] = output
}

// fakeStream is the coordinator's end of a stream; the other end is the script.
type fakeStream struct {
	grpc.ServerStream
	ctx   context.Context //nolint:containedctx // a stream has one
	cut   context.CancelFunc
	in    chan []byte
	out   chan *lessorv1.SessionResponse
	ended chan struct{}
	err   error // why it ended; valid once ended is closed
}

func newFakeStream(ctx context.Context) *fakeStream {
	ctx, cut := context.WithCancel(ctx)
	return &fakeStream{
		ctx: ctx, cut: cut, in: make(chan []byte, 1000),
		out: make(chan *lessorv1.SessionResponse, 10_000), ended: make(chan struct{}),
	}
}

func (s *fakeStream) Context() context.Context { return s.ctx }

// RecvMsg decodes a frame with the codec of the gRPC server.
func (s *fakeStream) RecvMsg(m any) error {
	select {
	case raw := <-s.in:
		return wiretest.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, m)
	case <-s.ctx.Done():
		return io.ErrUnexpectedEOF
	case <-s.ended:
		return io.EOF
	}
}

// Send encodes a frame with the codec of the gRPC server.
func (s *fakeStream) Send(m *lessorv1.SessionResponse) error {
	b, err := wiretest.Codec().Marshal(m)
	if err != nil {
		return err
	}
	defer b.Free()
	again := &lessorv1.SessionResponse{}
	if err := proto.Unmarshal(b.Materialize(), again); err != nil {
		return err
	}
	s.out <- again
	return nil
}

func (s *fakeStream) Recv() (*lessorv1.SessionRequest, error) {
	m := &lessorv1.SessionRequest{}
	return m, s.RecvMsg(m)
}
