package coordinator

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// Protocol of the session stream, and what the coordinator asks of both sides.
const (
	Protocol         = 1
	sessionHeartbeat = 10 * time.Second
	sessionIdle      = time.Minute
	maxParallel      = 10_000
	maxQueues        = 100
	maxTypes         = 1000
)

// Codes of error and reset frames beside those of errors.go; docs/protocol.md has the table (W14).
const (
	codeDenied       = "E.SESSION.DENIED"
	codeStaleBinding = "E.SESSION.STALE_BINDING"
	codeUnknown      = "E.CMD.UNKNOWN"
	codeTimeout      = "E.TIMEOUT"
)

// sessionState is where a session stands (W1). The worker's NEW and CLOSED have no session here.
type sessionState int

const (
	handshaking sessionState = iota // waits for the handshake, then for register
	registered
	heartbeating
	draining
)

// session is one worker's stream. Three goroutines share it:
//
//	name    does                                                    ends
//	handler waits for the end, then leaves the engine               with the stream
//	reader  takes frames one by one, in order; owns all but mu      when Recv fails, which the handler's return causes
//	writer  makes frames of what waits in the outbox, and sends     when the outbox is closed
type session struct {
	c      *streams
	log    *slog.Logger // guarded by mu
	stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	out    *outbox
	who    identity
	id     string // empty before the handshake

	hushed atomic.Bool // a dispatch went unacknowledged; no work until the next frame (W5)

	heard chan struct{} // a token for every frame, for the idle timer
	over  chan error    // the first says how the session ends

	mu sync.Mutex // guards what ListWorkers shows
	sessionView
}

// sessionView is what is known of the worker.
type sessionView struct {
	state     sessionState
	info      *lessorv1.WorkerInfo
	caps      *lessorv1.Capabilities
	wants     engine.Wants
	slots     int // as last declared
	connected lease.Wall
	seen      lease.Wall
	healthy   bool
	metrics   map[string]float64
}

// streams serves sessions.
type streams struct {
	*edge
	engine *engine.Engine // its sessions are no business of the unary calls
	open   *sessions
}

// coordinatorName is the id of the coordinator as a sender of frames.
const coordinatorName = "coordinator"

// serve is one worker's stream from its first frame to its end; see the proto for its frames.
func (s *streams) serve(stream grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]) error {
	ss := &session{
		c: s, log: s.cfg.Logger, stream: stream, who: identify(stream.Context()),
		heard: make(chan struct{}, 1), over: make(chan error, 1),
	}
	now := s.engine.Now().Wall
	ss.sessionView = sessionView{connected: now, seen: now, healthy: true}
	ss.out = newOutbox(ss)
	return ss.run()
}

// run returns when the session is over. Returning ends the stream, and with it the reader.
func (ss *session) run() error {
	written := make(chan struct{})
	go func() { defer close(written); ss.out.write() }()
	go ss.read()
	err := ss.wait()
	ss.c.open.remove(ss)
	ss.out.close() // what waits is still sent
	select {
	case <-written:
	case <-time.After(sendTimeout): // it reads no more; its frames go with the stream
	}
	return err
}

// wait ends with the first cause: a word of the reader or writer, silence, or the coordinator's own end.
func (ss *session) wait() error {
	idle := time.NewTimer(sessionIdle)
	defer idle.Stop()
	for {
		select {
		case err := <-ss.over:
			return err
		case <-ss.heard:
			idle.Reset(sessionIdle)
		case <-idle.C:
			ss.out.reset(codeTimeout, "no frame came within "+sessionIdle.String(), 0)
			return nil
		case <-ss.c.stopping.Done():
			ss.out.reset(codeStopping, "the coordinator is stopping", time.Second)
			return nil
		case <-ss.stream.Context().Done():
			return context.Cause(ss.stream.Context())
		}
	}
}

// end says how the session ends; only the first counts.
func (ss *session) end(err error) {
	select {
	case ss.over <- err:
	default:
	}
}

func (ss *session) read() {
	defer ss.depart()
	for {
		var f frame
		if err := ss.stream.RecvMsg(&f); err != nil {
			ss.end(nil) // the stream is gone, or the worker has closed its side
			return
		}
		select {
		case ss.heard <- struct{}{}:
		default:
		}
		if !ss.take(&f) {
			return
		}
	}
}

// depart leaves the engine without a goodbye; after one it does nothing.
func (ss *session) depart() {
	ss.c.open.remove(ss) // again, in case that the handshake came while the handler was ending
	if ss.id != "" {
		_ = ss.c.engine.Leave(ss.id, false) // a stopped engine knows no sessions
	}
}

// take handles one frame; false ends the reader.
func (ss *session) take(f *frame) bool {
	if f.err != nil {
		ss.out.fail("", codeInvalid, "the frame can not be read: "+f.err.Error(), "send valid protobuf with UTF-8 strings")
		return true
	}
	m := f.msg
	if m.GetId() == "" || lease.CheckID("id", m.GetId(), ss.c.cfg.Limits) != nil {
		ss.out.fail("", codeInvalid, "id: is empty or over the limit", "give every frame an id of its own")
		return true
	}
	ss.logFrame(m)
	if err := ss.envelope(m); err != "" {
		return ss.deny(m.GetId(), err)
	}
	ss.mu.Lock()
	ss.seen = ss.c.engine.Now().Wall
	ss.mu.Unlock()
	if m.GetAck().GetFor() != "" {
		ss.acknowledged(m.GetAck().GetFor())
	}
	goOn := ss.payload(m)
	ss.unhush() // after what the frame says is judged, so that a late report is not overtaken by a new grant
	if m.GetAck().GetRequest() {
		ss.out.ack(m.GetId())
	}
	return goOn
}

