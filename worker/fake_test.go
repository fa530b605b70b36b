package worker_test

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
)

// The times that the scripted coordinator states.
const (
	interval = 30 * time.Second
	ttl      = 90 * time.Second
	grace    = 30 * time.Second
	// lull is how long the worker lets a Start, or an acknowledgement, wait for something that
	// shares its frame.
	lull = time.Millisecond
)

// coordinator is a scripted coordinator: it hands each stream of the worker to the test, which
// reads the worker's frames and answers them.
type coordinator struct {
	lessorv1.UnimplementedWorkerServiceServer
	t       *testing.T
	streams chan *stream
	conn    *grpc.ClientConn
	// accepts, if set, is called before each accept is sent, and may change it.
	accepts func(*stream, *lessorv1.Accept)
	// refuse, if set, gets each new stream instead of the test; the stream ends with the error that
	// it returns.
	refuse func(*stream) error
}

// stream is one session as the coordinator sees it.
type stream struct {
	t    *testing.T
	grpc grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	// frames are those of the worker. It is closed when the worker has ended the stream.
	frames chan *lessorv1.SessionRequest
	// end gets the error that the RPC returns.
	end chan error
	// mute means that the stream does not acknowledge frames by itself; the test may do it.
	mute atomic.Bool

	sending  sync.Mutex // guards lastSent and the order of frames
	lastSent uint64

	// gate holds a token while the worker's frames are not read.
	gate chan struct{}
	// early is a frame that started returned from because it has an outcome besides the Start;
	// outcome takes it.
	early *lessorv1.SessionRequest
	// handshake and register are the first two frames.
	handshake *lessorv1.SessionRequest
	register  *lessorv1.SessionRequest
}

// startCoordinator serves a scripted coordinator over an in-memory connection, inside the test's
// bubble.
func startCoordinator(t *testing.T, opts ...grpc.DialOption) *coordinator {
	t.Helper()
	c := &coordinator{t: t, streams: make(chan *stream, 16)}
	listener := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	lessorv1.RegisterWorkerServiceServer(server, c)
	served := make(chan struct{})
	go func() { defer close(served); _ = server.Serve(listener) }()
	conn, err := grpc.NewClient("passthrough:///coordinator", append(opts,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))...)
	if err != nil {
		t.Fatal(err)
	}
	c.conn = conn
	t.Cleanup(func() { _ = conn.Close(); server.Stop(); <-served })
	return c
}

// Session implements WorkerService: it answers handshake and register, and hands the stream to the
// test.
func (c *coordinator) Session(g grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]) error {
	s := &stream{
		t: c.t, grpc: g, frames: make(chan *lessorv1.SessionRequest, 4096), end: make(chan error, 1),
		gate: make(chan struct{}, 1),
	}
	if c.refuse != nil {
		return c.refuse(s)
	}
	var err error
	if s.handshake, err = g.Recv(); err != nil {
		return err
	}
	accept := &lessorv1.Accept{SessionId: "s", HeartbeatInterval: durationpb.New(interval), NextSeq: 1}
	if c.accepts != nil {
		c.accepts(s, accept)
	}
	s.resend(&lessorv1.SessionResponse{
		Id: "accept", Corr: s.handshake.GetId(), Payload: &lessorv1.SessionResponse_Accept{Accept: accept},
	})
	if s.register, err = g.Recv(); err != nil {
		return err
	}
	s.acknowledgeFrame(s.register)
	go s.receive()
	c.streams <- s
	select {
	case err := <-s.end:
		return err
	case <-g.Context().Done():
		return g.Context().Err()
	}
}

func (s *stream) receive() {
	defer close(s.frames)
	for {
		s.gate <- struct{}{}
		<-s.gate
		f, err := s.grpc.Recv()
		if err != nil {
			if errors.Is(err, io.EOF) {
				s.finish(nil) // as the real coordinator does after goodbye
			}
			return
		}
		s.acknowledgeFrame(f)
		s.frames <- f
	}
}

