package wiretest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/encoding"
	protocodec "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Worker is a worker on a stream. The test sends its frames one by one, and checks the frames that
// it receives.
type Worker struct {
	T          *testing.T
	Rig        *Rig
	Name       string
	Tenant     string // empty: gate.DefaultTenant
	Stream     grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	Cut        context.CancelFunc // breaks the stream
	sentFrames int
	Received   chan *lessorv1.SessionResponse // received frames; closed at the end of the stream
	skipped    []*lessorv1.SessionResponse    // received frames that NextFrameWith has passed over
	// KeepRepeats keeps repeated frames, too. Otherwise each frame is kept once, as workers do.
	KeepRepeats atomic.Bool
	endErr      error // why the stream ended; valid once Received is closed
}

// OpenStream opens a stream and sends nothing.
func (r *Rig) OpenStream(t *testing.T, name string) *Worker {
	t.Helper()
	worker := r.OpenUnreadStream(t, name)
	worker.Received = make(chan *lessorv1.SessionResponse, 10_000)
	go func() {
		defer close(worker.Received)
		for newest := uint64(0); ; {
			m, err := worker.Stream.Recv()
			if err != nil {
				worker.endErr = err
				return
			}
			if seq := m.GetSeq(); m.GetAccept() != nil || seq == 0 || seq > newest || worker.KeepRepeats.Load() {
				worker.Received <- m
				newest = seq
			}
		}
	}()
	return worker
}

// OpenUnreadStream opens a stream, sends nothing, and does not read what the coordinator sends.
func (r *Rig) OpenUnreadStream(t *testing.T, name string) *Worker {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	if r.Token != "" {
		ctx = WithToken(ctx, r.Token)
	}
	stream, err := r.Workers.Session(ctx, grpc.ForceCodecV2(RawBytesCodec{encoding.GetCodecV2(protocodec.Name)}))
	if err != nil {
		t.Fatal(err)
	}
	return &Worker{T: t, Rig: r, Name: name, Stream: stream, Cut: cut}
}

// OpenSession opens a session and registers it for queue q with this number of slots. The worker
// and its instance have the same name.
func (r *Rig) OpenSession(t *testing.T, name string, slots uint32) *Worker {
	t.Helper()
	worker := r.OpenStream(t, name)
	worker.Handshake()
	worker.Send(Registration(slots))
	synctest.Wait()
	return worker
}

// Close stops the coordinator in order. It may be called twice.
func (r *Rig) Close(t *testing.T) {
	t.Helper()
	r.Stop()
	if err := <-r.Served; err != nil {
		t.Error(err)
	}
	_ = r.Conn.Close()
}

// Handshake sends the handshake, and returns the coordinator's accept.
func (worker *Worker) Handshake() *lessorv1.Accept {
	worker.T.Helper()
	worker.Send(HandshakeOf(worker.Name))
	return NextPayload[*lessorv1.Accept](worker)
}

// HandshakeOf returns a handshake in which the worker and its instance have this name.
func HandshakeOf(name string) *lessorv1.Handshake {
	return &lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: name, InstanceId: name}}
}

// Registration returns a register for queue q with this number of slots.
func Registration(slots uint32) *lessorv1.Register {
	return &lessorv1.Register{
		Queues: []string{"q"}, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: slots}},
	}
}

// RawBytes is an encoded message; RawBytesCodec sends it unchanged.
type RawBytes []byte

// RawBytesCodec sends RawBytes unchanged, and encodes other messages as usual.
type RawBytesCodec struct{ encoding.CodecV2 }

// Marshal implements encoding.CodecV2.
func (c RawBytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(RawBytes); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// NewFrame returns a frame with this payload. nil means no payload.
func (worker *Worker) NewFrame(payload proto.Message) *lessorv1.SessionRequest {
	worker.sentFrames++
	m := &lessorv1.SessionRequest{
		Id:     worker.Name + "-" + strconv.Itoa(worker.sentFrames),
		Tenant: cmp.Or(worker.Tenant, gate.DefaultTenant),
		Sender: &lessorv1.Sender{Role: "worker", Id: worker.Name},
	}
	if payload != nil {
		SetPayload(m, payload)
	}
	return m
}

// SetPayload sets the payload of a frame.
func SetPayload(m *lessorv1.SessionRequest, payload proto.Message) {
	fields := m.ProtoReflect().Descriptor().Oneofs().ByName("payload").Fields()
	for i := range fields.Len() {
		if fields.Get(i).Message() == payload.ProtoReflect().Descriptor() {
			m.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfMessage(payload.ProtoReflect()))
			return
		}
	}
	panic("a frame cannot have this payload: " + string(payload.ProtoReflect().Descriptor().Name()))
}

