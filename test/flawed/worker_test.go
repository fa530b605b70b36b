//go:build faults

package flawed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/signal"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker"
)

// flawedWorker is a worker that keeps the rules, but for the flaws that it is told; "two threads"
// is none. The payload of a task is how many seconds it takes, or "fail".
type flawedWorker struct {
	client lessorv1.WorkerServiceClient
	flaws  []string
	ctx    context.Context //nolint:containedctx // ends with SIGTERM
}

// verdict is what all verdicts have in common.
type verdict interface{ GetVerdict() lessorv1.Verdict }

// runFlawedWorker is the main function of the process: addr, queue, how it speaks, flaws.
func runFlawedWorker(args []string) (code int) {
	addr, queue, speaks, flaws := args[0], args[1], args[2], strings.Split(args[3], ",")
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	w := &flawedWorker{flaws: flaws, ctx: ctx}
	waits := backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 2, MaxDelay: time.Second}
	if w.has("knocks") {
		waits = backoff.Config{BaseDelay: time.Millisecond, MaxDelay: time.Millisecond}
	}
	conn, err := grpc.NewClient("passthrough:///"+addr, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// without it, a connection has no longer than the first wait to come about
		grpc.WithConnectParams(grpc.ConnectParams{Backoff: waits, MinConnectTimeout: patience}))
	if err != nil {
		panic(err)
	}
	w.client = lessorv1.NewWorkerServiceClient(conn)
	if speaks == stream {
		(&flawedStream{
			flawedWorker: w, results: map[string]*lessorv1.Report{}, running: map[string]*flawedLease{},
		}).run(queue)
	} else {
		var threads sync.WaitGroup
		threads.Go(func() { w.run(queue) })
		if w.has("two threads") {
			threads.Go(func() { w.run(queue) })
		}
		threads.Wait()
	}
	return 0
}

func (w *flawedWorker) has(flaw string) bool { return slices.Contains(w.flaws, flaw) }

// run takes task after task by calls.
func (w *flawedWorker) run(queue string) {
	requests := 0
	for w.ctx.Err() == nil || w.has("deaf") || w.has("greedy") {
		ctx := w.ctx
		if w.has("deaf") || w.has("greedy") {
			ctx = context.WithoutCancel(ctx)
		}
		request := &lessorv1.LeaseRequest{
			WorkerId: "flawed", Queues: []string{queue},
			RequestId: fmt.Sprintf("%p-%d", &requests, requests),
		}
		if w.has("counts from its request") {
			request.Wait = durationpb.New(time.Minute)
		}
		asked := time.Now()
		res, err := w.client.Lease(ctx, request, grpc.WaitForReady(!w.has("exits")))
		if err == nil || w.has("new request ids") {
			requests++
		}
		switch {
		case err == nil:
			if w.has("strict") && len(res.ProtoReflect().GetUnknown()) > 0 {
				panic("unknown fields")
			}
			late := w.ctx.Err() != nil
			for _, a := range res.GetAssignments() {
				// half: a lease that it let run out, a moment after it asked again, is no exception
				if w.has("counts from its request") && time.Since(asked) > a.GetExpiresIn().AsDuration()/2 {
					continue
				}
				w.execute(a)
				if late && w.has("greedy") {
					return
				}
			}
			time.Sleep(20 * time.Millisecond)
		case w.ctx.Err() != nil:
		case w.has("exits"):
			os.Exit(1)
		default:
			time.Sleep(w.wait(err))
		}
	}
}

// wait is how long to wait after an error.
func (w *flawedWorker) wait(err error) time.Duration {
	if told := detail.Of[*errdetails.RetryInfo](status.Convert(err)); told != nil && !w.has("impatient") {
		return told.GetRetryDelay().AsDuration()
	}
	return 100 * time.Millisecond
}

