package workercheck

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/uncompressed"
)

// fate is what becomes of something that was said.
type fate int

const (
	pass   fate = iota
	refuse      // it does not reach the coordinator, and there is no verdict
	spoil       // it reaches the coordinator with a mistake in it
	lose        // the answer does not reach the worker
	mask        // on a stream, the worker gets an error in place of the verdict
)

// faults say what the taps do. A nil function does nothing.
type faults struct {
	// hear decides about what the worker says: pass, refuse or spoil.
	hear func(*word) fate
	// tell decides about the answer: pass, lose or mask.
	tell func(*word) fate
	// grant decides about an answer with work to a worker that asks: pass or lose.
	grant func() fate
	// busy returns for how long the worker shall ask for no work; 0: it may.
	busy func() time.Duration
	// twice makes every dispatch come twice.
	twice bool
	// parts: once the worker was told of an attempt for which it returns true, nothing that the
	// worker says about attempts reaches the coordinator, and nothing more comes to it on a stream.
	parts func(*attempt) bool
	// distort changes what the worker is told.
	distort *distortion
}

// tap is between the worker and the coordinator.
type tap struct {
	rec         *record
	coordinator func() *grpc.ClientConn // the present one

	mu     sync.Mutex
	faults faults
}

// set replaces the faults.
func (t *tap) set(f faults) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.faults = f
}

func (t *tap) now() faults {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.faults
}

// parted reports whether worker and coordinator hear no more of each other.
func (t *tap) parted() bool {
	parts := t.now().parts
	return parts != nil && t.rec.any(parts)
}

func (t *tap) hear(w *word) fate {
	if t.parted() {
		return refuse
	}
	if f := t.now(); w != nil && f.hear != nil {
		return f.hear(w)
	}
	return pass
}

func (t *tap) tell(w *word) fate {
	if f := t.now(); w != nil && f.tell != nil {
		return f.tell(w)
	}
	return pass
}

// loseGrant reports whether an answer with so many tasks is lost.
func (t *tap) loseGrant(tasks int) bool {
	f := t.now()
	if tasks == 0 || f.grant == nil || f.grant() != lose {
		return false
	}
	t.rec.note("coordinator: here is work: %s", lostOnTheWay)
	return true
}

func (t *tap) busy() time.Duration {
	if f := t.now(); f.busy != nil {
		return f.busy()
	}
	return 0
}

// maxMessage is the largest message that is carried, in bytes.
const maxMessage = 64 << 20

func (t *tap) server() *grpc.Server {
	// as with a coordinator: docs/workers.md, the channel
	pings := keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}
	return grpc.NewServer(grpc.UnknownServiceHandler(uncompressed.Stream(t.carry)),
		grpc.MaxRecvMsgSize(maxMessage), grpc.MaxSendMsgSize(maxMessage),
		grpc.KeepaliveEnforcementPolicy(pings))
}

var (
	errCut  = status.Error(codes.Unavailable, "the connection was lost")
	errEnd  = errors.New("the call ends well")
	errOver = errors.New("the call is over")
)

// carry is a call of the worker, of any method: also a unary one is two streams of messages.
func (t *tap) carry(_ any, near grpc.ServerStream) error {
	name, _ := grpc.MethodFromServerStream(near)
	method, err := methodOf(name)
	if err != nil {
		return err
	}
	c := &call{tap: t, near: near, method: method, session: method.FullName() == "lessor.v1.WorkerService.Session"}
	if c.session {
		t.rec.opens()
		c.leave = sync.OnceFunc(t.rec.leaves)
		defer c.leave()
		defer t.rec.note("(the stream ends)")
	}
	ctx, end := context.WithCancelCause(near.Context())
	defer end(errOver)
	if md, ok := metadata.FromIncomingContext(ctx); ok {
		ctx = metadata.NewOutgoingContext(ctx, md.Copy())
	}
	far, err := t.coordinator().NewStream(ctx, &grpc.StreamDesc{ServerStreams: true, ClientStreams: true},
		name, grpc.MaxCallRecvMsgSize(maxMessage), grpc.MaxCallSendMsgSize(maxMessage))
	if err != nil {
		return err
	}
	c.far = far
	go func() {
		if err := c.up(); err != nil {
			end(err) // ends down, too
		}
	}()
	if err := c.down(); err != nil {
		if cause := context.Cause(ctx); cause != nil && near.Context().Err() == nil {
			err = cause
		}
		if errors.Is(err, errEnd) {
			return nil
		}
		if near.Context().Err() == nil && !errors.Is(err, errCut) {
			t.rec.refuse(string(method.Name()), err)
		}
		return err
	}
	near.SetTrailer(far.Trailer())
	return nil
}

