package coordinator

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

// Limits of package session that the tests need; docs/protocol.md lists all of them.
const (
	handshakeWithin  = 10 * time.Second
	defaultHeartbeat = 10 * time.Second
	defaultIdle      = time.Minute
	defaultSend      = 30 * time.Second
	keepFor          = time.Minute
	tokenLife        = 2 * time.Hour
	drainMemory      = time.Hour
	beatTakes        = time.Millisecond
	leaseTakes       = 50 * time.Microsecond
	beatsAhead       = 2 * time.Second
	resendBase       = 200 * time.Millisecond
	resendMost       = 5 * time.Second
	resendTries      = 6
	maxRetained      = 256
	maxRecent        = 1024
	maxDispatch      = 2 << 20
)

// testWorker is a worker on a stream. The test sends its frames one by one, and checks the frames that it receives.
type testWorker struct {
	t           *testing.T
	r           *rig
	name        string
	tenant      string // empty: gate.DefaultTenant
	stream      grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	cut         context.CancelFunc // breaks the stream
	sentFrames  int
	received    chan *lessorv1.SessionResponse // received frames; closed at the end of the stream
	skipped     []*lessorv1.SessionResponse    // received frames that nextFrameWith has passed over
	keepRepeats atomic.Bool                    // also keep repeated frames; otherwise each frame is kept once, as workers do
	endErr      error                          // why the stream ended; valid once heard is closed
}

// openStream opens a stream and sends nothing.
func (r *rig) openStream(t *testing.T, name string) *testWorker {
	t.Helper()
	worker := r.openUnreadStream(t, name)
	worker.received = make(chan *lessorv1.SessionResponse, 10_000)
	go func() {
		defer close(worker.received)
		for newest := uint64(0); ; {
			m, err := worker.stream.Recv()
			if err != nil {
				worker.endErr = err
				return
			}
			if seq := m.GetSeq(); m.GetAccept() != nil || seq == 0 || seq > newest || worker.keepRepeats.Load() {
				worker.received <- m
				newest = seq
			}
		}
	}()
	return worker
}

// openUnreadStream opens a stream, sends nothing, and does not read what the coordinator sends.
func (r *rig) openUnreadStream(t *testing.T, name string) *testWorker {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	if r.token != "" {
		ctx = withToken(ctx, r.token)
	}
	stream, err := r.workers.Session(ctx, grpc.ForceCodecV2(rawBytesCodec{encoding.GetCodecV2(protocodec.Name)}))
	if err != nil {
		t.Fatal(err)
	}
	return &testWorker{t: t, r: r, name: name, stream: stream, cut: cut}
}

// openSession opens a session and registers it for queue q with this number of slots. The worker and its instance have the same name.
func (r *rig) openSession(t *testing.T, name string, slots uint32) *testWorker {
	t.Helper()
	worker := r.openStream(t, name)
	worker.handshake()
	worker.send(registration(slots))
	synctest.Wait()
	return worker
}

// close stops the coordinator in order. It may be called twice.
func (r *rig) close(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	_ = r.conn.Close()
}

// handshake sends the handshake, and returns the coordinator's accept.
func (worker *testWorker) handshake() *lessorv1.Accept {
	worker.t.Helper()
	worker.send(handshakeOf(worker.name))
	return nextPayload[*lessorv1.Accept](worker)
}

// handshakeOf returns a handshake in which the worker and its instance have this name.
func handshakeOf(name string) *lessorv1.Handshake {
	return &lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: name, InstanceId: name}}
}

// registration returns a register for queue q with this number of slots.
func registration(slots uint32) *lessorv1.Register {
	return &lessorv1.Register{
		Queues: []string{"q"}, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: slots}},
	}
}

// rawBytes is an encoded message; rawBytesCodec sends it unchanged.
type rawBytes []byte

// rawBytesCodec sends rawBytes unchanged, and encodes other messages as usual.
type rawBytesCodec struct{ encoding.CodecV2 }