// acknowledgeFrame acknowledges a frame that has a seq, unless the stream is mute.
func (s *stream) acknowledgeFrame(f *lessorv1.SessionRequest) {
	if f.GetSeq() != 0 && !s.mute.Load() {
		s.send(&lessorv1.SessionResponse{Ack: &lessorv1.Ack{For: f.GetId()}})
	}
}

// send gives a frame the next id and seq, and the time, and sends it. It ignores the error of a
// stream that has ended.
func (s *stream) send(f *lessorv1.SessionResponse) *lessorv1.SessionResponse {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.numberLocked(f)
	s.sendLocked(f)
	return f
}

// sendLate sends a frame as if it had been in transit for that time: the time in the frame is that
// long ago.
func (s *stream) sendLate(f *lessorv1.SessionResponse, inTransit time.Duration) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.numberLocked(f)
	f.Ts, f.Sender = timestamppb.New(time.Now().Add(-inTransit)), sender
	_ = s.grpc.Send(f)
}

func (s *stream) numberLocked(f *lessorv1.SessionResponse) {
	s.lastSent++
	f.Id, f.Seq = "c"+strconv.FormatUint(s.lastSent, 10), s.lastSent
}

// lastSeq returns the seq of the last frame that was numbered.
func (s *stream) lastSeq() uint64 {
	s.sending.Lock()
	defer s.sending.Unlock()
	return s.lastSent
}

// lose gives a frame the next id and seq but does not send it: the worker sees a gap.
func (s *stream) lose(f *lessorv1.SessionResponse) *lessorv1.SessionResponse {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.numberLocked(f)
	return f
}

// resend sends a frame with the id and seq that it has already.
func (s *stream) resend(f *lessorv1.SessionResponse) {
	s.sending.Lock()
	defer s.sending.Unlock()
	s.sendLocked(f)
}

func (s *stream) sendLocked(f *lessorv1.SessionResponse) {
	f.Ts = timestamppb.Now()
	f.Sender = sender
	_ = s.grpc.Send(f)
}

// pause stops the reading of the worker's frames, so that the stream fills up; resume continues it.
func (s *stream) pause() { s.gate <- struct{}{} }

func (s *stream) resume() { <-s.gate }

// finish ends the stream with err.
func (s *stream) finish(err error) {
	select {
	case s.end <- err:
	default:
	}
}

// accept returns the worker's next stream.
func (c *coordinator) accept() *stream {
	c.t.Helper()
	select {
	case s := <-c.streams:
		return s
	case <-time.After(time.Hour):
		c.t.Fatal("the worker opened no stream")
		return nil
	}
}

// next returns the worker's next frame for which want is true, and discards the frames before it.
func (s *stream) next(what string, want func(*lessorv1.SessionRequest) bool) *lessorv1.SessionRequest {
	s.t.Helper()
	timeout := time.After(time.Hour)
	for {
		select {
		case f, ok := <-s.frames:
			if !ok {
				s.t.Fatalf("the stream ended before %s", what)
			}
			if want(f) {
				return f
			}
		case <-timeout:
			s.t.Fatalf("no %s came", what)
		}
	}
}

// quiet waits until the worker has nothing left to do now. It reads all frames that have come, and
// fails the test if one of them is unwanted.
func (s *stream) quiet(what string, unwanted func(*lessorv1.SessionRequest) bool) {
	s.t.Helper()
	synctest.Wait()
	for {
		select {
		case f, ok := <-s.frames:
			if !ok {
				return
			}
			if unwanted(f) {
				s.t.Fatalf("unwanted %s: %v", what, f)
			}
		default:
			return
		}
	}
}

func isReports(f *lessorv1.SessionRequest) bool { return f.GetReports() != nil }

func isRenewal(f *lessorv1.SessionRequest) bool { return len(f.GetHeartbeat().GetLeases()) > 0 }