// Send sends a frame with this payload, and returns the id of the frame.
func (worker *Worker) Send(payload proto.Message) string {
	worker.T.Helper()
	return worker.SendFrame(worker.NewFrame(payload))
}

// SendFrame sends a frame, and returns its id.
func (worker *Worker) SendFrame(m *lessorv1.SessionRequest) string {
	worker.T.Helper()
	if err := worker.Stream.Send(m); err != nil {
		worker.T.Fatalf("%s: send %s: %v", worker.Name, PayloadName(m), err)
	}
	return m.GetId()
}

// Ack sends a frame that only acknowledges m.
func (worker *Worker) Ack(m *lessorv1.SessionResponse) {
	worker.T.Helper()
	f := worker.NewFrame(nil)
	f.Ack = &lessorv1.Ack{For: m.GetId()}
	worker.SendFrame(f)
}

// NextFrame returns the next received frame. It fails the test if none comes within a minute.
func (worker *Worker) NextFrame() *lessorv1.SessionResponse {
	worker.T.Helper()
	if len(worker.skipped) > 0 {
		m := worker.skipped[0]
		worker.skipped = worker.skipped[1:]
		return m
	}
	return worker.nextUnskipped()
}

// nextUnskipped is like NextFrame, but leaves out the frames in worker.skipped.
func (worker *Worker) nextUnskipped() *lessorv1.SessionResponse {
	worker.T.Helper()
	select {
	case m, ok := <-worker.Received:
		if !ok {
			worker.T.Fatalf("%s: the stream has ended: %v", worker.Name, worker.endErr)
		}
		return m
	case <-time.After(time.Minute):
		worker.T.Fatalf("%s: no frame came within a minute", worker.Name)
	}
	return nil
}

// NextPayload returns the payload of the next frame. It fails the test if the payload is not a T.
func NextPayload[T proto.Message](worker *Worker) T {
	worker.T.Helper()
	return WantPayload[T](worker, worker.NextFrame())
}

// NextFrameWith returns the next frame whose payload is a T. It keeps the frames before that one
// for NextFrame. Tests use it where the protocol defines no order, as between an answer and a
// dispatch.
func NextFrameWith[T proto.Message](worker *Worker) *lessorv1.SessionResponse {
	worker.T.Helper()
	for i, m := range worker.skipped {
		if _, ok := Payload(m).(T); ok {
			worker.skipped = slices.Delete(worker.skipped, i, i+1)
			return m
		}
	}
	for {
		m := worker.nextUnskipped()
		if _, ok := Payload(m).(T); ok {
			return m
		}
		worker.skipped = append(worker.skipped, m)
	}
}

// WantPayload returns the payload of m. It fails the test if the payload is not a T.
func WantPayload[T proto.Message](worker *Worker, m *lessorv1.SessionResponse) T {
	worker.T.Helper()
	found, ok := Payload(m).(T)
	if !ok {
		worker.T.Fatalf("%s: received %v, want a %T", worker.Name, m, found)
	}
	return found
}

// Payload returns the payload of a frame, or nil if the frame has none.
func Payload(m *lessorv1.SessionResponse) proto.Message {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return nil
	}
	return r.Get(f).Message().Interface()
}

// ReceiveAssignments receives n assignments, in one dispatch or several, acknowledges each
// dispatch, and returns the assignments.
func (worker *Worker) ReceiveAssignments(n int) (all []*lessorv1.Assignment) {
	worker.T.Helper()
	for len(all) < n {
		m := worker.NextFrame()
		all = append(all, WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()...)
		worker.Ack(m)
	}
	if len(all) != n {
		worker.T.Fatalf("%s: received %d assignments, want %d", worker.Name, len(all), n)
	}
	synctest.Wait()
	return all
}

