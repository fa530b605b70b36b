package coordinator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// A stop ends watches and waiting calls with UNAVAILABLE, so that clients try again elsewhere or
// later. Serve returns nil.
func TestStopEndsWatchesAndWaitingCalls(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		ended := make(chan error, 2)
		go func() {
			ended <- wiretest.ErrOf(wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id}))
		}()
		go func() {
			ended <- wiretest.ErrOf(r.Workers.Lease(t.Context(), &lessorv1.LeaseRequest{
				WorkerId: "w", Queues: []string{"other"}, Wait: durationpb.New(time.Minute),
			}))
		}()
		synctest.Wait()
		began := time.Now()
		r.Stop()
		for range 2 {
			if err := <-ended; status.Code(err) != codes.Unavailable {
				t.Errorf("ended with %v, want UNAVAILABLE", err)
			}
		}
		if err := <-r.Served; err != nil {
			t.Errorf("Serve returned %v", err)
		}
		if d := time.Since(began); d >= coordinator.GracefulStop {
			t.Errorf("the stop took %v, want less than %v", d, coordinator.GracefulStop)
		}
	})
}

// A stream of the health service that stays open does not delay a stop.
func TestStopDoesNotWaitForHealthWatches(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		watch, err := r.Health.Watch(t.Context(), &healthv1.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := watch.Recv(); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		r.Stop()
		if res, err := watch.Recv(); err != nil || res.GetStatus() != healthv1.HealthCheckResponse_NOT_SERVING {
			t.Errorf("at the stop, the watch says %v (%v), want NOT_SERVING", res, err)
		}
		if err := <-r.Served; err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took > coordinator.LastWords {
			t.Errorf("the stop took %v of fake time, want at most %v", took, coordinator.LastWords)
		}
	})
}

// Calls over gRPC and calls over HTTP have the same ten seconds to end, not one after the other.
func TestStopWaitsForGRPCAndHTTPTogether(t *testing.T) {
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		lis := bufconn.Listen(1 << 10)
		go func() { _ = r.HTTP.Serve(lis) }()
		conn, err := lis.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		// and never read the answer
		if _, err := io.WriteString(conn, "GET /openapi.json HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		release := r.SubmitAndBlockCommit(t, st)
		time.AfterFunc(coordinator.GracefulStop-time.Second, release)
		began := time.Now()
		r.Stop()
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took != coordinator.GracefulStop {
			t.Errorf("the stop took %v of fake time, want %v", took, coordinator.GracefulStop)
		}
		wiretest.WantContains(t, "the log", r.Log.String(), "HTTP server did not stop in time")
		_ = conn.Close()
	})
}

// A stop during a handshake ends the session, and leaves no goroutine behind.
func TestStopDuringAHandshake(t *testing.T) {
	for range 20 {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			stream, err := r.Workers.Session(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			go r.Stop()
			_ = stream.Send(&lessorv1.SessionRequest{
				Id: "1", Tenant: gate.DefaultTenant, Sender: &lessorv1.Sender{Role: "worker", Id: "w"},
				Payload: &lessorv1.SessionRequest_Handshake{Handshake: &lessorv1.Handshake{
					Protocol: session.Protocol,
					Worker:   &lessorv1.WorkerInfo{Name: "w"},
				}},
			})
			for err == nil {
				_, err = stream.Recv()
			}
		})
	}
}

// A10: if a commit fails, the caller gets UNAVAILABLE with RetryInfo, the coordinator is no longer
// ready, and Serve returns ErrStore, so that the process exits.
func TestStoreFailureEndsTheCoordinator(t *testing.T) {
	t.Attr("rules", "A10")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		if got := r.HealthStatus(t); got != healthv1.HealthCheckResponse_SERVING {
			t.Errorf("before the failure health is %v, want SERVING", got)
		}
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		watches := make(chan error, 2)
		for _, req := range []*lessorv1.WatchTaskRequest{{TaskId: id}, {RunId: "run"}} {
			go func() {
				events, err := wiretest.WatchAll(t.Context(), r, req)
				if wiretest.EventNames(events) != "SUBMITTED" {
					err = fmt.Errorf("%s (%w)", wiretest.EventNames(events), err)
				}
				watches <- err
			}()
		}
		synctest.Wait()
		st.SetHook(func(context.Context, *store.Batch, func()) error { return errors.New("no space") })
		_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
		if status.Code(err) != codes.Unavailable || detail.Of[*errdetails.RetryInfo](status.Convert(err)) == nil {
			t.Errorf("submit: %v, want UNAVAILABLE with RetryInfo", err)
		}
		if err := <-r.Served; !errors.Is(err, engine.ErrStore) {
			t.Errorf("Serve returned %v, want ErrStore", err)
		}
		for range cap(watches) {
			if err := <-watches; status.Code(err) != codes.Unavailable {
				t.Errorf("a watch ended with %v, want UNAVAILABLE after the one event, and no word of a deletion", err)
			}
		}
		wiretest.GetPath(t, r, "/readyz", http.StatusServiceUnavailable)
	})
}

