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

// talker is a worker whose frames a test sends one by one, and whose received frames it checks.
type talker struct {
	t      *testing.T
	r      *rig
	name   string
	tenant string // empty: gate.DefaultTenant
	stream grpc.BidiStreamingClient[lessorv1.SessionRequest, lessorv1.SessionResponse]
	cut    context.CancelFunc // breaks the stream
	said   int
	heard  chan *lessorv1.SessionResponse // received frames; closed at the end of the stream
	passed []*lessorv1.SessionResponse    // frames that pick has skipped
	raw    atomic.Bool                    // also keep repeated frames; otherwise each frame is kept once, as workers do
	end    error                          // why the stream ended; valid once heard is closed
}

// talk opens a stream without sending anything.
func (r *rig) talk(t *testing.T, name string) *talker {
	t.Helper()
	tk := r.mute(t, name)
	tk.heard = make(chan *lessorv1.SessionResponse, 10_000)
	go func() {
		defer close(tk.heard)
		for newest := uint64(0); ; {
			m, err := tk.stream.Recv()
			if err != nil {
				tk.end = err
				return
			}
			if seq := m.GetSeq(); m.GetAccept() != nil || seq == 0 || seq > newest || tk.raw.Load() {
				tk.heard <- m
				newest = seq
			}
		}
	}()
	return tk
}

// mute is like talk, but reads nothing.
func (r *rig) mute(t *testing.T, name string) *talker {
	t.Helper()
	ctx, cut := context.WithCancel(t.Context())
	if r.token != "" {
		ctx = bearing(ctx, r.token)
	}
	stream, err := r.workers.Session(ctx, grpc.ForceCodecV2(frameSender{encoding.GetCodecV2(protocodec.Name)}))
	if err != nil {
		t.Fatal(err)
	}
	return &talker{t: t, r: r, name: name, stream: stream, cut: cut}
}

// work opens and registers a session with so many slots for queue q. Worker and instance have the same name.
func (r *rig) work(t *testing.T, name string, slots uint32) *talker {
	t.Helper()
	tk := r.talk(t, name)
	tk.shake()
	tk.say(registration(slots))
	synctest.Wait()
	return tk
}

// close stops the coordinator in order; it may be called twice.
func (r *rig) close(t *testing.T) {
	t.Helper()
	r.stop()
	if err := <-r.served; err != nil {
		t.Error(err)
	}
	_ = r.conn.Close()
}

// shake sends the handshake, and returns the accept.
func (tk *talker) shake() *lessorv1.Accept {
	tk.t.Helper()
	tk.say(hello(tk.name))
	return hear[*lessorv1.Accept](tk)
}

// hello returns the handshake of a worker and an instance with this name.
func hello(name string) *lessorv1.Handshake {
	return &lessorv1.Handshake{Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: name, InstanceId: name}}
}

func registration(slots uint32) *lessorv1.Register {
	return &lessorv1.Register{
		Queues: []string{"q"}, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: slots}},
	}
}

// rawBytes are sent as they are.
type rawBytes []byte

type frameSender struct{ encoding.CodecV2 }

func (c frameSender) Marshal(v any) (mem.BufferSlice, error) {
	if raw, ok := v.(rawBytes); ok {
		return mem.BufferSlice{mem.SliceBuffer(raw)}, nil
	}
	return c.CodecV2.Marshal(v)
}