// execute does one attempt.
func (w *flawedWorker) execute(a *lessorv1.Assignment) {
	id, leaseID := a.GetTask().GetTaskId(), a.GetLeaseId()
	var cancelled, told bool
	if !w.has("no starts") {
		res, err := w.client.Start(context.Background(), &lessorv1.StartRequest{TaskId: id, LeaseId: leaseID})
		if err == nil && res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED && !w.has("begins anyway") {
			return
		}
	}
	payload := string(a.GetTask().GetSpec().GetPayload())
	seconds, err := strconv.ParseFloat(payload, 64)
	end := time.Now().Add(time.Duration(seconds * float64(time.Second)))
	renewed, expires := time.Now(), a.GetExpiresAt().AsTime()
	for time.Now().Before(end) && !cancelled {
		if w.ctx.Err() != nil && w.has("drops") {
			os.Exit(0)
		}
		if w.has("by expires_at") && time.Now().After(expires) {
			return
		}
		due := time.Since(renewed) > a.GetHeartbeatInterval().AsDuration()
		if w.has("renews by expires_at") {
			due = time.Until(expires) < time.Second
		}
		if due && !w.has("no heartbeats") {
			renewed = time.Now()
			res, err := w.client.Heartbeat(context.Background(),
				&lessorv1.HeartbeatRequest{TaskId: id, LeaseId: leaseID}, grpc.WaitForReady(true))
			if err == nil && res.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED && !w.has("ignores loss") {
				if w.has("works on") {
					time.Sleep(time.Hour)
				}
				return
			}
			asked := res.GetShouldCancel() && !w.has("ignores cancel")
			cancelled, told = asked && (told || !w.has("asks twice")), asked
			expires = res.GetExpiresAt().AsTime()
		}
		time.Sleep(20 * time.Millisecond)
	}
	category := lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE
	switch {
	case w.has("no category"):
		category = lessorv1.ErrorCategory_ERROR_CATEGORY_UNSPECIFIED
	case cancelled && !w.has("other category"):
		category = lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED
	}
	for tries := 0; tries < 50 || w.has("hammers"); tries++ {
		output := []byte(payload)
		if w.has("other content") {
			output = fmt.Appendf(output, " %d", tries)
		}
		var v verdict
		var failed error
		if err != nil && !w.has("hides failure") || cancelled && !w.has("completes what was stopped") {
			v, failed = w.client.Fail(context.Background(), &lessorv1.FailRequest{
				TaskId: id, LeaseId: leaseID, ReportId: "r", Error: &lessorv1.TaskError{Category: category, Message: "it failed"},
			}, grpc.WaitForReady(true))
		} else {
			v, failed = w.client.Complete(context.Background(),
				&lessorv1.CompleteRequest{TaskId: id, LeaseId: leaseID, ReportId: "r", Output: output}, grpc.WaitForReady(true))
		}
		if failed == nil && v.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED && w.has("repeats verdicts") && tries < 2 || failed == nil && w.has("repeats all") && tries < 1 {
			continue
		}
		if failed == nil && v.GetVerdict() == lessorv1.Verdict_VERDICT_CANCELLED && w.has("repeats late") {
			time.Sleep(200 * time.Millisecond)
			continue
		}
		if failed == nil || w.has("gives up") {
			break
		}
		if !w.has("hammers") {
			time.Sleep(100*time.Millisecond + rand.N(100*time.Millisecond))
			continue
		}
		var more sync.WaitGroup // at once, so that a busy machine does not slow them down
		for range 50 {
			more.Go(func() {
				_, _ = w.client.Complete(context.Background(),
					&lessorv1.CompleteRequest{TaskId: id, LeaseId: leaseID, ReportId: "r", Output: output})
			})
		}
		more.Wait()
	}
	go func() {
		for w.has("heartbeats on") {
			_, _ = w.client.Heartbeat(context.Background(), &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: leaseID})
			time.Sleep(time.Second / 10)
		}
	}()
}

// flawedStream speaks by the stream: no resume, no numbers; its leases follow the instance.
type flawedStream struct {
	*flawedWorker
	mu      sync.Mutex
	out     lessorv1.WorkerService_SessionClient
	frames  int
	running map[string]*flawedLease     // by lease
	results map[string]*lessorv1.Report // without a verdict, by lease
	drained bool
	told    bool             // the coordinator knows that it drains
	away    time.Duration    // for which a reset has told it to stay away
	resume  *lessorv1.Resume // only of those that keep a token for ever
}

// flawedLease is what a flawedStream executes, or is about to.
type flawedLease struct {
	*lessorv1.Assignment
	renewed time.Time
	begin   func()        // nil: it has begun
	stop    chan struct{} // closed by a cancel
}

func (s *flawedStream) send(m *lessorv1.SessionRequest) {
	s.frames++
	m.Id = strconv.Itoa(s.frames)
	_ = s.out.Send(m) // the stream is lost, then
}