// A10: if a read or the check after a start finds damage, the coordinator ends although nothing has
// to be committed: without that, an idle one would go on to say that it is ready, and answer no
// read.
func TestStoreFailureEndsAnIdleCoordinator(t *testing.T) {
	t.Attr("rules", "A10")
	st := &failingStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		st.failed.Store(true)
		select {
		case err := <-r.Served:
			if !errors.Is(err, engine.ErrStore) || !errors.As(err, new(*store.CommitError)) {
				t.Errorf("Serve returned %v, want ErrStore and why the store has failed", err)
			}
		case <-time.After(time.Hour):
			t.Error("the coordinator still serves an hour after its store has failed")
		}
	})
}

// failingStore is a store that fails when the test says so.
type failingStore struct {
	store.Store
	failed atomic.Bool
}

func (s *failingStore) View(fn func(store.Reader) error) error {
	if s.failed.Load() {
		return &store.CommitError{Err: errors.New("damaged")}
	}
	return s.Store.View(fn)
}

func (s *failingStore) Begin(ctx context.Context) (store.Tx, error) {
	if s.failed.Load() {
		return nil, &store.CommitError{Err: errors.New("damaged")}
	}
	return s.Store.Begin(ctx)
}

// A10: a token whose commit fails is not given to the caller, and is not valid.
func TestTokenIsDurableBeforeItIsGiven(t *testing.T) {
	t.Attr("rules", "A10")
	st := memstore.New()
	wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
		ctx := r.OperatorContext(t, "acme")
		have := len(r.Gate.Keyring().List("acme"))
		st.SetHook(func(context.Context, *store.Batch, func()) error { return errors.New("no space") })
		made, err := lessorv1.NewAuthServiceClient(r.Conn).CreateToken(ctx,
			&lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_WORKER, Subject: "s"})
		if status.Code(err) != codes.Unavailable || made.GetToken() != "" {
			t.Errorf("CreateToken: %v, want UNAVAILABLE and no token", err)
		}
		if n := len(r.Gate.Keyring().List("acme")); n != have {
			t.Errorf("the keyring has %d tokens, want %d", n, have)
		}
		if err := <-r.Served; !errors.Is(err, engine.ErrStore) {
			t.Errorf("Serve returned %v, want ErrStore", err)
		}
	})
}

// Serve returns after the last commit, because its caller then closes the store. If that commit
// fails, Serve returns the error.
func TestServeReturnsAfterTheLastCommit(t *testing.T) {
	for name, broken := range map[string]error{"committed": nil, "failed": errors.New("no space")} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				r := wiretest.New(t, st)
				defer func() { _ = r.Conn.Close() }()
				release := make(chan struct{})
				st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
					<-release
					if broken == nil {
						apply()
					}
					return broken
				})
				ctx, leave := context.WithCancel(t.Context())
				go func() {
					_, _ = r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
				}()
				synctest.Wait()
				leave() // no call is under way, but a commit is
				r.Stop()
				time.Sleep(time.Hour)
				select {
				case err := <-r.Served:
					t.Fatalf("Serve returned %v during a commit", err)
				default:
				}
				close(release)
				if err := <-r.Served; broken == nil && err != nil || broken != nil && !errors.Is(err, engine.ErrStore) {
					t.Errorf("Serve returned %v after a commit with the error %v", err, broken)
				}
			})
		})
	}
}

// A6: after a crash, the next start has the tasks whose submit was acknowledged.
func TestRestartFindsTheTasks(t *testing.T) {
	t.Attr("rules", "A6")
	st := memstore.New()
	var id string
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) { id = r.Submit(t, nil).GetTaskId() })
	wiretest.Serve(t, st.Reopen(), func(t *testing.T, r *wiretest.Rig) {
		if got := r.Get(t, id); got.GetState() != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("the task is %v, want it READY", got)
		}
	})
}