func isOutcome(f *lessorv1.SessionRequest) bool {
	return slices.ContainsFunc(f.GetReports().GetReports(), isOutcomeReport)
}

func isOutcomeReport(r *lessorv1.Report) bool { return r.GetStart() == nil }

func isGoodbye(f *lessorv1.SessionRequest) bool { return f.GetGoodbye() != nil }

func isDrain(f *lessorv1.SessionRequest) bool { return f.GetDrain() != nil }

// reports returns the next frame of reports.
func (s *stream) reports() *lessorv1.SessionRequest {
	s.t.Helper()
	return s.next("reports", isReports)
}

// renewal returns the next heartbeat that names leases.
func (s *stream) renewal() *lessorv1.SessionRequest {
	s.t.Helper()
	return s.next("heartbeat", isRenewal)
}

// started waits for the Start of one task and commits it. A frame that has an outcome as well, or
// one in place of the Start, is left for outcome, uncommitted.
func (s *stream) started(id string) {
	s.t.Helper()
	f := s.reports()
	if !hasStarted(f.GetReports().GetReports()[0], id) {
		s.t.Fatalf("got %v, want the start of %s", f, id)
	}
	if isOutcome(f) {
		s.early = f
		return
	}
	s.commit(f)
}

// hasStarted reports whether r is the Start of a task, or an outcome that says when the task was
// started.
func hasStarted(r *lessorv1.Report, id string) bool {
	task, lease, _ := identity(r)
	return task == id && lease == "lease-"+id &&
		cmp.Or(r.GetStart().GetStartedAt(), r.GetComplete().GetStartedAt(), r.GetFail().GetStartedAt(),
			r.GetRelease().GetStartedAt()) != nil
}

// outcome waits for the next outcome and returns its frame, without answering it, and its report.
func (s *stream) outcome() (*lessorv1.SessionRequest, *lessorv1.Report) {
	s.t.Helper()
	f := s.early
	if s.early = nil; f == nil {
		f = s.next("outcome", isOutcome)
	}
	return f, outcomeOf(f)
}

// outcomeOf returns the first outcome in a frame.
func outcomeOf(f *lessorv1.SessionRequest) *lessorv1.Report {
	reports := f.GetReports().GetReports()
	return reports[slices.IndexFunc(reports, isOutcomeReport)]
}

// assignment is a grant of the task with the id.
func assignment(id string) *lessorv1.Assignment {
	return &lessorv1.Assignment{
		Task: &lessorv1.Task{TaskId: id, TenantId: "default", Spec: &lessorv1.TaskSpec{
			WorkspaceId: "default", Queue: "q", Type: "work", Payload: []byte("in-" + id),
		}},
		Attempt:           1,
		AttemptId:         id + "/1",
		LeaseId:           "lease-" + id,
		FencingToken:      7,
		ExpiresIn:         durationpb.New(ttl),
		HeartbeatInterval: durationpb.New(interval),
		HeartbeatTimeout:  durationpb.New(ttl),
		CancelGrace:       durationpb.New(grace),
		Checkpoint:        []byte("saved"),
	}
}

// dispatch grants tasks.
func (s *stream) dispatch(ids ...string) *lessorv1.SessionResponse { return s.send(dispatchOf(ids...)) }

// dispatchOf is a dispatch that waits for its acknowledgement.
func dispatchOf(ids ...string) *lessorv1.SessionResponse {
	d := &lessorv1.Dispatch{}
	for _, id := range ids {
		d.Assignments = append(d.Assignments, assignment(id))
	}
	return &lessorv1.SessionResponse{
		Ack: &lessorv1.Ack{Request: true}, Payload: &lessorv1.SessionResponse_Dispatch{Dispatch: d},
	}
}

// answer answers each report of a frame with the verdict that judge returns.
func (s *stream) answer(f *lessorv1.SessionRequest, judge func(*lessorv1.Report) *lessorv1.ReportVerdict) {
	s.send(verdictsOn(f, judge))
}

