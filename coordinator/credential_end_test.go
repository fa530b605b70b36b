package coordinator_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/store/memstore"
)

// X3: when a credential is revoked, expires, or loses its key, its session and its waiting calls
// end within a second with that reason, and later reports are not committed. A stream with another
// credential does not end.
func TestStreamsEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3")
	for problem, end := range wiretest.CredentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			cfg := wiretest.NoHeartbeats
			cfg.Auth = &gate.Auth{}
			wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
				token, id := r.IssueFor(t, gate.DefaultTenant, auth.Worker, wiretest.ShortLife)
				operator, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
				long, _ := r.Issue(t, "other", auth.Operator)
				for _, queue := range []string{"q", "q", "later"} {
					_, err := r.Tasks.SubmitTask(wiretest.WithToken(t.Context(), operator), &lessorv1.SubmitTaskRequest{
						Task: &lessorv1.TaskSpec{Queue: queue, HeartbeatTimeout: durationpb.New(time.Hour)},
					})
					if err != nil {
						t.Fatal(err)
					}
				}
				worker := r.WithToken(token).OpenSession(t, "w", 1)
				work := worker.ReceiveAssignments(1)
				other, err := r.Tasks.SubmitStream(wiretest.WithToken(t.Context(), long))
				if err != nil {
					t.Fatal(err)
				}
				waiting := make(chan error, 1)
				go func() { waiting <- wiretest.ErrOf(waitForWork(wiretest.WithToken(t.Context(), token), r)) }()
				synctest.Wait()

				if err := end(r, id); err != nil {
					t.Fatal(err)
				}
				began := time.Now()
				_ = worker.Stream.Send(worker.NewFrame(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work[0], "late")}}))
				if reset := wiretest.NextPayload[*lessorv1.Reset](worker); reset.GetCode() != refusal.CodeToken {
					t.Errorf("the reset is %v, want %s", reset, refusal.CodeToken)
				}
				if err := worker.WaitForEnd(); status.Code(err) != codes.Unauthenticated || wiretest.ProblemOf(err) != string(problem) {
					t.Errorf("the session ended with %v, want UNAUTHENTICATED for %s", err, problem)
				}
				if err := <-waiting; wiretest.ProblemOf(err) != string(problem) {
					t.Errorf("the waiting lease request ended with %v, want UNAUTHENTICATED for %s", err, problem)
				}
				if took := time.Since(began); took > time.Second {
					t.Errorf("session and lease request ended after %v, want at most 1 s", took)
				}
				wantUncommitted(t, r, work[0])
				if err := other.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err != nil {
					t.Error(err)
				}
				if _, err := other.Recv(); err != nil {
					t.Errorf("the stream of another tenant has ended: %v", err)
				}
			})
		})
	}
}

// X3, W11: a session also ends with its credential if its worker reads nothing.
func TestSlowStreamEndsWithItsCredential(t *testing.T) {
	t.Attr("rules", "X3 W11")
	cfg := wiretest.NoHeartbeats
	cfg.Auth = &gate.Auth{}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, gate.DefaultTenant, auth.Worker)
		worker := r.WithToken(token).OpenUnreadStream(t, "w")
		worker.Send(wiretest.HandshakeOf("w"))
		worker.Send(wiretest.Registration(1))
		go func() {
			for worker.Stream.Send(worker.NewFrame(&lessorv1.Reports{Reports: []*lessorv1.Report{{}}})) == nil {
			}
		}()
		synctest.Wait()
		if _, err := r.Gate.Keyring().Revoke(t.Context(), gate.DefaultTenant, id, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		viewer, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
		if _, err := r.Admin.GetWorker(wiretest.WithToken(t.Context(), viewer), &lessorv1.GetWorkerRequest{WorkerId: "w"}); status.Code(err) != codes.NotFound {
			t.Errorf("the session is listed a second after its credential has ended: %v", err)
		}
		select {
		case <-r.Idle():
		default:
			t.Error("the session's handler has not returned a second after its credential has ended")
		}
		var err error
		for err == nil {
			_, err = worker.Stream.Recv()
		}
		if wiretest.ProblemOf(err) != string(auth.Revoked) {
			t.Errorf("the session ended with %v, want UNAUTHENTICATED because the credential is revoked", err)
		}
	})
}