// methodOf returns the method with a name such as /lessor.v1.WorkerService/Lease.
func methodOf(name string) (protoreflect.MethodDescriptor, error) {
	full := protoreflect.FullName(strings.ReplaceAll(strings.TrimPrefix(name, "/"), "/", "."))
	d, _ := protoregistry.GlobalFiles.FindDescriptorByName(full)
	if m, ok := d.(protoreflect.MethodDescriptor); ok {
		return m, nil
	}
	return nil, status.Errorf(codes.Unimplemented, "unknown method %s", name)
}

// call is one call under way.
type call struct {
	*tap
	near    grpc.ServerStream
	far     grpc.ClientStream
	method  protoreflect.MethodDescriptor
	session bool                 // the call is a stream
	said    atomic.Pointer[word] // what a unary call says; nil: nothing about an attempt
	sent    dispatches           // of a stream
	leave   func()               // the stream is over, or the worker has said goodbye
}

// up carries what the worker sends. Its error ends the call.
func (c *call) up() error {
	for {
		m, err := receive(c.near, c.method.Input())
		if errors.Is(err, io.EOF) {
			return c.far.CloseSend()
		}
		if err != nil {
			return err
		}
		if err := c.hearMessage(m); err != nil {
			return err
		}
		if c.session && c.parted() {
			continue
		}
		if err := c.far.SendMsg(m); err != nil && !errors.Is(err, io.EOF) { // EOF: down gets the reason
			return err
		}
	}
}

// down carries what the coordinator sends.
func (c *call) down() error {
	for {
		m, err := receive(c.far, c.method.Output())
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if c.session && c.parted() {
			continue
		}
		cut := c.tellMessage(m)
		if cut != nil {
			return cut
		}
		if d := c.now().distort; d != nil {
			d.message(m.ProtoReflect())
		}
		for i := range c.copies(m) {
			if i > 0 {
				c.grant(m.(*lessorv1.SessionResponse).GetDispatch().GetAssignments()) // for the transcript
			}
			if err := c.near.SendMsg(m); err != nil {
				return err
			}
		}
	}
}

func (c *call) copies(m proto.Message) int {
	if frame, ok := m.(*lessorv1.SessionResponse); ok && frame.GetDispatch() != nil && c.now().twice {
		return 2
	}
	return 1
}

// receive reads a message of the type.
func receive(from interface{ RecvMsg(m any) error }, of protoreflect.MessageDescriptor) (proto.Message, error) {
	kind, err := protoregistry.GlobalTypes.FindMessageByName(of.FullName())
	if err != nil {
		return nil, err
	}
	m := kind.New().Interface()
	return m, from.RecvMsg(m)
}

// report is what Start, Heartbeat, Complete, Fail and Release have in common.
type report interface {
	proto.Message
	GetTaskId() string
	GetLeaseId() string
	GetAttempt() uint32
}

// hearMessage records what the worker says, and puts in the faults. An error ends the call with it.
func (c *call) hearMessage(m proto.Message) error {
	switch m := m.(type) {
	case *lessorv1.LeaseRequest:
		c.rec.takesFrom(m.GetQueues())
		c.rec.ask(calls, "Lease")
		return c.refuseIfBusy(nil)
	case *lessorv1.SessionRequest:
		return c.hearFrame(m)
	case report:
		return c.hearReport(m, calls)
	}
	return nil
}