func verdictsOn(f *lessorv1.SessionRequest, judge func(*lessorv1.Report) *lessorv1.ReportVerdict) *lessorv1.SessionResponse {
	v := &lessorv1.Verdicts{}
	for _, r := range f.GetReports().GetReports() {
		verdict := judge(r)
		verdict.TaskId, verdict.LeaseId, verdict.Kind = identity(r)
		v.Verdicts = append(v.Verdicts, verdict)
	}
	return &lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_Verdicts{Verdicts: v}}
}

func identity(r *lessorv1.Report) (task, lease string, kind lessorv1.ReportKind) {
	switch {
	case r.GetStart() != nil:
		return r.GetStart().GetTaskId(), r.GetStart().GetLeaseId(), lessorv1.ReportKind_REPORT_KIND_START
	case r.GetComplete() != nil:
		return r.GetComplete().GetTaskId(), r.GetComplete().GetLeaseId(), lessorv1.ReportKind_REPORT_KIND_COMPLETE
	case r.GetFail() != nil:
		return r.GetFail().GetTaskId(), r.GetFail().GetLeaseId(), lessorv1.ReportKind_REPORT_KIND_FAIL
	}
	return r.GetRelease().GetTaskId(), r.GetRelease().GetLeaseId(), lessorv1.ReportKind_REPORT_KIND_RELEASE
}

func committed(*lessorv1.Report) *lessorv1.ReportVerdict {
	return &lessorv1.ReportVerdict{
		Verdict:   lessorv1.Verdict_VERDICT_COMMITTED,
		Reason:    lessorv1.Reason_REASON_NONE,
		ExpiresIn: durationpb.New(ttl),
	}
}

// verdict returns a judge with the same verdict for every report.
func verdict(v lessorv1.Verdict, r lessorv1.Reason) func(*lessorv1.Report) *lessorv1.ReportVerdict {
	return func(*lessorv1.Report) *lessorv1.ReportVerdict {
		return &lessorv1.ReportVerdict{
			Verdict: v, Reason: r, Detail: "because",
			ShouldCancel: v == lessorv1.Verdict_VERDICT_CANCELLED,
		}
	}
}

// commit answers a frame of reports with COMMITTED.
func (s *stream) commit(f *lessorv1.SessionRequest) { s.answer(f, committed) }

// renew answers a heartbeat: each lease lives for another ttl.
func (s *stream) renew(f *lessorv1.SessionRequest) {
	s.acknowledge(f, &lessorv1.LeaseAck{
		Verdict: lessorv1.Verdict_VERDICT_COMMITTED, Reason: lessorv1.Reason_REASON_NONE, ExpiresIn: durationpb.New(ttl),
	})
}

// acknowledge answers a heartbeat with the same ack for each lease.
func (s *stream) acknowledge(f *lessorv1.SessionRequest, same *lessorv1.LeaseAck) {
	ack := &lessorv1.HeartbeatAck{}
	for _, l := range f.GetHeartbeat().GetLeases() {
		item := proto.CloneOf(same)
		item.TaskId, item.LeaseId = l.GetTaskId(), l.GetLeaseId()
		ack.Leases = append(ack.Leases, item)
	}
	s.send(&lessorv1.SessionResponse{Corr: f.GetId(), Payload: &lessorv1.SessionResponse_HeartbeatAck{HeartbeatAck: ack}})
}

// cancel sends a cancel frame.
func (s *stream) cancel(id string, reason lessorv1.Reason, grace time.Duration) {
	s.send(&lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Cancel{Cancel: &lessorv1.Cancel{
		TaskId: id, LeaseId: "lease-" + id, Reason: reason, Detail: "because", Grace: durationpb.New(grace),
	}}})
}

// running is a worker that a test has started.
type running struct {
	t      *testing.T
	worker *worker.Worker
	stop   context.CancelFunc
	err    error
	ended  chan struct{}

	mu       sync.Mutex
	errors   []error
	verdicts []*lessorv1.ReportVerdict
	stops    []error
	states   []worker.State
	// noNewWork holds the reasons that the hook OnNoNewWork was told.
	noNewWork []string
}