// envelope checks what binds the stream: tenant and sender. It returns what is wrong.
func (ss *session) envelope(m *lessorv1.SessionRequest) string {
	first := ss.id == ""
	if t := m.GetTenant(); t != ss.who.Tenant && (first || t != "") {
		return "tenant: is not that of the credentials"
	}
	s := m.GetSender()
	switch {
	case s == nil && !first:
		return ""
	case s.GetRole() != "worker":
		return `sender.role: is not "worker"`
	case first:
		return ""
	case s.GetId() != ss.info.GetName():
		return "sender.id: is not the worker that opened the stream"
	}
	return ""
}

// deny ends the session: whoever speaks is not whom the stream is bound to.
func (ss *session) deny(corr, why string) bool {
	ss.out.fail(corr, codeDenied, why, "tenant and sender are bound by the first frame; open a stream of your own")
	ss.end(status.Error(codes.PermissionDenied, codeDenied+": "+why))
	return false
}

// payload dispatches by state (W1).
func (ss *session) payload(m *lessorv1.SessionRequest) bool {
	switch p := m.GetPayload().(type) {
	case nil:
		if m.GetAck().GetFor() == "" {
			ss.out.fail(m.GetId(), codeUnknown, "the frame has no payload that this version knows", "")
		}
	case *lessorv1.SessionRequest_Handshake:
		return ss.handshake(m, p.Handshake)
	case *lessorv1.SessionRequest_Register:
		ss.register(m.GetId(), p.Register)
	case *lessorv1.SessionRequest_Error:
		ss.logger().Warn("worker reports an error", "sender", ss.info.GetName(), "code", p.Error.GetCode(), "message", p.Error.GetMessage())
	case *lessorv1.SessionRequest_Goodbye:
		return ss.goodbye(m)
	default:
		if ss.current() == handshaking {
			ss.out.fail(m.GetId(), codeUnknown, "the frame needs a registered session", "send handshake, then register")
			return true
		}
		ss.working(m)
	}
	return true
}

// working takes the frames of a registered session.
func (ss *session) working(m *lessorv1.SessionRequest) {
	switch p := m.GetPayload().(type) {
	case *lessorv1.SessionRequest_Heartbeat:
		ss.heartbeat(m.GetId(), p.Heartbeat)
	case *lessorv1.SessionRequest_Reports:
		ss.reports(m.GetId(), p.Reports)
	case *lessorv1.SessionRequest_Feedback:
		ss.feedback(m.GetId(), p.Feedback)
	case *lessorv1.SessionRequest_Capacity:
		ss.capacity(m.GetId(), p.Capacity)
	case *lessorv1.SessionRequest_Drain:
		ss.setState(draining)
		ss.resize()
	}
}

// handshake opens the session.
func (ss *session) handshake(m *lessorv1.SessionRequest, h *lessorv1.Handshake) bool {
	if ss.id != "" {
		ss.out.fail(m.GetId(), codeUnknown, "the session has had its handshake", "open a stream for every session")
		return true
	}
	if h.GetProtocol() != Protocol {
		return ss.deny(m.GetId(), "handshake.protocol: this coordinator speaks version 1 only")
	}
	f := fields{limits: ss.c.cfg.Limits}
	w := h.GetWorker()
	name := f.required("handshake.worker.name", w.GetName())
	for field, value := range map[string]string{
		"instance_id": w.GetInstanceId(), "version": w.GetVersion(), "hostname": w.GetHostname(),
	} {
		f.id("handshake.worker."+field, value)
	}
	if f.err == nil && m.GetSender().GetId() != name {
		f.fail("sender.id", "is not handshake.worker.name")
	}
	if f.err != nil {
		return ss.deny(m.GetId(), f.err.Error())
	}
	ss.open(w)
	ss.out.accept(m.GetId(), &lessorv1.Accept{
		SessionId: ss.id, HeartbeatInterval: durationpb.New(sessionHeartbeat), IdleTimeout: durationpb.New(sessionIdle),
		ServerTime: stamp(ss.c.engine.Now().Wall), CoordinatorVersion: ss.c.cfg.Version,
	})
	return true
}

func (ss *session) open(w *lessorv1.WorkerInfo) {
	instance := w.GetInstanceId()
	if instance == "" {
		instance = newInstance()
	}
	ss.mu.Lock()
	ss.info = w
	ss.id = engine.NewSessionID(ss.who.Tenant, w.GetName(), instance)
	ss.log = ss.log.With("tenant", ss.who.Tenant, "sender", w.GetName(), "session", ss.id)
	ss.mu.Unlock()
	ss.c.open.add(ss)
	ss.logger().Info("session opened", "instance", w.GetInstanceId(), "version", w.GetVersion(), "hostname", w.GetHostname())
}

// goodbye gives every lease back and ends the session in order (W9).
func (ss *session) goodbye(m *lessorv1.SessionRequest) bool {
	if ss.id != "" {
		_ = ss.c.engine.Leave(ss.id, true) // a stopped engine knows no sessions
	}
	ss.logger().Info("session closed by goodbye", "reason", m.GetGoodbye().GetReason())
	ss.end(nil)
	return false
}

// logger is the session's; it knows more after the handshake.
func (ss *session) logger() *slog.Logger {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.log
}

func (ss *session) current() sessionState {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	return ss.state
}

func (ss *session) setState(to sessionState) {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	ss.state = to
}

func (ss *session) logFrame(m *lessorv1.SessionRequest) {
	if !ss.logger().Enabled(ss.stream.Context(), slog.LevelDebug) {
		return
	}
	ss.logger().Debug("frame", "type", payloadName(m), "id", m.GetId(), "corr", m.GetCorr(), "seq", m.GetSeq())
}

func payloadName(m *lessorv1.SessionRequest) string {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return "ack"
	}
	return string(f.Name())
}