// rawCodec sends bytes unchanged, and does not decode the answer.
type rawCodec struct{}

func (rawCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}
func (rawCodec) Unmarshal(mem.BufferSlice, any) error { return nil }
func (rawCodec) Name() string                         { return "proto" }

// Invalid UTF-8 in a request is refused with INVALID_ARGUMENT and the name of the field;
// malformed_test.go has the details.
func TestInvalidUTF8OnTheWire(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		err := r.Conn.Invoke(t.Context(), lessorv1.TaskService_GetTask_FullMethodName, []byte("\x0a\x02\xff\xff"), new([]byte),
			grpc.ForceCodecV2(rawCodec{}))
		v := detail.Of[*errdetails.BadRequest](status.Convert(err)).GetFieldViolations()
		if status.Code(err) != codes.InvalidArgument || len(v) != 1 || v[0].GetField() != "task_id" {
			t.Errorf("%v with %v, want INVALID_ARGUMENT of task_id", err, v)
		}
	})
}

// The log has a line for each call, with tenant, type, sender, id, corr and the outcome; it never
// has payloads or lease ids.
func TestLogOfACall(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{
			Task: &lessorv1.TaskSpec{Queue: "q", Payload: []byte("secret-payload")}, RequestId: "req-1",
		})
		if err != nil {
			t.Fatal(err)
		}
		a := r.Lease(t)
		r.Complete(t, a, "secret-output")
		_, _ = r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: "nonsense"})
		synctest.Wait()
		log := r.Log.String()
		id := a.GetTask().GetTaskId()
		for _, want := range []string{
			`"tenant":"default"`, `"type":"SubmitTask"`, `"corr":"req-1"`, `"id":"` + id + `"`, `"sender":"w"`,
			`"verdict":"COMMITTED"`, `"code":"E.TASK.NOT_FOUND"`, "no credentials are required",
		} {
			if !strings.Contains(log, want) {
				t.Errorf("the log lacks %s", want)
			}
		}
		for _, secret := range []string{"secret-payload", "secret-output", a.GetLeaseId()} {
			if strings.Contains(log, secret) {
				t.Errorf("the log contains %s, which is secret", secret)
			}
		}
		if t.Failed() {
			t.Log(log)
		}
	})
}

// While the disk is full, or after a stop, every call is refused. Each refused call is logged only
// at level debug; the stop is logged once.
func TestFullDiskAndStopDoNotFillTheLog(t *testing.T) {
	wiretest.ServeWith(t, nil, coordinator.Config{DiskFull: func() bool { return true }}, func(t *testing.T, r *wiretest.Rig) {
		_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
		wiretest.WantDiskFull(t, "SubmitTask", err)
		waiting := make(chan error, 1)
		go func() {
			_, err := r.Workers.Lease(t.Context(),
				&lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}, MaxTasks: 1, Wait: durationpb.New(time.Minute)})
			waiting <- err
		}()
		synctest.Wait()
		r.Stop()
		if err := <-waiting; refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("a waiting lease request ended with %v, want %s", err, refusal.CodeStopping)
		}
		if err := <-r.Served; err != nil {
			t.Error(err)
		}
		log := r.Log.String()
		if strings.Count(log, `"msg":"stopping`) != 1 {
			t.Errorf("the log does not have the stop exactly once:\n%s", log)
		}
		for line := range strings.Lines(log) {
			ofRefusal := strings.Contains(line, refusal.CodeDiskFull) || strings.Contains(line, refusal.CodeStopping)
			if ofRefusal && !strings.Contains(line, `"level":"DEBUG"`) {
				t.Errorf("a refused call is logged above level debug: %s", line)
			}
		}
	})
}

// rate() sees only what is added to a sample, so each cause of the end of a lease, an attempt or a
// session is counted from 0 on: otherwise no alert would notice that all workers of a new
// coordinator died at once.
func TestEndsAreCountedFromZero(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
		wants := []string{`lessor_retries_total{reason="LEASE_EXPIRED"} 0`, `lessor_session_resets_total{code="E.TIMEOUT"} 0`}
		for _, cause := range []lease.Reason{
			lease.CoordinatorRecovered, lease.LeaseExpired, lease.DispatchUnacked, lease.TaskCancelled,
			lease.CancelTimeout, lease.DeadlineExceeded,
			lease.Revoked, lease.Reported,
		} {
			wants = append(wants, fmt.Sprintf("lessor_leases_ended_total{cause=%q} 0", cause.String()))
		}
		for _, want := range wants {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
	})
}