// run starts a worker with h as the handler of the type "work". The worker is stopped at the end of
// the test.
func (c *coordinator) run(cfg worker.Config, h worker.Handler) *running {
	c.t.Helper()
	r := &running{t: c.t, ended: make(chan struct{})}
	cfg.Name = "w1"
	cfg.Concurrency = max(cfg.Concurrency, 1)
	if cfg.Logger == nil {
		cfg.Logger = slog.New(slog.DiscardHandler)
	}
	cfg.Hooks = r.hooks()
	w, err := worker.New(c.conn, []string{"q"}, cfg)
	if err != nil {
		c.t.Fatal(err)
	}
	w.Handle("work", h)
	r.worker = w
	ctx, cancel := context.WithCancel(c.t.Context())
	r.stop = cancel
	go func() { defer close(r.ended); r.err = w.Run(ctx) }()
	c.t.Cleanup(func() { cancel(); <-r.ended })
	return r
}

func (r *running) hooks() worker.Hooks {
	return worker.Hooks{
		OnError:     func(err error) { r.mu.Lock(); defer r.mu.Unlock(); r.errors = append(r.errors, err) },
		OnState:     func(s worker.State) { r.mu.Lock(); defer r.mu.Unlock(); r.states = append(r.states, s) },
		OnStop:      func(_ *worker.Task, err error) { r.mu.Lock(); defer r.mu.Unlock(); r.stops = append(r.stops, err) },
		OnNoNewWork: func(why string) { r.mu.Lock(); defer r.mu.Unlock(); r.noNewWork = append(r.noNewWork, why) },
		OnVerdict: func(_ *worker.Task, v *lessorv1.ReportVerdict) {
			r.mu.Lock()
			defer r.mu.Unlock()
			r.verdicts = append(r.verdicts, v)
		},
	}
}

// done returns what Run returned, once the hooks have run: those for what a drain has given up may
// still run when Run returns.
func (r *running) done() error {
	r.t.Helper()
	select {
	case <-r.ended:
		synctest.Wait()
		return r.err
	case <-time.After(time.Hour):
		r.t.Fatal("Run did not return")
		return nil
	}
}

// shutdown drains a worker that is idle, and fails the test if Run returns an error.
func (r *running) shutdown() {
	r.t.Helper()
	r.stop()
	if err := r.done(); err != nil {
		r.t.Fatalf("Run = %v, want nil", err)
	}
}

// gotError reports whether OnError got an error that is kind.
func (r *running) gotError(kind error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.ContainsFunc(r.errors, func(err error) bool { return errors.Is(err, kind) })
}

// wantGivenUp checks that an outcome is not sent any more, and that the program was told.
func wantGivenUp(t *testing.T, r *running, s *stream) {
	t.Helper()
	time.Sleep(ttl)
	s.quiet("report after the last try", isReports)
	if !r.gotError(worker.ErrUndelivered) {
		t.Errorf("OnError got %v, want %v among them", r.errors, worker.ErrUndelivered)
	}
	r.shutdown()
}

// errBroken ends a stream as a lost connection would.
var errBroken = status.Error(codes.Unavailable, "broken")

// echo is a handler that returns its input.
func echo(_ context.Context, t *worker.Task) ([]byte, error) { return t.Payload, nil }

// untilStopped is a handler that runs until its context ends, and then sends the cause to causes.
func untilStopped(causes chan<- error) worker.Handler {
	return func(ctx context.Context, _ *worker.Task) ([]byte, error) {
		<-ctx.Done()
		causes <- context.Cause(ctx)
		return nil, ctx.Err()
	}
}

// sender is what the coordinator states as the sender of its frames.
var sender = &lessorv1.Sender{Role: "coordinator", Id: "fake"}