// hearFrame is hearMessage for a frame of a session.
func (c *call) hearFrame(m *lessorv1.SessionRequest) error {
	if id := m.GetAck().GetFor(); id != "" {
		c.rec.ack(c.sent.upTo(id))
	}
	switch p := m.GetPayload().(type) {
	case *lessorv1.SessionRequest_Handshake:
		how := "handshake"
		if p.Handshake.GetResume() != nil {
			how += ", resume"
		}
		c.rec.handshake(m)
		c.rec.ask(stream, how)
		return c.refuseIfBusy(m)
	case *lessorv1.SessionRequest_Register:
		c.rec.takesFrom(p.Register.GetQueues())
		c.rec.note("worker: register, %d slots", p.Register.GetCapabilities().GetConcurrency().GetMaxParallel())
	case *lessorv1.SessionRequest_Drain:
		c.rec.note("worker: drain")
	case *lessorv1.SessionRequest_Goodbye:
		c.rec.note("worker: goodbye")
		c.leave()
	case *lessorv1.SessionRequest_Error:
		c.rec.note("worker: error %s: %s", p.Error.GetCode(), p.Error.GetMessage())
	case *lessorv1.SessionRequest_Heartbeat:
		for _, h := range p.Heartbeat.GetLeases() {
			if err := c.hearReport(h, stream); err != nil {
				return err
			}
		}
	case *lessorv1.SessionRequest_Reports:
		for _, item := range p.Reports.GetReports() {
			if said := reportOf(item); said != nil {
				if err := c.hearReport(said, stream); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

func reportOf(item *lessorv1.Report) report {
	switch r := item.GetReport().(type) {
	case *lessorv1.Report_Start:
		return r.Start
	case *lessorv1.Report_Complete:
		return r.Complete
	case *lessorv1.Report_Fail:
		return r.Fail
	case *lessorv1.Report_Release:
		return r.Release
	}
	return nil
}

func (c *call) hearReport(m report, by way) error {
	k, content, category := describe(m)
	w := c.rec.say(k, m.GetTaskId(), m.GetLeaseId(), m.GetAttempt(), content, category)
	if w == nil {
		return nil
	}
	switch c.hear(w) {
	case refuse:
		c.rec.answer(w, lessorv1.Verdict_VERDICT_UNSPECIFIED, "", "the coordinator cannot be reached")
		if by == stream && c.parted() {
			return nil // up goes no further
		}
		return errCut
	case spoil:
		const wrong = 1000
		fields := m.ProtoReflect().Descriptor().Fields()
		m.ProtoReflect().Set(fields.ByName("attempt"), protoreflect.ValueOfUint32(w.attempt.number+wrong)) // V6
	}
	if by == calls {
		c.said.Store(w)
	}
	return nil
}

// describe returns what a report is, with what makes it the same as another (V13).
func describe(m report) (k kind, content, category string) {
	switch m := m.(type) {
	case *lessorv1.StartRequest:
		if m.GetBegun() {
			return start, begun, ""
		}
		return start, "", ""
	case *lessorv1.HeartbeatRequest:
		return heartbeat, "", ""
	case *lessorv1.CompleteRequest:
		return complete, digest(&lessorv1.CompleteRequest{Output: m.GetOutput(), Artifacts: m.GetArtifacts()}), ""
	case *lessorv1.FailRequest:
		e := proto.CloneOf(m.GetError())
		if e != nil {
			e.RetryAfter = nil
		}
		return fail, digest(&lessorv1.FailRequest{Error: e}),
			strings.TrimPrefix(m.GetError().GetCategory().String(), "ERROR_CATEGORY_")
	}
	return release, "", ""
}

func digest(m proto.Message) string {
	b, _ := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	return string(b)
}

// refuseIfBusy refuses a request for work, or the handshake that begins a session, if the worker
// shall wait.
func (c *call) refuseIfBusy(handshake *lessorv1.SessionRequest) error {
	wait := c.busy()
	if wait == 0 {
		return nil
	}
	c.rec.note("coordinator: come back in %v", wait)
	if handshake == nil {
		return busyStatus(wait)
	}
	if err := c.near.SendMsg(busyReset(handshake, wait)); err != nil {
		return err
	}
	return errEnd
}

// tellMessage records what the worker is told, and returns an error if it shall not arrive.
func (c *call) tellMessage(m proto.Message) error {
	switch m := m.(type) {
	case *lessorv1.LeaseResponse:
		if c.loseGrant(len(m.GetAssignments())) {
			return errCut
		}
		c.grant(m.GetAssignments())
	case *lessorv1.SessionResponse:
		return c.tellFrame(m)
	case verdict:
		return c.tellVerdict(c.said.Load(), m)
	}
	return nil
}

func (c *call) grant(assignments []*lessorv1.Assignment) (granted []*attempt) {
	for _, a := range assignments {
		granted = append(granted, c.rec.grant(a.GetTask().GetTaskId(), a.GetLeaseId(), a.GetAttempt()))
	}
	return granted
}

func (c *call) tellFrame(m *lessorv1.SessionResponse) error {
	var cut error
	var granted []*attempt
	switch p := m.GetPayload().(type) {
	case *lessorv1.SessionResponse_Accept:
		c.rec.note("coordinator: accept, resumed: %v", p.Accept.GetResumed())
	case *lessorv1.SessionResponse_Dispatch:
		granted = c.grant(p.Dispatch.GetAssignments())
	case *lessorv1.SessionResponse_Verdicts:
		for _, v := range p.Verdicts.GetVerdicts() {
			cut = errors.Join(cut, c.tellVerdict(c.rec.unanswered(v.GetLeaseId(), kindOf(v.GetKind())), v))
		}
	case *lessorv1.SessionResponse_HeartbeatAck:
		for _, v := range p.HeartbeatAck.GetLeases() {
			cut = errors.Join(cut, c.tellVerdict(c.rec.unanswered(v.GetLeaseId(), heartbeat), v))
		}
	case *lessorv1.SessionResponse_Cancel:
		if p.Cancel.GetGrace() == nil {
			c.rec.cancel(p.Cancel.GetLeaseId(), nameOf(p.Cancel.GetReason()))
		} else {
			c.rec.stop(c.rec.ofLease(p.Cancel.GetLeaseId()), p.Cancel.GetGrace().AsDuration())
		}
	case *lessorv1.SessionResponse_Drain:
		c.rec.note("coordinator: drain")
	case *lessorv1.SessionResponse_Error:
		c.rec.refuse("error "+p.Error.GetCode(), errors.New(p.Error.GetMessage()))
	case *lessorv1.SessionResponse_Reset_:
		c.rec.note("coordinator: reset %s: %s", p.Reset_.GetCode(), p.Reset_.GetReason())
		if p.Reset_.GetLeasesEnded() {
			c.rec.kick()
		}
	}
	c.sent.add(m.GetId(), granted)
	if cut != nil {
		return errCut
	}
	return nil
}

func kindOf(k lessorv1.ReportKind) kind {
	return kind(strings.ToLower(strings.TrimPrefix(k.String(), "REPORT_KIND_")))
}

func nameOf(r lessorv1.Reason) string { return strings.TrimPrefix(r.String(), "REASON_") }

// verdict is what all verdicts have in common.
type verdict interface {
	GetVerdict() lessorv1.Verdict
	GetReason() lessorv1.Reason
}

// cancelling is a verdict that may tell the worker to stop.
type cancelling interface {
	GetShouldCancel() bool
	GetCancelGraceLeft() *durationpb.Duration
}

// tellVerdict records the verdict on w, which may be nil.
func (c *call) tellVerdict(w *word, v verdict) error {
	switch c.tell(w) {
	case lose:
		c.rec.answer(w, v.GetVerdict(), nameOf(v.GetReason()), lostOnTheWay)
		return errCut
	case mask:
		if item, ok := v.(*lessorv1.ReportVerdict); ok {
			hidden := &lessorv1.ReportVerdict{
				TaskId: item.GetTaskId(), LeaseId: item.GetLeaseId(),
				Kind: item.GetKind(), ReportId: item.GetReportId(),
			}
			hidden.Error = &lessorv1.ItemError{
				Code:    codeOverloaded,
				Message: "too much is waiting for the disk", RetryAfter: durationpb.New(beat),
			}
			proto.Reset(item)
			proto.Merge(item, hidden)
			c.rec.answer(w, item.GetVerdict(), "", "error "+codeOverloaded)
			return nil
		}
	}
	c.rec.answer(w, v.GetVerdict(), nameOf(v.GetReason()), "")
	if cancel, ok := v.(cancelling); ok && w != nil && v.GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED &&
		cancel.GetShouldCancel() {
		c.rec.stop(w.attempt, cancel.GetCancelGraceLeft().AsDuration())
	}
	return nil
}

// lostOnTheWay says what becomes of a lost answer.
const lostOnTheWay = "the connection is lost before it arrives"
