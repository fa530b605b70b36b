package coordinator

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// W1: a session without frames is reset after a time; any frame keeps it alive, in any state.
func TestSilentSessionIsReset(t *testing.T) {
	t.Attr("rules", "W1")
	for _, state := range []int{1, 2, 4} {
		t.Run(states[state].name, func(t *testing.T) {
			serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
				worker := r.sessionInState(t, state)
				time.Sleep(defaultIdle - time.Millisecond)
				worker.send(&lessorv1.Error{})
				time.Sleep(defaultIdle - time.Millisecond)
				worker.wantNoFrame()
				time.Sleep(time.Millisecond)
				synctest.Wait()
				wantEqual(t, "code", nextPayload[*lessorv1.Reset](worker).GetCode(), refusal.CodeTimeout)
				if err := worker.waitForEnd(); err != nil {
					t.Errorf("ended with %v", err)
				}
				if w := r.listedWorker(t, "w"); w != nil {
					t.Errorf("still listed: %v", w)
				}
			})
		})
	}
}

// A worker whose frame waits because the coordinator is busy does not count as silent.
func TestBusySessionIsNotSilent(t *testing.T) {
	st := memstore.New()
	serve(t, st, func(t *testing.T, r *rig) {
		worker := r.openSession(t, "w", 1)
		synctest.Wait()
		release := blockCommits(st)
		go func() {
			spec := &lessorv1.TaskSpec{Queue: "q"}
			if _, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
				t.Error(err)
			}
		}()
		synctest.Wait()
		worker.send(&lessorv1.Capacity{MaxParallel: 2}) // its answer has to wait for the commit
		time.Sleep(defaultIdle + defaultIdle/4)         // less than a TTL, which is the most that a stall gives back
		worker.wantNoFrame()
		release()
		worker.receiveAssignments(1)
		worker.heartbeat()
	})
}

// blockCommits makes commits wait until release is called.
func blockCommits(st *memstore.Store) (release func()) {
	gate := make(chan struct{})
	st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		<-gate
		apply()
		return nil
	})
	return func() { close(gate) }
}

// A report that was received before the end of a session gets its verdict before the end, for whatever reason the session ends. If there is a reset,
// it is the last frame.
func TestVerdictsUnderWayComeBeforeTheEnd(t *testing.T) {
	for name, tt := range map[string]struct {
		end   func(*testing.T, *rig, *testWorker)
		reset string
		code  codes.Code
	}{
		"the coordinator stops": {func(_ *testing.T, r *rig, _ *testWorker) { r.stop() }, refusal.CodeStopping, codes.OK},
		"silence":               {func(*testing.T, *rig, *testWorker) { time.Sleep(defaultIdle) }, refusal.CodeTimeout, codes.OK},
		"goodbye":               {func(_ *testing.T, _ *rig, worker *testWorker) { worker.send(&lessorv1.Goodbye{}) }, "", codes.OK},
		"half close":            {func(_ *testing.T, _ *rig, worker *testWorker) { _ = worker.stream.CloseSend() }, "", codes.OK},
		"denial": {func(_ *testing.T, _ *rig, worker *testWorker) {
			m := worker.newFrame(&lessorv1.Capacity{})
			m.Tenant = "other"
			worker.sendFrame(m)
			worker.wantError(m.GetId(), refusal.CodeDenied, "tenant")
		}, "", codes.PermissionDenied},
		"a newer stream": {func(t *testing.T, r *rig, _ *testWorker) { r.openSession(t, "w", 1) }, refusal.CodeStaleBinding, codes.OK},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			serve(t, st, func(t *testing.T, r *rig) {
				worker := r.openSession(t, "w", 1)
				r.submitAll(t, 1)
				a := worker.receiveAssignments(1)[0]
				synctest.Wait()
				release := blockCommits(st)
				corr := worker.send(&lessorv1.Reports{Reports: []*lessorv1.Report{started(a), completed(a, "")}})
				synctest.Wait()
				tt.end(t, r, worker)
				worker.wantNoFrame()
				release()
				m := worker.nextFrame()
				wantEqual(t, "corr", m.GetCorr(), corr)
				wantCommitted(t, wantPayload[*lessorv1.Verdicts](worker, m).GetVerdicts())
				if tt.reset != "" {
					wantEqual(t, "the reset", nextPayload[*lessorv1.Reset](worker).GetCode(), tt.reset)
				}
				if err := worker.waitForEnd(); status.Code(err) != tt.code {
					t.Errorf("ended with %v, want %v", err, tt.code)
				}
			})
		})
	}
}

// A coordinator that stops sends a reset to every stream in every state, and says when to come back.
func TestStopResetsEveryStream(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		silent := r.openStream(t, "silent")
		half := r.openStream(t, "half")
		half.handshake()
		all := []*testWorker{silent, half, r.openSession(t, "w", 1), r.openSession(t, "drains", 1)}
		all[3].send(&lessorv1.Drain{})
		synctest.Wait()
		r.stop()
		for _, worker := range all {
			reset := nextPayload[*lessorv1.Reset](worker)
			if reset.GetCode() != refusal.CodeStopping || reset.GetRetryAfter().AsDuration() <= 0 {
				t.Errorf("%s: reset by %v", worker.name, reset)
			}
			if err := worker.waitForEnd(); err != nil {
				t.Errorf("%s: ended with %v", worker.name, err)
			}
		}
		if err := <-r.served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
	})
}

// scriptedStream is a stream with given frames; the coordinator stops before one of them.
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
		time.Sleep(time.Millisecond) // so that the handler has handled the frame before
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
	return newCodec().Unmarshal(mem.BufferSlice{mem.SliceBuffer(raw)}, v)
}

// A stop while a session opens leaves no session behind, at whichever frame it comes.
func TestStopWhileASessionOpens(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		open, words := session.NewRegistry(), &testWorker{name: "w"}
		for i := range 3 {
			stopping, stop := context.WithCancel(t.Context())
			ctx, cancel := context.WithCancel(contextAfterGate(t.Context(), t))
			e := &edge{engine: r.engine, cfg: r.cfg, assigner: &convert.Assigner{}, stopping: stopping, quotas: noQuotas()}
			s := e.streams(r.engine, open)
			frames := []*lessorv1.SessionRequest{words.newFrame(handshakeOf("w")), words.newFrame(registration(1))}
			if err := s.Serve(&scriptedStream{ctx: ctx, frames: frames, before: i, stop: stop}, opener(ctx)); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			cancel() // as grpc does after a handler has returned
			held, err := r.engine.LeasesBySession(t.Context())
			if err != nil || len(held) != 0 || open.Len() != 0 {
				t.Errorf("stopped before frame %d: %d sessions are left in the engine (%v), %d in the register", i, len(held), err, open.Len())
			}
		}
	})
}