// frame puts a payload into a frame; nil means no payload.
func (tk *talker) frame(payload proto.Message) *lessorv1.SessionRequest {
	tk.said++
	m := &lessorv1.SessionRequest{
		Id: tk.name + "-" + strconv.Itoa(tk.said), Tenant: cmp.Or(tk.tenant, gate.DefaultTenant), Sender: &lessorv1.Sender{Role: "worker", Id: tk.name},
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
	panic("no payload of a frame: " + payload.ProtoReflect().Descriptor().Name())
}

// say sends a payload, and returns the id of its frame.
func (tk *talker) say(payload proto.Message) string {
	tk.t.Helper()
	return tk.send(tk.frame(payload))
}

func (tk *talker) send(m *lessorv1.SessionRequest) string {
	tk.t.Helper()
	if err := tk.stream.Send(m); err != nil {
		tk.t.Fatalf("%s: send %s: %v", tk.name, payloadName(m), err)
	}
	return m.GetId()
}

// ack acknowledges a dispatch.
func (tk *talker) ack(m *lessorv1.SessionResponse) {
	tk.t.Helper()
	f := tk.frame(nil)
	f.Ack = &lessorv1.Ack{For: m.GetId()}
	tk.send(f)
}

// next returns the next frame, which must come within a minute.
func (tk *talker) next() *lessorv1.SessionResponse {
	tk.t.Helper()
	if len(tk.passed) > 0 {
		m := tk.passed[0]
		tk.passed = tk.passed[1:]
		return m
	}
	return tk.fresh()
}

// fresh returns the next frame of the stream, past those that pick has skipped.
func (tk *talker) fresh() *lessorv1.SessionResponse {
	tk.t.Helper()
	select {
	case m, ok := <-tk.heard:
		if !ok {
			tk.t.Fatalf("%s: the stream has ended: %v", tk.name, tk.end)
		}
		return m
	case <-time.After(time.Minute):
		tk.t.Fatalf("%s: nothing came within a minute", tk.name)
	}
	return nil
}

// hear returns the payload of the next frame, which must be of type T.
func hear[T proto.Message](tk *talker) T {
	tk.t.Helper()
	return payloadOf[T](tk, tk.next())
}

// pick returns the first frame with a payload of type T. It keeps the frames before it for next: where the protocol defines no order, as between an
// answer and a dispatch, a test must not expect one.
func pick[T proto.Message](tk *talker) *lessorv1.SessionResponse {
	tk.t.Helper()
	for i, m := range tk.passed {
		if _, ok := payload(m).(T); ok {
			tk.passed = slices.Delete(tk.passed, i, i+1)
			return m
		}
	}
	for {
		m := tk.fresh()
		if _, ok := payload(m).(T); ok {
			return m
		}
		tk.passed = append(tk.passed, m)
	}
}

func payloadOf[T proto.Message](tk *talker, m *lessorv1.SessionResponse) T {
	tk.t.Helper()
	found, ok := payload(m).(T)
	if !ok {
		tk.t.Fatalf("%s: heard %v, want a %T", tk.name, m, found)
	}
	return found
}

// payload returns the payload of a frame; nil if it has none.
func payload(m *lessorv1.SessionResponse) proto.Message {
	r := m.ProtoReflect()
	f := r.WhichOneof(r.Descriptor().Oneofs().ByName("payload"))
	if f == nil {
		return nil
	}
	return r.Get(f).Message().Interface()
}

// given returns the next n assignments, in however many frames they come, and acknowledges them.
func (tk *talker) given(n int) (all []*lessorv1.Assignment) {
	tk.t.Helper()
	for len(all) < n {
		m := tk.next()
		all = append(all, payloadOf[*lessorv1.Dispatch](tk, m).GetAssignments()...)
		tk.ack(m)
	}
	if len(all) != n {
		tk.t.Fatalf("%s: %d assignments, want %d", tk.name, len(all), n)
	}
	synctest.Wait()
	return all
}

// quiet checks that no frame comes before fake time has to pass.
func (tk *talker) quiet() {
	tk.t.Helper()
	tk.nothingPassed()
	synctest.Wait()
	select {
	case m, ok := <-tk.heard:
		if !ok {
			tk.t.Fatalf("%s: the stream has ended: %v", tk.name, tk.end)
		}
		tk.t.Fatalf("%s: heard %v, want nothing", tk.name, m)
	default:
	}
}

// nothingPassed checks that pick has skipped no frame that next has not returned.
func (tk *talker) nothingPassed() {
	tk.t.Helper()
	if len(tk.passed) > 0 {
		tk.t.Fatalf("%s: heard %v, want nothing", tk.name, tk.passed)
	}
}

// over waits for the end of the stream, and checks that no frame comes before it. It returns nil if the stream ended in order.
func (tk *talker) over() error {
	tk.t.Helper()
	tk.nothingPassed()
	select {
	case m, ok := <-tk.heard:
		if ok {
			tk.t.Fatalf("%s: heard %v, want the end", tk.name, m)
		}
	case <-time.After(2 * time.Minute):
		tk.t.Fatalf("%s: the stream has not ended", tk.name)
	}
	if errors.Is(tk.end, io.EOF) {
		return nil
	}
	return tk.end
}

// refused checks that the next frame is an error in answer to the frame corr, with this code, and this word in its message.
func (tk *talker) refused(corr, code, word string) *lessorv1.Error {
	tk.t.Helper()
	m := tk.next()
	e := payloadOf[*lessorv1.Error](tk, m)
	wantText(tk.t, "corr", m.GetCorr(), corr)
	wantText(tk.t, "code", e.GetCode(), code)
	wantWord(tk.t, "message", e.GetMessage(), word)
	return e
}

// judge sends reports, and returns their verdicts.
func (tk *talker) judge(reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	tk.t.Helper()
	corr := tk.say(&lessorv1.Reports{Reports: reports})
	m := tk.next()
	wantText(tk.t, "corr", m.GetCorr(), corr)
	return payloadOf[*lessorv1.Verdicts](tk, m).GetVerdicts()
}

// judgeWith is like judge; the frame also acknowledges another one.
func (tk *talker) judgeWith(acked *lessorv1.SessionResponse, reports ...*lessorv1.Report) []*lessorv1.ReportVerdict {
	tk.t.Helper()
	f := tk.frame(&lessorv1.Reports{Reports: reports})
	f.Ack = &lessorv1.Ack{For: acked.GetId()}
	tk.send(f)
	return payloadOf[*lessorv1.Verdicts](tk, tk.next()).GetVerdicts()
}

// beat sends a heartbeat that names leases, and returns their verdicts.
func (tk *talker) beat(leases ...*lessorv1.Assignment) []*lessorv1.LeaseAck {
	tk.t.Helper()
	m := &lessorv1.WorkerHeartbeat{Healthy: true}
	for _, a := range leases {
		m.Leases = append(m.Leases, renewal(a))
	}
	return tk.beatOf(m).GetLeases()
}

// beatOf sends a heartbeat, and returns its answer once everything that it leads to has happened.
func (tk *talker) beatOf(m *lessorv1.WorkerHeartbeat) *lessorv1.HeartbeatAck {
	tk.t.Helper()
	corr := tk.say(m)
	ack := pick[*lessorv1.HeartbeatAck](tk)
	wantText(tk.t, "corr", ack.GetCorr(), corr)
	synctest.Wait()
	return ack.GetHeartbeatAck()
}

func renewal(a *lessorv1.Assignment) *lessorv1.HeartbeatRequest {
	return &lessorv1.HeartbeatRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()}
}