func (s *flawedStream) run(queue string) {
	for {
		err := s.session(queue)
		if s.over() || s.has("exits") {
			return
		}
		if errors.Is(err, io.EOF) && s.has("exits at reset") {
			return
		}
		time.Sleep(200*time.Millisecond + s.away)
		s.away = 0
	}
}

func (s *flawedStream) over() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return (s.drained || s.ctx.Err() != nil) && len(s.running) == 0 && len(s.results) == 0
}

// session is one stream, until it ends.
func (s *flawedStream) session(queue string) error {
	out, err := s.client.Session(context.Background(), grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	s.mu.Lock()
	s.out = out
	instance := strconv.Itoa(os.Getpid())
	if s.has("another instance") {
		instance = strconv.Itoa(s.frames)
	}
	s.send(&lessorv1.SessionRequest{
		Tenant: "default", Sender: &lessorv1.Sender{Role: "worker", Id: "flawed"},
		Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
			Protocol: 1, Worker: &lessorv1.WorkerInfo{Name: "flawed", InstanceId: "flawed-" + instance}, Resume: s.resume,
		}},
	})
	s.mu.Unlock()
	ended := make(chan struct{})
	defer close(ended)
	go s.beat(out, ended)
	for {
		m, err := out.Recv()
		if err != nil {
			return err
		}
		s.take(m, queue)
	}
}

// beat sends heartbeats on one stream, and the goodbye once there is nothing left to do.
func (s *flawedStream) beat(out lessorv1.WorkerService_SessionClient, ended <-chan struct{}) {
	for {
		select {
		case <-ended:
			return
		case <-time.After(200 * time.Millisecond):
		}
		if s.over() && !s.has("stays") {
			_ = out.Send(&lessorv1.SessionRequest{
				Id:      "bye",
				Payload: &lessorv1.SessionRequest_Goodbye{Goodbye: &lessorv1.Goodbye{}},
			})
			continue
		}
		s.mu.Lock()
		s.drainAfterSignal()
		var leases []*lessorv1.HeartbeatRequest
		for leaseID, l := range s.running {
			if s.has("acknowledges nothing") && time.Since(l.renewed) < l.GetHeartbeatInterval().AsDuration() {
				continue
			}
			l.renewed = time.Now()
			leases = append(leases, &lessorv1.HeartbeatRequest{TaskId: l.GetTask().GetTaskId(), LeaseId: leaseID})
		}
		if len(leases) == 0 && s.has("silent while idle") {
			s.mu.Unlock()
			continue
		}
		s.send(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{Healthy: true, Leases: leases}}})
		s.mu.Unlock()
	}
}

// drainAfterSignal tells the coordinator, once in a session, that there is a signal.
func (s *flawedStream) drainAfterSignal() {
	if s.ctx.Err() != nil && !s.told {
		s.told = true
		s.send(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Drain{Drain: &lessorv1.Drain{Reason: "signal"}}})
	}
}

func (s *flawedStream) take(m *lessorv1.SessionResponse, queue string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if m.GetAck().GetRequest() && !s.has("acknowledges nothing") {
		s.send(&lessorv1.SessionRequest{Ack: &lessorv1.Ack{For: m.GetId()}})
	}
	switch {
	case m.GetAccept() != nil:
		if s.has("keeps its token") {
			s.resume = &lessorv1.Resume{
				SessionId: m.GetAccept().GetSessionId(), SessionToken: m.GetAccept().GetSessionToken(), LastSeenSeq: m.GetSeq(),
			}
		}
		s.send(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Register{Register: &lessorv1.Register{
			Queues: []string{queue}, Capabilities: &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{MaxParallel: 2}},
		}}})
		s.told = s.told && s.has("forgets drain")
		s.drainAfterSignal()
		for _, said := range s.results {
			s.report(proto.CloneOf(said))
		}
	case m.GetDispatch() != nil:
		for _, a := range m.GetDispatch().GetAssignments() {
			if s.ctx.Err() != nil && !s.has("forgets drain") { // granted before the coordinator knew of the drain
				s.report(&lessorv1.Report{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()}}})
				continue
			}
			if s.running[a.GetLeaseId()] == nil && s.results[a.GetLeaseId()] == nil || s.has("executes twice") {
				s.begin(a)
			}
		}
	case m.GetVerdicts() != nil:
		for _, v := range m.GetVerdicts().GetVerdicts() {
			if said := s.results[v.GetLeaseId()]; v.GetError() != nil && said != nil && !s.has("gives up") {
				s.report(proto.CloneOf(said))
			} else if v.GetKind() != lessorv1.ReportKind_REPORT_KIND_START {
				delete(s.results, v.GetLeaseId())
			} else if l := s.running[v.GetLeaseId()]; l != nil && l.begin != nil {
				l.begin()
				l.begin = nil
			}
		}
	case m.GetReset_() != nil:
		s.away = m.GetReset_().GetRetryAfter().AsDuration()
		if m.GetReset_().GetLeasesEnded() && !s.has("ignores kick") {
			for id := range s.running {
				s.cancel(&lessorv1.Cancel{LeaseId: id})
			}
		}
	case m.GetHeartbeatAck() != nil:
		for _, v := range m.GetHeartbeatAck().GetLeases() {
			if v.GetShouldCancel() { // it may be there before the cancel, and the only one to come
				s.cancel(&lessorv1.Cancel{LeaseId: v.GetLeaseId(), Grace: v.GetCancelGraceLeft()})
			}
		}
	case m.GetCancel() != nil:
		s.cancel(m.GetCancel())
	case m.GetDrain() != nil:
		s.drained = true
		if s.has("aborts") {
			_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
		}
	}
}