func (c rawBytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(rawBytes); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// newFrame returns a frame with this payload. nil means no payload.
func (worker *testWorker) newFrame(payload proto.Message) *lessorv1.SessionRequest {
	worker.sentFrames++
	m := &lessorv1.SessionRequest{
		Id: worker.name + "-" + strconv.Itoa(worker.sentFrames), Tenant: cmp.Or(worker.tenant, gate.DefaultTenant), Sender: &lessorv1.Sender{Role: "worker", Id: worker.name},
	}
	if payload != nil {
		setPayload(m, payload)
	}
	return m
}

func setPayload(m *lessorv1.SessionRequest, payload proto.Message) {
	fields := m.ProtoReflect().Descriptor().Oneofs().ByName("payload").Fields()
	for i := range fields.Len() {
		if fields.Get(i).Message() == payload.ProtoReflect().Descriptor() {
			m.ProtoReflect().Set(fields.Get(i), protoreflect.ValueOfMessage(payload.ProtoReflect()))
			return
		}
	}
	panic("a frame cannot have this payload: " + string(payload.ProtoReflect().Descriptor().Name()))
}

// send sends a frame with this payload, and returns the id of the frame.
func (worker *testWorker) send(payload proto.Message) string {
	worker.t.Helper()
	return worker.sendFrame(worker.newFrame(payload))
}

// sendFrame sends a frame, and returns its id.
func (worker *testWorker) sendFrame(m *lessorv1.SessionRequest) string {
	worker.t.Helper()
	if err := worker.stream.Send(m); err != nil {
		worker.t.Fatalf("%s: send %s: %v", worker.name, payloadName(m), err)
	}
	return m.GetId()
}

// ack sends a frame that only acknowledges m.
func (worker *testWorker) ack(m *lessorv1.SessionResponse) {
	worker.t.Helper()
	f := worker.newFrame(nil)
	f.Ack = &lessorv1.Ack{For: m.GetId()}
	worker.sendFrame(f)
}

// nextFrame returns the next received frame. It fails the test if none comes within a minute.
func (worker *testWorker) nextFrame() *lessorv1.SessionResponse {
	worker.t.Helper()
	if len(worker.skipped) > 0 {
		m := worker.skipped[0]
		worker.skipped = worker.skipped[1:]
		return m
	}
	return worker.nextUnskipped()
}

// nextUnskipped is like nextFrame, but leaves out the frames in worker.skipped.
func (worker *testWorker) nextUnskipped() *lessorv1.SessionResponse {
	worker.t.Helper()
	select {
	case m, ok := <-worker.received:
		if !ok {
			worker.t.Fatalf("%s: the stream has ended: %v", worker.name, worker.endErr)
		}
		return m
	case <-time.After(time.Minute):
		worker.t.Fatalf("%s: no frame came within a minute", worker.name)
	}
	return nil
}

// nextPayload returns the payload of the next frame. It fails the test if the payload is not a T.
func nextPayload[T proto.Message](worker *testWorker) T {
	worker.t.Helper()
	return wantPayload[T](worker, worker.nextFrame())
}

// nextFrameWith returns the next frame whose payload is a T. It keeps the frames before that one for nextFrame. Tests use it where the protocol
// defines no order, as between an answer and a dispatch.
func nextFrameWith[T proto.Message](worker *testWorker) *lessorv1.SessionResponse {
	worker.t.Helper()
	for i, m := range worker.skipped {
		if _, ok := payload(m).(T); ok {
			worker.skipped = slices.Delete(worker.skipped, i, i+1)
			return m
		}
	}
	for {
		m := worker.nextUnskipped()
		if _, ok := payload(m).(T); ok {
			return m
		}
		worker.skipped = append(worker.skipped, m)
	}
}

// wantPayload returns the payload of m. It fails the test if the payload is not a T.
func wantPayload[T proto.Message](worker *testWorker, m *lessorv1.SessionResponse) T {
	worker.t.Helper()
	found, ok := payload(m).(T)
	if !ok {
		worker.t.Fatalf("%s: received %v, want a %T", worker.name, m, found)
	}
	return found
}

// payload returns the payload of a frame, or nil if the frame has none.
func payload(m *lessorv1.SessionResponse) proto.Message {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return nil
	}
	return r.Get(f).Message().Interface()
}