// X3, S5: a watch also ends with its credential if its reader reads nothing, and its handler
// returns.
func TestSlowWatchEndsWithItsCredential(t *testing.T) {
	t.Attr("rules", "X3 S5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, gate.DefaultTenant, auth.Operator)
		ctx := wiretest.WithToken(t.Context(), token)
		batch := &lessorv1.BatchSubmitTasksRequest{}
		for range 1000 {
			batch.Tasks = append(batch.Tasks, &lessorv1.TaskSpec{Queue: "q", RunId: "run"})
		}
		for range 5 {
			if _, err := r.Tasks.BatchSubmitTasks(ctx, batch); err != nil {
				t.Fatal(err)
			}
		}
		stream, err := r.Tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until the buffers of the stream are full
		if err := wiretest.CredentialEndings[auth.Revoked](r, id); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		select {
		case <-r.Idle():
		default:
			t.Error("the watch's handler has not returned a second after its credential has ended")
		}
		n := 0
		for ; err == nil; n++ {
			_, err = stream.Recv()
		}
		if wiretest.ProblemOf(err) != string(auth.Revoked) || n > 4999 {
			t.Errorf("the watch ended with %v after %d events, want UNAUTHENTICATED before the last event", err, n)
		}
	})
}

// waitForWork makes a lease request that waits a minute.
func waitForWork(ctx context.Context, r *wiretest.Rig) (*lessorv1.LeaseResponse, error) {
	return r.Workers.Lease(ctx, &lessorv1.LeaseRequest{
		WorkerId: "u", Queues: []string{"none"},
		Wait: durationpb.New(time.Minute),
	})
}

// X3: watches, waits and submit streams end with their credential. Tasks that are submitted after
// that are not created.
func TestOtherStreamsEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, gate.DefaultTenant, auth.Operator)
		ctx := wiretest.WithToken(t.Context(), token)
		made, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
		if err != nil {
			t.Fatal(err)
		}
		stream, err := r.Tasks.SubmitStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		waits, err := r.Tasks.AwaitTasks(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := waits.Send(&lessorv1.AwaitTasksRequest{Add: []string{made.GetTask().GetTaskId()}}); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error, 3)
		go func() {
			ended <- wiretest.ErrOf(wiretest.WatchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: made.GetTask().GetTaskId()}))
		}()
		go func() { ended <- wiretest.ErrOf(waits.Recv()) }()
		go func() { ended <- wiretest.ErrOf(stream.Recv()) }()
		synctest.Wait()
		if err := wiretest.CredentialEndings[auth.Revoked](r, id); err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "late"}}})
		for range cap(ended) {
			if err := <-ended; wiretest.ProblemOf(err) != string(auth.Revoked) || detail.Untaken(err) {
				t.Errorf("a stream ended with %v, want UNAUTHENTICATED because the credential is revoked, at once", err)
			}
		}
		synctest.Wait()
		again, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
		list, err := r.Tasks.ListTasks(wiretest.WithToken(t.Context(), again), &lessorv1.ListTasksRequest{})
		if err != nil || len(list.GetTasks()) != 1 {
			t.Errorf("%d tasks (%v), want only the one from before the credential ended", len(list.GetTasks()), err)
		}
	})
}

// X3, A6: when a credential expires, the submit stream answers the frames that it has taken, takes
// no other, and says so as it ends: the producer, which may have a new credential, knows what
// became of each frame. It waits for half a second at most.
func TestSubmitStreamIsAnsweredWhenItsCredentialExpires(t *testing.T) {
	t.Attr("rules", "A6 X3")
	for commit, answered := range map[time.Duration]bool{400 * time.Millisecond: true, 2 * time.Second: false} {
		t.Run(fmt.Sprint("commits take ", commit), func(t *testing.T) {
			st := &wiretest.SlowStore{Store: memstore.New()}
			wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
				token, _ := r.IssueFor(t, gate.DefaultTenant, auth.Producer, wiretest.ShortLife)
				stream, err := r.Tasks.SubmitStream(wiretest.WithToken(t.Context(), token))
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Header(); err != nil {
					t.Fatal(err)
				}
				send := func(request string) {
					_ = stream.Send(&lessorv1.SubmitStreamRequest{RequestId: request, Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}})
					synctest.Wait()
				}
				const before = 10 * time.Millisecond
				time.Sleep(wiretest.ShortLife - before)
				st.CommitTime.Store(int64(commit))
				send("taken")
				time.Sleep(before)
				synctest.Wait() // the stream's timer fires at the same moment
				expired := time.Now()
				send("late")
				var answers []string
				for {
					var res *lessorv1.SubmitStreamResponse
					if res, err = stream.Recv(); err != nil {
						break
					}
					answers = append(answers, res.GetRequestId())
				}
				if want := []string{"taken"}[:len(answers)]; !slices.Equal(answers, want) || len(answers) == 1 != answered {
					t.Errorf("the frames %v were answered, want only the one that was taken: %v", answers, answered)
				}
				if wiretest.ProblemOf(err) != string(auth.Expired) || detail.Untaken(err) != answered {
					t.Errorf("the stream ended with %v; it says that all is answered: %v, want %v",
						err, detail.Untaken(err), answered)
				}
				if took := time.Since(expired); took > 500*time.Millisecond {
					t.Errorf("the stream ended after %v, want at most 500ms", took)
				}
			})
		})
	}
}