// begin takes an attempt. One after the first begins when the coordinator has heard of it.
func (s *flawedStream) begin(a *lessorv1.Assignment) {
	l := &flawedLease{Assignment: a, renewed: time.Now(), stop: make(chan struct{})}
	s.running[a.GetLeaseId()] = l
	if !s.has("acknowledges nothing") {
		s.report(&lessorv1.Report{Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()}}})
	}
	l.begin = func() { go s.do(a, l.stop) }
	if a.GetAttempt() == 1 || s.has("begins unheard") {
		l.begin()
		l.begin = nil
	}
}

func (s *flawedStream) report(r *lessorv1.Report) {
	s.send(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Reports{Reports: &lessorv1.Reports{Reports: []*lessorv1.Report{r}}}})
}

// cancel stops an attempt, which then reports that, or forgets one whose lease is lost.
func (s *flawedStream) cancel(m *lessorv1.Cancel) {
	lease := m.GetLeaseId()
	if l := s.running[lease]; l != nil && l.stop != nil && !s.has("ignores cancel") {
		close(l.stop)
		l.stop = nil
	}
	if m.GetGrace() == nil {
		delete(s.running, lease)
		delete(s.results, lease)
	}
}

// do does one attempt.
func (s *flawedStream) do(a *lessorv1.Assignment, stop <-chan struct{}) {
	id, lease := a.GetTask().GetTaskId(), a.GetLeaseId()
	seconds, err := strconv.ParseFloat(string(a.GetTask().GetSpec().GetPayload()), 64)
	var failure *lessorv1.TaskError
	if err != nil {
		failure = &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE, Message: err.Error()}
	}
	select {
	case <-time.After(time.Duration(seconds*float64(time.Second)) + time.Millisecond):
	case <-stop:
		failure = &lessorv1.TaskError{Category: lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED, Message: "cancelled"}
	}
	said := &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{TaskId: id, LeaseId: lease, ReportId: "r"}}}
	if failure != nil {
		said = &lessorv1.Report{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{TaskId: id, LeaseId: lease, ReportId: "r", Error: failure}}}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.running[lease] == nil && !s.has("executes twice") {
		return // the lease is lost
	}
	delete(s.running, lease)
	s.results[lease] = said
	s.report(proto.CloneOf(said))
}

// runSlowWorker is a worker of the SDK. Its handlers need a second to stop.
func runSlowWorker(addr, queue string) (code int) {
	conn, err := worker.Dial(addr)
	if err != nil {
		return 1
	}
	defer func() { _ = conn.Close() }()
	w, err := worker.New(conn, []string{queue}, worker.Config{Concurrency: 1})
	if err != nil {
		return 1
	}
	w.Handle("check", func(ctx context.Context, t *worker.Task) ([]byte, error) {
		seconds, err := strconv.ParseFloat(string(t.Payload), 64)
		if err != nil {
			return nil, err
		}
		select {
		case <-time.After(time.Duration(seconds * float64(time.Second))):
			return nil, nil
		case <-ctx.Done():
			time.Sleep(time.Second)
			return nil, ctx.Err()
		}
	})
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if w.Run(ctx) != nil {
		return 1
	}
	return 0
}