// receiveAssignments receives n assignments, in one dispatch or several, acknowledges each dispatch, and returns the assignments.
func (worker *testWorker) receiveAssignments(n int) (all []*lessorv1.Assignment) {
	worker.t.Helper()
	for len(all) < n {
		m := worker.nextFrame()
		all = append(all, wantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()...)
		worker.ack(m)
	}
	if len(all) != n {
		worker.t.Fatalf("%s: received %d assignments, want %d", worker.name, len(all), n)
	}
	synctest.Wait()
	return all
}

// wantNoFrame checks that no frame waits, and that the coordinator sends none until fake time passes.
func (worker *testWorker) wantNoFrame() {
	worker.t.Helper()
	worker.wantNoSkippedFrame()
	synctest.Wait()
	select {
	case m, ok := <-worker.received:
		if !ok {
			worker.t.Fatalf("%s: the stream has ended: %v", worker.name, worker.endErr)
		}
		worker.t.Fatalf("%s: received %v, want no frame", worker.name, m)
	default:
	}
}

// wantNoSkippedFrame checks that nextFrame has returned every frame that nextFrameWith has passed over.
func (worker *testWorker) wantNoSkippedFrame() {
	worker.t.Helper()
	if len(worker.skipped) > 0 {
		worker.t.Fatalf("%s: received %v, want no frame", worker.name, worker.skipped)
	}
}

// waitForEnd waits for the end of the stream, and checks that no frame comes before it. It returns the error of the stream, or nil if the stream
// ended with status OK.
func (worker *testWorker) waitForEnd() error {
	worker.t.Helper()
	worker.wantNoSkippedFrame()
	select {
	case m, ok := <-worker.received:
		if ok {
			worker.t.Fatalf("%s: received %v, want the end of the stream", worker.name, m)
		}
	case <-time.After(2 * time.Minute):
		worker.t.Fatalf("%s: the stream has not ended within two minutes", worker.name)
	}
	if errors.Is(worker.endErr, io.EOF) {
		return nil
	}
	return worker.endErr
}

// wantError checks that the next frame is an error that answers the frame corr, with this code and a message that contains word.
func (worker *testWorker) wantError(corr, code, word string) *lessorv1.Error {
	worker.t.Helper()
	m := worker.nextFrame()
	e := wantPayload[*lessorv1.Error](worker, m)
	wantEqual(worker.t, "corr", m.GetCorr(), corr)
	wantEqual(worker.t, "code", e.GetCode(), code)
	wantContains(worker.t, "message", e.GetMessage(), word)
	return e
}

// report sends reports in one frame, and returns their verdicts.
func (worker *testWorker) report(reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	worker.t.Helper()
	corr := worker.send(&lessorv1.Reports{Reports: reports})
	m := nextFrameWith[*lessorv1.Verdicts](worker) // a cancel that is repeated on a new stream may come before
	wantEqual(worker.t, "corr", m.GetCorr(), corr)
	return m.GetVerdicts().GetVerdicts()
}

// reportWithAck is like report, and its frame also acknowledges the frame acked.
func (worker *testWorker) reportWithAck(acked *lessorv1.SessionResponse, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	worker.t.Helper()
	f := worker.newFrame(&lessorv1.Reports{Reports: reports})
	f.Ack = &lessorv1.Ack{For: acked.GetId()}
	worker.sendFrame(f)
	return wantPayload[*lessorv1.Verdicts](worker, worker.nextFrame()).GetVerdicts()
}

// heartbeat sends a heartbeat that names these leases, and returns their verdicts.
func (worker *testWorker) heartbeat(leases ...*lessorv1.Assignment) []*lessorv1.LeaseAck {
	worker.t.Helper()
	m := &lessorv1.WorkerHeartbeat{Healthy: true}
	for _, a := range leases {
		m.Leases = append(m.Leases, renewal(a))
	}
	return worker.sendHeartbeat(m).GetLeases()
}

// sendHeartbeat sends a heartbeat, waits until the coordinator has nothing more to do, and returns the answer.
func (worker *testWorker) sendHeartbeat(m *lessorv1.WorkerHeartbeat) *lessorv1.HeartbeatAck {
	worker.t.Helper()
	corr := worker.send(m)
	ack := nextFrameWith[*lessorv1.HeartbeatAck](worker)
	wantEqual(worker.t, "corr", ack.GetCorr(), corr)
	synctest.Wait()
	return ack.GetHeartbeatAck()
}