// X1: no call or stream fails while keys are rotated.
func TestRotationUnderLoad(t *testing.T) {
	t.Attr("rules", "X1")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
		ctx, stop := context.WithCancel(wiretest.WithToken(t.Context(), token))
		failed := make(chan error, 4)
		for range cap(failed) {
			go func() {
				stream, err := r.Tasks.SubmitStream(ctx)
				for err == nil && ctx.Err() == nil {
					if err = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: []*lessorv1.TaskSpec{{Queue: "q"}}}); err == nil {
						_, err = stream.Recv()
					}
					if err == nil {
						_, err = r.Admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
					}
				}
				if ctx.Err() != nil || errors.Is(err, io.EOF) {
					err = nil
				}
				failed <- err
			}()
		}
		service := lessorv1.NewAuthServiceClient(r.Conn)
		for range 50 {
			if _, err := service.RotateKey(ctx, &lessorv1.RotateKeyRequest{}); err != nil {
				t.Fatal(err)
			}
		}
		stop()
		for range cap(failed) {
			if err := <-failed; err != nil {
				t.Error(err)
			}
		}
	})
}

// wantUncommitted checks that a task is still LEASED.
func wantUncommitted(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) {
	t.Helper()
	viewer, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
	res, err := r.Tasks.GetTask(wiretest.WithToken(t.Context(), viewer),
		&lessorv1.GetTaskRequest{TaskId: a.GetTask().GetTaskId()})
	if s := res.GetTask().GetState(); err != nil || s != lessorv1.TaskState_TASK_STATE_LEASED {
		t.Errorf("the task is %v (%v), want LEASED", s, err)
	}
}

// X3: a credential that was revoked issues no token any more, even if the call had begun before and
// waited for other changes of the tenant. Otherwise whoever has stolen it could make others that
// survive it. A call whose caller has left issues none either, because nobody would have the token.
func TestRevokedCredentialIssuesNoToken(t *testing.T) {
	t.Attr("rules", "X3")
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
		stolen, id := r.Issue(t, "acme", auth.Operator)
		owner, _ := r.Issue(t, "acme", auth.Operator)
		service := lessorv1.NewAuthServiceClient(r.Conn)
		st.CommitTime.Store(int64(time.Second))
		create := func(ctx context.Context) <-chan error {
			ended := make(chan error, 1)
			go func() {
				ended <- wiretest.ErrOf(service.CreateToken(ctx,
					&lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_OPERATOR, Subject: "eve"}))
			}()
			synctest.Wait()
			return ended
		}
		left, leave := context.WithCancel(t.Context())
		before, gone := create(wiretest.WithToken(t.Context(), stolen)), create(wiretest.WithToken(left, owner))
		revoked := make(chan error, 1)
		go func() {
			revoked <- wiretest.ErrOf(service.RevokeToken(wiretest.WithToken(t.Context(), owner),
				&lessorv1.RevokeTokenRequest{TokenId: id}))
		}()
		synctest.Wait()
		after := create(wiretest.WithToken(t.Context(), stolen))
		leave()
		if err := <-before; err != nil {
			t.Errorf("the call before the revocation: %v", err)
		}
		if err := <-gone; status.Code(err) != codes.Canceled {
			t.Errorf("the call whose caller has left: %v, want CANCELLED", err)
		}
		if err := <-revoked; err != nil {
			t.Fatal(err)
		}
		if err := <-after; wiretest.ProblemOf(err) != string(auth.Revoked) {
			t.Errorf("the call that waited longer than the revocation: %v, want UNAUTHENTICATED because the credential is revoked", err)
		}
		time.Sleep(time.Minute)
		if all := r.Gate.Keyring().List("acme"); len(all) != 3 {
			t.Errorf("the tenant has %d tokens, want the two of the operators and the one that was issued before the revocation", len(all))
		}
		wantRefusalInAudit(t, r, owner, "CreateToken")
	})
}