// WantNoFrame checks that no frame waits, and that the coordinator sends none until fake time
// passes.
func (worker *Worker) WantNoFrame() {
	worker.T.Helper()
	worker.wantNoSkippedFrame()
	synctest.Wait()
	select {
	case m, ok := <-worker.Received:
		if !ok {
			worker.T.Fatalf("%s: the stream has ended: %v", worker.Name, worker.endErr)
		}
		worker.T.Fatalf("%s: received %v, want no frame", worker.Name, m)
	default:
	}
}

// wantNoSkippedFrame checks that NextFrame has returned every frame that NextFrameWith has passed
// over.
func (worker *Worker) wantNoSkippedFrame() {
	worker.T.Helper()
	if len(worker.skipped) > 0 {
		worker.T.Fatalf("%s: received %v, want no frame", worker.Name, worker.skipped)
	}
}

// WaitForEnd waits for the end of the stream, and checks that no frame comes before it. It returns
// the error of the stream, or nil if the stream ended with status OK.
func (worker *Worker) WaitForEnd() error {
	worker.T.Helper()
	worker.wantNoSkippedFrame()
	select {
	case m, ok := <-worker.Received:
		if ok {
			worker.T.Fatalf("%s: received %v, want the end of the stream", worker.Name, m)
		}
	case <-time.After(2 * time.Minute):
		worker.T.Fatalf("%s: the stream has not ended within two minutes", worker.Name)
	}
	if errors.Is(worker.endErr, io.EOF) {
		return nil
	}
	return worker.endErr
}

// WantError checks that the next frame is an error that answers the frame corr, with this code and
// a message that contains word.
func (worker *Worker) WantError(corr, code, word string) *lessorv1.Error {
	worker.T.Helper()
	m := worker.NextFrame()
	e := WantPayload[*lessorv1.Error](worker, m)
	WantEqual(worker.T, "corr", m.GetCorr(), corr)
	WantEqual(worker.T, "code", e.GetCode(), code)
	WantContains(worker.T, "message", e.GetMessage(), word)
	return e
}

// Report sends reports in one frame, and returns their verdicts.
func (worker *Worker) Report(reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	worker.T.Helper()
	corr := worker.Send(&lessorv1.Reports{Reports: reports})
	m := NextFrameWith[*lessorv1.Verdicts](worker) // a cancel that is repeated on a new stream may come before
	WantEqual(worker.T, "corr", m.GetCorr(), corr)
	return m.GetVerdicts().GetVerdicts()
}

// ReportWithAck is like report, and its frame also acknowledges the frame acked.
func (worker *Worker) ReportWithAck(
	acked *lessorv1.SessionResponse, reports ...*lessorv1.Report,
) []*lessorv1.ReportVerdict {
	worker.T.Helper()
	f := worker.NewFrame(&lessorv1.Reports{Reports: reports})
	f.Ack = &lessorv1.Ack{For: acked.GetId()}
	worker.SendFrame(f)
	return WantPayload[*lessorv1.Verdicts](worker, worker.NextFrame()).GetVerdicts()
}

// Heartbeat sends a heartbeat that names these leases, and returns their verdicts.
func (worker *Worker) Heartbeat(leases ...*lessorv1.Assignment) []*lessorv1.LeaseAck {
	worker.T.Helper()
	m := &lessorv1.WorkerHeartbeat{Healthy: true}
	for _, a := range leases {
		m.Leases = append(m.Leases, Renewal(a))
	}
	return worker.SendHeartbeat(m).GetLeases()
}

// SendHeartbeat sends a heartbeat, waits until the coordinator has nothing more to do, and returns
// the answer.
func (worker *Worker) SendHeartbeat(m *lessorv1.WorkerHeartbeat) *lessorv1.HeartbeatAck {
	worker.T.Helper()
	corr := worker.Send(m)
	ack := NextFrameWith[*lessorv1.HeartbeatAck](worker)
	WantEqual(worker.T, "corr", ack.GetCorr(), corr)
	synctest.Wait()
	return ack.GetHeartbeatAck()
}

// Renewal returns the entry of a heartbeat that renews the lease of a.
func Renewal(a *lessorv1.Assignment) *lessorv1.HeartbeatRequest {
	return &lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()}
}