// renewal returns the entry of a heartbeat that renews the lease of a.
func renewal(a *lessorv1.Assignment) *lessorv1.HeartbeatRequest {
	return &lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()}
}

// started returns a Start report under the lease of a.
func started(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Start{
		Start: &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

// completed returns a Complete report under the lease of a, with this output.
func completed(a *lessorv1.Assignment, output string) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), ReportId: "of " + a.GetTask().GetTaskId(), Output: []byte(output),
	}}}
}

// released returns a Release report under the lease of a.
func released(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Release{
		Release: &lessorv1.ReleaseRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

// wantCommitted checks that all verdicts are COMMITTED.
func wantCommitted(t *testing.T, verdicts []*lessorv1.ReportVerdict) {
	t.Helper()
	for _, v := range verdicts {
		if v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Fatalf("verdict is %v, want COMMITTED", v)
		}
	}
}

// payloadName returns the name of a frame's payload; "ack" if it has none.
func payloadName(m proto.Message) string {
	r := m.ProtoReflect()
	if f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload")); f != nil {
		return string(f.Name())
	}
	return "ack"
}

// submitAll submits n tasks of queue q in one batch.
func (r *rig) submitAll(t *testing.T, n int) {
	t.Helper()
	req := &lessorv1.BatchSubmitTasksRequest{}
	for range n {
		req.Tasks = append(req.Tasks, &lessorv1.TaskSpec{Queue: "q"})
	}
	if _, err := r.tasks.BatchSubmitTasks(t.Context(), req); err != nil {
		t.Fatal(err)
	}
}

// listedWorker returns a worker's session as ListWorkers shows it, or nil if the worker has none.
func (r *rig) listedWorker(t *testing.T, name string) *lessorv1.Worker {
	t.Helper()
	res, err := r.admin.ListWorkers(t.Context(), &lessorv1.ListWorkersRequest{})
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

// wantMetric checks that /metrics has this value of a metric. counter is the name with its labels.
func (r *rig) wantMetric(t *testing.T, counter string, n int) {
	t.Helper()
	if line := fmt.Sprintf("\n%s %d\n", counter, n); !strings.Contains(getPath(t, r, "/metrics", http.StatusOK), line) {
		t.Errorf("the metrics lack %q", line)
	}
}

func wantEqual(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func wantContains(t *testing.T, what, got, word string) {
	t.Helper()
	if !strings.Contains(got, word) {
		t.Errorf("%s is %q, want it to contain %q", what, got, word)
	}
}

// feedback returns an item under the lease of a, with this stage, progress 0.5, and a chunk of text for each word.
func feedback(a *lessorv1.Assignment, stage string, words ...string) *lessorv1.FeedbackItem {
	m := &lessorv1.FeedbackItem{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Stage: stage, Progress: 0.5}
	for i, w := range words {
		m.Chunks = append(m.Chunks, &lessorv1.FeedbackChunk{Channel: "out", Index: uint64(i), Body: &lessorv1.FeedbackChunk_Text{Text: w}})
	}
	return m
}

// openSessionWith opens and registers a session, and returns its worker and its accept. change may change the handshake.
func (r *rig) openSessionWith(t *testing.T, name string, slots uint32, change func(*lessorv1.Handshake)) (*testWorker, *lessorv1.Accept) {
	t.Helper()
	worker := r.openStream(t, name)
	h := handshakeOf(name)
	if change != nil {
		change(h)
	}
	worker.send(h)
	a := nextPayload[*lessorv1.Accept](worker)
	worker.send(registration(slots))
	synctest.Wait()
	return worker, a
}

// resumeFrom returns a change of a handshake: it resumes the session of the accept a, and says that the worker has received the frames up to seq seen.
func resumeFrom(a *lessorv1.Accept, seen uint64) func(*lessorv1.Handshake) {
	return func(h *lessorv1.Handshake) {
		h.Resume = &lessorv1.Resume{SessionId: a.GetSessionId(), SessionToken: a.GetSessionToken(), LastSeenSeq: seen}
	}
}