// X3: a bulk verb whose credential is revoked takes no further step, however many tasks are left.
// Its error says how many tasks it has changed at least: all but those of the step that was under
// way.
func TestBulkVerbEndsWithItsCredential(t *testing.T) {
	t.Attr("rules", "X3")
	const tasks, perBatch = 3000, 1000
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
		stolen, id := r.Issue(t, "acme", auth.Operator)
		token, _ := r.Issue(t, "acme", auth.Operator)
		owner := wiretest.WithToken(t.Context(), token)
		specs := make([]*lessorv1.TaskSpec, perBatch)
		for i := range specs {
			specs[i] = &lessorv1.TaskSpec{Queue: "q"}
		}
		for range tasks / perBatch {
			if _, err := r.Tasks.BatchSubmitTasks(owner, &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		left := func() uint64 {
			res, err := r.Admin.GetQueue(owner, &lessorv1.GetQueueRequest{Name: "q"})
			if err != nil {
				t.Fatal(err)
			}
			return res.GetQueue().GetReady()
		}
		st.CommitTime.Store(int64(time.Second))
		for what, call := range map[string]func(context.Context) error{
			"BatchDeleteTasks": func(ctx context.Context) error {
				return wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx, &lessorv1.BatchDeleteTasksRequest{All: true}))
			},
			"PurgeQueue": func(ctx context.Context) error {
				return wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{Name: "q"}))
			},
		} {
			before, ended := left(), make(chan error, 1)
			go func() { ended <- call(wiretest.WithToken(t.Context(), stolen)) }()
			time.Sleep(5 * time.Second / 2)
			if _, err := lessorv1.NewAuthServiceClient(r.Conn).RevokeToken(owner, &lessorv1.RevokeTokenRequest{TokenId: id}); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
			after := left()
			err := <-ended
			if wiretest.ProblemOf(err) != string(auth.Revoked) {
				t.Errorf("%s: %v, want UNAUTHENTICATED because the credential is revoked", what, err)
			}
			changed, _ := strconv.Atoi(detail.Of[*errdetails.ErrorInfo](status.Convert(err)).GetMetadata()["changed"])
			if gone := int(before - after); changed == 0 || changed > gone || changed < gone-200 {
				t.Errorf("%s: the error says that %d tasks were changed, and %d are gone", what, changed, gone)
			}
			if now := left(); now != after {
				t.Errorf("%s went on for more than a second after its credential was revoked: %d tasks were left then, and %d at the end", what, after, now)
			}
			stolen, id = r.Issue(t, "acme", auth.Operator)
		}
	})
}

// wantRefusalInAudit checks that the audit has a refusal of a call because of its credential.
func wantRefusalInAudit(t *testing.T, r *wiretest.Rig, token, action string) {
	t.Helper()
	all := r.AuditEvents(wiretest.WithToken(t.Context(), token), t,
		&lessorv1.ListAuditEventsRequest{Action: action, Outcome: refusal.CodeToken})
	if len(all) != 1 {
		t.Errorf("the audit has %v, want one refusal", all)
	}
}

// X3: a call that waits because its client does not read earlier answers ends with its credential,
// like any other that waits. Later it would be answered with what happened in between.
func TestCallOfAClientThatDoesNotReadEndsWithItsCredential(t *testing.T) {
	t.Attr("rules", "X3")
	for problem, end := range wiretest.CredentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
				token, id := r.IssueFor(t, gate.DefaultTenant, auth.Viewer, wiretest.ShortLife)
				ctx := metadata.NewIncomingContext(t.Context(), metadata.Pairs("authorization", "Bearer "+token))
				ctx = sendlimit.Handler{}.TagConn(ctx, nil)
				ctx, abort := context.WithCancel(ctx)
				defer abort()
				wiretest.LeaveUnread(ctx)
				ended := make(chan error, 1)
				go func() {
					info := &grpc.UnaryServerInfo{FullMethod: lessorv1.TaskService_ListTasks_FullMethodName}
					_, err := coordinator.CallThrough(ctx, r.Gate, &lessorv1.ListTasksRequest{}, info, func(context.Context, any) (any, error) {
						t.Error("the call was made after its credential had ended")
						return &lessorv1.ListTasksResponse{}, nil
					})
					ended <- err
				}()
				synctest.Wait()
				if err := end(r, id); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Second)
				select {
				case err := <-ended:
					if wiretest.ProblemOf(err) != string(problem) {
						t.Errorf("ended with %v, want UNAUTHENTICATED for %s", err, problem)
					}
				default:
					abort()
					t.Errorf("the call still waits a second after its credential has ended; then it ended with %v", <-ended)
				}
			})
		})
	}
}