// /metrics has the counters by kind, verdict and reason. /healthz says whether the process lives,
// and /readyz whether it is ready. Profiles exist only with Config.Pprof.
func TestHTTP(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		r.Complete(t, r.Lease(t), "")
		metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK)
		for _, want := range []string{
			`lessor_verdicts_total{kind="complete",reason="NONE",verdict="COMMITTED"} 1`, "lessor_dispatch_total 1",
			"lessor_leases_live 0", "lessor_sessions_active 0", `lessor_leases_ended_total{cause="REPORTED"} 1`,
			"lessor_commit_seconds_count", "lessor_commit_batch_size_count", "lessor_store_bytes",
		} {
			if !strings.Contains(metrics, want) {
				t.Errorf("the metrics lack %s", want)
			}
		}
		wiretest.GetPath(t, r, "/healthz", http.StatusOK)
		wiretest.GetPath(t, r, "/readyz", http.StatusOK)
		wiretest.GetPath(t, r, "/", http.StatusFound) // to the page
		wiretest.GetPath(t, r, "/debug/pprof/", http.StatusNotFound)
		r.Stop()
		synctest.Wait()
		wiretest.GetPath(t, r, "/healthz", http.StatusOK)
		wiretest.GetPath(t, r, "/readyz", http.StatusServiceUnavailable)
	})
}

// GetStatus counts the leases and says since when the coordinator runs and whether it asks for
// credentials, ListQueues lists the queues by name in pages, and ListWorkers lists no worker
// without a session.
func TestStatusAndQueues(t *testing.T) {
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, "acme", auth.Viewer)
		st, err := r.Admin.GetStatus(wiretest.WithToken(t.Context(), token), &lessorv1.GetStatusRequest{})
		if end := time.Now().Add(time.Hour); err != nil || st.GetOpen() || !st.GetCredentialEndsAt().AsTime().Equal(end) {
			t.Errorf("with credentials the status is %v (%v), want open to be false, and the end of the token at %v",
				st, err, end)
		}
		want := &lessorv1.Holder{Tenant: "acme", Role: lessorv1.Role_ROLE_VIEWER, Subject: "acme-viewer"}
		if got := st.GetHolder(); !proto.Equal(got, want) {
			t.Errorf("the holder of the credential is %v, want %v", got, want)
		}
	})
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx, started := t.Context(), time.Now()
		time.Sleep(time.Minute)
		for _, q := range []string{"b", "a", "c"} {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = q })
		}
		r.Submit(t, nil)
		r.Lease(t)
		st, err := r.Admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
		if err != nil || st.GetLeases() != 1 || st.GetVersion() != "test" || !st.GetOpen() || st.GetEpoch() == 0 || !st.GetStartedAt().AsTime().Equal(started) || st.GetCredentialEndsAt() != nil || st.GetHolder() != nil {
			t.Errorf("status is %v (%v), want one lease, version test, no credentials asked for and none that ends, an epoch, and the start at %v", st, err, started)
		}
		var names []string
		req := &lessorv1.ListQueuesRequest{PageSize: 2}
		for {
			res, err := r.Admin.ListQueues(ctx, req)
			if err != nil {
				t.Fatal(err)
			}
			for _, q := range res.GetQueues() {
				names = append(names, q.GetName())
			}
			if req.PageToken = res.GetNextPageToken(); req.PageToken == "" {
				break
			}
			names = append(names, "|")
		}
		wiretest.WantEqual(t, "the list of the queues by two", strings.Join(names, " "), "a b | c q")
		workers, err := r.Admin.ListWorkers(ctx, &lessorv1.ListWorkersRequest{})
		if err != nil || len(workers.GetWorkers()) != 0 {
			t.Errorf("workers: %v (%v), want none without a session", workers, err)
		}
	})
}

// The log says which version serves which epoch at which addresses, why it stops, and that it has
// stopped.
func TestLogHasTheStartAndTheStop(t *testing.T) {
	var log bytes.Buffer
	wiretest.ServeWith(t, nil, coordinator.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))},
		func(*testing.T, *wiretest.Rig) {})
	for _, want := range []string{`msg=serving version=test epoch=1 grpc=bufconn `, `answered" cause="context canceled"`, "msg=stopped"} {
		wiretest.WantContains(t, "the log", log.String(), want)
	}
}
