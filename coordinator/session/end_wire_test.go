package session_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W1: a session whose worker sends no frame for defaultIdle is reset. Any frame keeps it alive, in
// any state.
func TestSilentSessionIsReset(t *testing.T) {
	t.Attr("rules", "W1")
	for _, state := range []int{1, 2, 4} {
		t.Run(states[state].name, func(t *testing.T) {
			wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				worker := sessionInState(t, r, state)
				time.Sleep(defaultIdle - time.Millisecond)
				worker.Send(&lessorv1.Error{})
				time.Sleep(defaultIdle - time.Millisecond)
				worker.WantNoFrame()
				time.Sleep(time.Millisecond)
				synctest.Wait()
				wiretest.WantEqual(t, "code", wiretest.NextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeTimeout)
				if err := worker.WaitForEnd(); err != nil {
					t.Errorf("the stream ended with %v, want OK", err)
				}
				if w := r.ListedWorker(t, "w"); w != nil {
					t.Errorf("the worker is still listed: %v", w)
				}
			})
		})
	}
}

// A session is not reset while a frame of its worker waits because the coordinator is busy.
func TestBusySessionIsNotSilent(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		synctest.Wait()
		release := wiretest.BlockCommits(st)
		go func() {
			spec := &lessorv1.TaskSpec{Queue: "q"}
			if _, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		worker.Send(&lessorv1.Capacity{MaxParallel: 2}) // this frame has to wait for the commit
		// less than a TTL, which is the most time that the coordinator gives back after a stall
		time.Sleep(defaultIdle + defaultIdle/4)
		worker.WantNoFrame()
		release()
		worker.ReceiveAssignments(1)
		worker.Heartbeat()
	})
}

// A report that the coordinator has received before a session ends gets its verdict before the end,
// whatever the reason for the end is. If there is a reset, it is the last frame.
func TestVerdictsUnderWayComeBeforeTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(*testing.T, *wiretest.Rig, *wiretest.Worker)
		reset string
		code  codes.Code
	}{
		"the coordinator stops": {func(_ *testing.T, r *wiretest.Rig, _ *wiretest.Worker) { r.Stop() }, refusal.CodeStopping, codes.OK},
		"silence":               {func(*testing.T, *wiretest.Rig, *wiretest.Worker) { time.Sleep(defaultIdle) }, refusal.CodeTimeout, codes.OK},
		"goodbye":               {func(_ *testing.T, _ *wiretest.Rig, worker *wiretest.Worker) { worker.Send(&lessorv1.Goodbye{}) }, "", codes.OK},
		"half close":            {func(_ *testing.T, _ *wiretest.Rig, worker *wiretest.Worker) { _ = worker.Stream.CloseSend() }, "", codes.OK},
		"denial": {func(_ *testing.T, _ *wiretest.Rig, worker *wiretest.Worker) {
			m := worker.NewFrame(&lessorv1.Capacity{})
			m.Tenant = "other"
			worker.SendFrame(m)
			worker.WantError(m.GetId(), refusal.CodeDenied, "tenant")
		}, "", codes.PermissionDenied},
		"a newer stream": {func(t *testing.T, r *wiretest.Rig, _ *wiretest.Worker) { r.OpenSession(t, "w", 1) }, refusal.CodeStaleBinding, codes.OK},
		"an instance that replaces it": {func(t *testing.T, r *wiretest.Rig, _ *wiretest.Worker) {
			r.OpenSessionWith(t, "w", 1, func(h *lessorv1.Handshake) { h.Worker.InstanceId, h.ReplacesInstanceId = "new", "w" })
		}, refusal.CodeStaleBinding, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
				worker := r.OpenSession(t, "w", 1)
				r.SubmitAll(t, 1)
				a := worker.ReceiveAssignments(1)[0]
				synctest.Wait()
				release := wiretest.BlockCommits(st)
				corr := worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(a), wiretest.Completed(a, "")}})
				synctest.Wait()
				tt.end(t, r, worker)
				worker.WantNoFrame()
				release()
				m := worker.NextFrame()
				wiretest.WantEqual(t, "corr", m.GetCorr(), corr)
				wiretest.WantCommitted(t, wiretest.WantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
				if tt.reset != "" {
					wiretest.WantEqual(t, "the reset", wiretest.NextPayload[*lessorv1.Reset](worker).GetCode(), tt.reset)
				}
				if err := worker.WaitForEnd(); status.Code(err) != tt.code {
					t.Errorf("the stream ended with %v, want %v", err, tt.code)
				}
			})
		})
	}
}