func started(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Start{
		Start: &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

func completed(a *lessorv1.Assignment, output string) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), ReportId: "of " + a.GetTask().GetTaskId(), Output: []byte(output),
	}}}
}

func released(a *lessorv1.Assignment) *lessorv1.Report {
	return &lessorv1.Report{Report: &lessorv1.Report_Release{
		Release: &lessorv1.ReleaseRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()},
	}}
}

// did checks that all verdicts are COMMITTED.
func did(t *testing.T, verdicts []*lessorv1.ReportVerdict) {
	t.Helper()
	for _, v := range verdicts {
		if v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
			t.Fatalf("verdict %v, want COMMITTED", v)
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

// worker returns the session of a worker as ListWorkers shows it; nil if there is none.
func (r *rig) worker(t *testing.T, name string) *lessorv1.Worker {
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

// counts checks the value of a metric.
func (r *rig) counts(t *testing.T, counter string, n int) {
	t.Helper()
	if line := fmt.Sprintf("\n%s %d\n", counter, n); !strings.Contains(httpGet(t, r, "/metrics", http.StatusOK), line) {
		t.Errorf("the metrics lack %q", line)
	}
}

func wantText(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s is %q, want %q", what, got, want)
	}
}

func wantWord(t *testing.T, what, got, word string) {
	t.Helper()
	if !strings.Contains(got, word) {
		t.Errorf("%s is %q, want a word on %q", what, got, word)
	}
}