// Started returns a Start report under the lease of a.
func Started(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Start{
		Start: &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

// Completed returns a Complete report under the lease of a, with this output.
func Completed(a *lessorv1.Assignment, output string) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
		TaskId:   a.GetTask().GetTaskId(),
		LeaseId:  a.GetLeaseId(),
		ReportId: "of " + a.GetTask().GetTaskId(),
		Output:   []byte(output),
	}}}
}

// Released returns a Release report under the lease of a.
func Released(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Release{
		Release: &lessorv1.ReleaseRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

// WantCommitted checks that all verdicts are COMMITTED.
func WantCommitted(t *testing.T, verdicts []*lessorv1.ReportVerdict) {
	t.Helper()
	for _, v := range verdicts {
		if v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Fatalf("verdict is %v, want COMMITTED", v)
		}
	}
}

// PayloadName returns the name of a frame's payload; "ack" if it has none.
func PayloadName(m proto.Message) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload")); f != nil {
		return string(f.Name())
	}
	return "ack"
}

// SubmitAll submits n tasks of queue q in one batch.
func (r *Rig) SubmitAll(t *testing.T, n int) {
	t.Helper()
	req := &lessorv1.BatchSubmitTasksRequest{}
	for range n {
		req.Tasks = append(req.Tasks, &lessorv1.TaskSpec{Queue: "q"})
	}
	if _, err := r.Tasks.BatchSubmitTasks(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// ListedWorker returns a worker's session as ListWorkers shows it, or nil if the worker has none.
func (r *Rig) ListedWorker(t *testing.T, name string) *lessorv1.Worker {
	t.Helper()
	res, err := r.Admin.ListWorkers(t.Context(), &lessorv1.ListWorkersRequest{})
	if err != nil {
		t.Fatal(err)
	}
	for _, w := range res.GetWorkers() {
		if w.GetWorkerId() == name {
			return w
		}
	}
	return nil
}

// WantMetric checks that /metrics has this value of a metric. counter is the name with its labels.
func (r *Rig) WantMetric(t *testing.T, counter string, n int) {
	t.Helper()
	if line := fmt.Sprintf("\n%s %d\n", counter, n); !strings.Contains(GetPath(t, r, "/metrics", http.StatusOK), line) {
		t.Errorf("the metrics lack %q", line)
	}
}

// WantEqual checks that two texts are equal. what names them in the message.
func WantEqual(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

// WantContains checks that a text contains a word. what names the text in the message.
func WantContains(t *testing.T, what, got, word string) {
	t.Helper()
	if !strings.Contains(got, word) {
		t.Errorf("%s is %q, want it to contain %q", what, got, word)
	}
}

// Feedback returns an item under the lease of a, with this stage, progress 0.5, and a chunk of text
// for each word.
func Feedback(a *lessorv1.Assignment, stage string, words ...string) *lessorv1.FeedbackItem {
	m := &lessorv1.FeedbackItem{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Stage: stage, Progress: 0.5}
	for i, w := range words {
		m.Chunks = append(m.Chunks, &lessorv1.FeedbackChunk{
			Channel: "out", Index: uint64(i),
			Body: &lessorv1.FeedbackChunk_Text{Text: w},
		})
	}
	return m
}

// OpenSessionWith opens and registers a session, and returns its worker and its accept. change may
// change the handshake.
func (r *Rig) OpenSessionWith(
	t *testing.T, name string, slots uint32, change func(*lessorv1.Handshake),
) (*Worker, *lessorv1.Accept) {
	t.Helper()
	worker := r.OpenStream(t, name)
	h := HandshakeOf(name)
	if change != nil {
		change(h)
	}
	worker.Send(h)
	a := NextPayload[*lessorv1.Accept](worker)
	worker.Send(Registration(slots))
	synctest.Wait()
	return worker, a
}

// ResumeFrom returns a change of a handshake: it resumes the session of the accept a, and says that
// the worker has received the frames up to seq seen.
func ResumeFrom(a *lessorv1.Accept, seen uint64) func(*lessorv1.Handshake) {
	return func(h *lessorv1.Handshake) {
		h.Resume = &lessorv1.Resume{SessionId: a.GetSessionId(), SessionToken: a.GetSessionToken(), LastSeenSeq: seen}
	}
}