// The log line about the end of a session says why it ended: the code and the reason of a reset,
// else the error. A session that its worker ends has none.
func TestEndOfASessionIsLogged(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		line := func() string {
			t.Helper()
			synctest.Wait()
			_, line, _ := strings.Cut(r.Log.String(), `"msg":"session ends",`)
			r.Log.Reset()
			return line
		}
		closed := r.OpenSession(t, "closed", 1)
		_ = closed.Stream.CloseSend()
		if got := line(); got == "" || strings.Contains(got, `"code"`) || strings.Contains(got, `"reason"`) || strings.Contains(got, `"error"`) {
			t.Errorf("after a stream that its worker has closed, the line goes on with %s, want neither code, reason nor error", got)
		}
		_ = r.OpenSession(t, "silent", 1)
		time.Sleep(2 * time.Minute)
		if got, want := line(), `"code":"`+refusal.CodeTimeout+`","reason":"3 heartbeats were missed, one is due every 10s"}`; !strings.Contains(got, want) {
			t.Errorf("after a reset, the line goes on with %s, want %s", got, want)
		}
		broken := r.OpenSession(t, "broken", 1)
		broken.Cut()
		if got := line(); !strings.Contains(got, `"error":"the stream was lost"`) || strings.Contains(got, `"code"`) || strings.Contains(got, `"reason"`) {
			t.Errorf("after a stream that was lost, the line goes on with %s, want that, and neither code nor reason", got)
		}
	})
}

// A coordinator that stops sends a reset to every stream in every state. The reset says after which
// time the worker may connect again.
func TestStopResetsEveryStream(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		silent := r.OpenStream(t, "silent")
		unregistered := r.OpenStream(t, "unregistered")
		unregistered.Handshake()
		all := []*wiretest.Worker{silent, unregistered, r.OpenSession(t, "w", 1), r.OpenSession(t, "drains", 1)}
		all[3].Send(&lessorv1.Drain{})
		synctest.Wait()
		r.Stop()
		for _, worker := range all {
			reset := wiretest.NextPayload[*lessorv1.Reset](worker)
			if reset.GetCode() != refusal.CodeStopping || reset.GetRetryAfter().AsDuration() <= 0 {
				t.Errorf("%s: the reset is %v, want %s with retry_after", worker.Name, reset, refusal.CodeStopping)
			}
			if err := worker.WaitForEnd(); err != nil {
				t.Errorf("%s: the stream ended with %v, want OK", worker.Name, err)
			}
		}
		if err := <-r.Served; err != nil {
			t.Errorf("Serve returned %v, want nil", err)
		}
	})
}

// scriptedStream is the coordinator's end of a stream on which frames come. It calls stop before it
// delivers the frame with the index before.
type scriptedStream struct {
	grpc.BidiStreamingServer[lessorv1.SessionRequest, lessorv1.SessionResponse]
	ctx    context.Context
	frames []*lessorv1.SessionRequest
	before int
	stop   func()
}

func (s *scriptedStream) Context() context.Context { return s.ctx }

func (s *scriptedStream) Send(*lessorv1.SessionResponse) error { return nil }

func (s *scriptedStream) RecvMsg(v any) error {
	if s.before--; s.before == -1 {
		s.stop()
		time.Sleep(time.Millisecond) // until the previous frame is handled
	}
	if len(s.frames) == 0 {
		<-s.ctx.Done()
		return s.ctx.Err()
	}
	raw, err := proto.Marshal(s.frames[0])
	if err != nil {
		return err
	}
	s.frames = s.frames[1:]
	return wiretest.Codec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, v)
}

// A stop while a session is being opened leaves no session behind, whichever frame it comes before.
func TestStopWhileASessionOpens(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var cfg session.Config
		cfg.Fill()
		open, worker := session.NewRegistry(), &wiretest.Worker{Name: "w"}
		for i := range 3 {
			stopping, stop := context.WithCancel(t.Context())
			ctx, cancel := context.WithCancel(wiretest.ContextAfterGate(t.Context(), t))
			s := session.New(session.Deps{
				Config: cfg, Limits: lease.DefaultLimits(), Logger: slog.New(slog.DiscardHandler), Engine: r.Engine,
				Quotas:   wiretest.NoQuotas(),
				Registry: open, Stopping: stopping,
			})
			frames := []*lessorv1.SessionRequest{
				worker.NewFrame(wiretest.HandshakeOf("w")),
				worker.NewFrame(wiretest.Registration(1)),
			}
			if err := s.Serve(&scriptedStream{ctx: ctx, frames: frames, before: i, stop: stop}, session.Caller{Identity: gate.Identify(ctx).Identity}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			cancel() // as gRPC does after a handler has returned
			held, err := r.Engine.LeasesBySession(t.Context(), gate.Identify(ctx).Tenant)
			if err != nil || len(held) != 0 || open.Len() != 0 {
				t.Errorf("stop before frame %d: %d sessions are left in the engine (%v) and %d in the registry, want none", i, len(held), err, open.Len())
			}
		}
	})
}
