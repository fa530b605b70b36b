package coordinator_test

import (
	"context"
	"errors"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// auditRecorder is a store that remembers which keyspaces the last commit with an audit entry has
// changed.
type auditRecorder struct {
	store.Store
	mu      sync.Mutex
	changed map[store.Keyspace]bool
}

// Begin implements store.Store.
func (n *auditRecorder) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, n.Commit), nil
}

func (n *auditRecorder) Commit(ctx context.Context, b *store.Batch) error {
	changed := map[store.Keyspace]bool{}
	for i := range b.Len() {
		changed[b.At(i).Keyspace] = true
	}
	if changed[store.Audit] {
		n.mu.Lock()
		n.changed = changed
		n.mu.Unlock()
	}
	return n.Store.Commit(ctx, b)
}

// lastChanged returns these keyspaces, without the audit itself and without Meta, which every
// commit changes.
func (n *auditRecorder) lastChanged() map[store.Keyspace]bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.changed, store.Audit)
	delete(n.changed, store.Meta)
	return n.changed
}

// auditedCall is a call that is audited.
type auditedCall struct {
	method string
	call   func(context.Context) error
	object string // the object that the entry must name; empty: none, or a new id
	// changed in the same commit as the entry; store.Meta: the call changes nothing in the store
	changes   store.Keyspace
	tasks     uint64
	needsAuth bool // without credentials, where there are no tokens
}

// auditedCalls creates the tasks that the audited calls need, and returns the calls. They must be
// made in this order.
func auditedCalls(ctx context.Context, t *testing.T, r *wiretest.Rig) []auditedCall {
	t.Helper()
	submit := func(queue string) string {
		res, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{
			WorkspaceId: "ws", Queue: queue, Payload: []byte("classified"),
			HeartbeatTimeout: durationpb.New(time.Second), HeartbeatInterval: durationpb.New(time.Second / 2),
		}})
		if err != nil {
			t.Fatal(err)
		}
		return res.GetTask().GetTaskId()
	}
	one, late := submit("q"), submit("late")
	reportLate(ctx, t, r, late)
	submit("many")
	submit("many")
	tokens := lessorv1.NewAuthServiceClient(r.Conn)
	filter := &lessorv1.TaskFilter{WorkspaceId: "ws", Queue: "many"}
	var backup string // id of the backup that is taken, and then confirmed
	return []auditedCall{
		{method: lessorv1.TaskService_AdoptResult_FullMethodName, object: late, changes: store.Task, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.AdoptResult(ctx, &lessorv1.AdoptResultRequest{TaskId: late, RequestId: "corr"}))
		}},
		{method: lessorv1.TaskService_CancelTask_FullMethodName, object: one, changes: store.Task, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.CancelTask(ctx,
				&lessorv1.CancelTaskRequest{TaskId: one, Reason: "not needed", RequestId: "corr"}))
		}},
		{method: lessorv1.TaskService_RetryTask_FullMethodName, object: one, changes: store.Task, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.RetryTask(ctx, &lessorv1.RetryTaskRequest{TaskId: one, RequestId: "corr"}))
		}},
		{method: lessorv1.TaskService_DeleteTask_FullMethodName, object: one, changes: store.Task, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.DeleteTask(ctx, &lessorv1.DeleteTaskRequest{TaskId: one, RequestId: "corr"}))
		}},
		{method: lessorv1.TaskService_BatchCancelTasks_FullMethodName, changes: store.Task, tasks: 2, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx,
				&lessorv1.BatchCancelTasksRequest{Filter: filter, RequestId: "corr"}))
		}},
		{method: lessorv1.TaskService_BatchRetryTasks_FullMethodName, changes: store.Task, tasks: 2, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.BatchRetryTasks(ctx,
				&lessorv1.BatchRetryTasksRequest{Filter: filter, RequestId: "corr"}))
		}},
		{method: lessorv1.AdminService_UpdateQueue_FullMethodName, object: "many", changes: store.Settings, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.UpdateQueue(ctx,
				&lessorv1.UpdateQueueRequest{WorkspaceId: "ws", Name: "many", MaxInflight: new(uint32(7))}))
		}},
		{method: lessorv1.AdminService_PurgeQueue_FullMethodName, object: "many", changes: store.Task, tasks: 2, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.PurgeQueue(ctx, &lessorv1.PurgeQueueRequest{WorkspaceId: "ws", Name: "many"}))
		}},
		// nothing is left to delete
		{method: lessorv1.TaskService_BatchDeleteTasks_FullMethodName, changes: store.Meta, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Tasks.BatchDeleteTasks(ctx,
				&lessorv1.BatchDeleteTasksRequest{Filter: filter, RequestId: "corr"}))
		}},
		{method: lessorv1.AdminService_DrainWorker_FullMethodName, object: "w", changes: store.Meta, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.DrainWorker(ctx, &lessorv1.DrainWorkerRequest{WorkerId: "w"}))
		}},
		{method: lessorv1.AdminService_InstallPackage_FullMethodName, object: "model", changes: store.Meta, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.InstallPackage(ctx,
				&lessorv1.InstallPackageRequest{Name: "model", Version: "1", Workers: &lessorv1.WorkerFilter{}}))
		}},
		{method: lessorv1.AdminService_UninstallPackage_FullMethodName, object: "model", changes: store.Meta, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.UninstallPackage(ctx,
				&lessorv1.UninstallPackageRequest{Name: "model", Version: "1", Workers: &lessorv1.WorkerFilter{}}))
		}},
		{method: lessorv1.AdminService_KickWorker_FullMethodName, object: "w", changes: store.Meta, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.KickWorker(ctx, &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true}))
		}},
		{method: lessorv1.AdminService_Backup_FullMethodName, changes: store.Meta, call: func(ctx context.Context) error {
			stream, err := r.Admin.Backup(ctx, &lessorv1.BackupRequest{})
			if err == nil {
				var begin *lessorv1.BackupBegin
				begin, _, _, err = wiretest.ReceiveBackup(stream)
				backup = begin.GetBackupId()
			}
			return err
		}},
		{method: lessorv1.AdminService_ConfirmBackup_FullMethodName, changes: store.Meta, call: func(ctx context.Context) error {
			return wiretest.ErrOf(r.Admin.ConfirmBackup(ctx, &lessorv1.ConfirmBackupRequest{BackupId: backup}))
		}},
		{method: lessorv1.AdminService_FollowStore_FullMethodName, changes: store.Meta, call: func(ctx context.Context) error {
			stream, err := r.Admin.FollowStore(ctx)
			if err != nil {
				return err
			}
			start := &lessorv1.FollowStart{Name: "b", InstanceId: "instance"}
			// Recv returns its error
			_ = stream.Send(&lessorv1.FollowStoreRequest{Part: &lessorv1.FollowStoreRequest_Start{Start: start}})
			_, err = stream.Recv()
			synctest.Wait() // the entry is not waited for
			for _ = stream.CloseSend(); err == nil; {
				_, err = stream.Recv()
			}
			if !errors.Is(err, io.EOF) {
				return err
			}
			return nil
		}},
		{method: lessorv1.AuthService_CreateToken_FullMethodName, changes: store.Token, needsAuth: true, call: func(ctx context.Context) error {
			return wiretest.ErrOf(tokens.CreateToken(ctx,
				&lessorv1.CreateTokenRequest{Role: lessorv1.Role_ROLE_VIEWER, Subject: "v"}))
		}},
		{method: lessorv1.AuthService_RotateKey_FullMethodName, changes: store.SigningKey, needsAuth: true, call: func(ctx context.Context) error {
			return wiretest.ErrOf(tokens.RotateKey(ctx, &lessorv1.RotateKeyRequest{}))
		}},
		{method: lessorv1.AuthService_RevokeToken_FullMethodName, changes: store.Token, needsAuth: true, call: func(ctx context.Context) error {
			list, err := tokens.ListTokens(ctx, &lessorv1.ListTokensRequest{})
			if err != nil {
				return err
			}
			newest := list.GetTokens()[len(list.GetTokens())-1]
			return wiretest.ErrOf(tokens.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: newest.GetTokenId()}))
		}},
	}
}

// reportLate leases the task of the queue "late", and reports its result after the lease has
// expired.
func reportLate(ctx context.Context, t *testing.T, r *wiretest.Rig, task string) {
	t.Helper()
	got, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "slow", WorkspaceId: "ws", Queues: []string{"late"}})
	if err != nil || len(got.GetAssignments()) != 1 {
		t.Fatalf("lease: %v (%v)", got, err)
	}
	time.Sleep(2 * time.Second)
	res, err := r.Workers.Complete(ctx, &lessorv1.CompleteRequest{
		TaskId:  task,
		LeaseId: got.GetAssignments()[0].GetLeaseId(), Output: []byte("classified"),
	})
	if err != nil || res.GetVerdict() != lessorv1.Verdict_VERDICT_CANCELLED {
		t.Fatalf("the late Complete got %v (%v), want CANCELLED", res, err)
	}
}

// X4: each audited call leaves one entry, in the same commit as its change. The entry has the
// caller, the tenant, the time, the call and the outcome. This also holds if the coordinator
// requires no credentials.
func TestAuditedCallsLeaveAnEntry(t *testing.T) {
	t.Attr("rules", "X4")
	for name, cfg := range map[string]coordinator.Config{"with credentials": {Auth: &gate.Auth{}, HostTenant: gate.DefaultTenant}, "without credentials": {}} {
		t.Run(name, func(t *testing.T) {
			st := &auditRecorder{Store: memstore.New()}
			cfg.Sessions = wiretest.NoHeartbeats.Sessions
			wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) {
				ctx, want := t.Context(), &lessorv1.AuditEvent{Tenant: gate.DefaultTenant, Subject: "anonymous"}
				if cfg.Auth != nil {
					token, id := r.Issue(t, gate.DefaultTenant, auth.Operator)
					ctx, r.Token = wiretest.WithToken(ctx, token), token
					want.Subject, want.CredentialId, want.Role = "default-operator", id, "operator"
				}
				all := auditedCalls(ctx, t, r)
				r.OpenSession(t, "w", 1)
				n := len(r.AuditEvents(ctx, t, wiretest.WholeAudit()))
				for _, d := range all {
					began := time.Now()
					if err := d.call(ctx); (err != nil) != (d.needsAuth && cfg.Auth == nil) {
						t.Fatalf("%s: %v", d.method, err)
					} else if err != nil {
						continue
					}
					events := r.AuditEvents(ctx, t, wiretest.WholeAudit())
					if n++; len(events) != n {
						t.Fatalf("%s: the audit has %d entries, want %d", d.method, len(events), n)
					}
					d.check(t, events[n-1], want, began)
					if with := st.lastChanged(); d.changes == store.Meta && len(with) > 0 || d.changes != store.Meta && !with[d.changes] {
						t.Errorf("%s: its entry was committed with changes of %v, want %v",
							d.method, slices.Collect(maps.Keys(with)), d.changes)
					}
				}
			})
		})
	}
}

// check compares an entry of the audit with its call. who has the caller that the entry must name.
func (d auditedCall) check(t *testing.T, e, who *lessorv1.AuditEvent, at time.Time) {
	t.Helper()
	if e.GetTenant() != who.GetTenant() || e.GetSubject() != who.GetSubject() || e.GetCredentialId() != who.GetCredentialId() ||
		e.GetRole() != who.GetRole() || e.GetPeer() != "bufconn" {
		t.Errorf("%s: the entry is %v, want the caller %v at bufconn", d.method, e, who)
	}
	if e.GetAction() != path.Base(d.method) || e.GetOutcome() != "OK" || e.GetTasks() != d.tasks || e.GetTimes() != 0 {
		t.Errorf("%s: the entry is %v, want %s OK of %d tasks", d.method, e, path.Base(d.method), d.tasks)
	}
	if off := e.GetAt().AsTime().Sub(at).Abs(); off > time.Millisecond {
		t.Errorf("%s: the time of the entry is %v off", d.method, off)
	}
	fresh := d.object == "" && (d.changes == store.Token || d.changes == store.SigningKey)
	if fresh && len(e.GetObject()) != 17 || !fresh && e.GetObject() != d.object {
		t.Errorf("%s: the object of the entry is %q, want %q, or the id of a token or key: %v",
			d.method, e.GetObject(), d.object, fresh)
	}
	if strings.Contains(d.method, "TaskService") && e.GetRequestId() != "corr" || strings.Contains(d.method, "Queue") && e.GetWorkspaceId() != "ws" {
		t.Errorf("%s: the entry is %v, want its request_id or its workspace", d.method, e)
	}
	detail := map[string]string{"CancelTask": `reason:"not needed"`, "UpdateQueue": "max_inflight:7", "BatchCancelTasks": `queue:"many"`, "CreateToken": `subject:"v"`}
	if !strings.Contains(e.GetDetail(), detail[e.GetAction()]) {
		t.Errorf("%s: the detail is %q, want it to contain %q", d.method, e.GetDetail(), detail[e.GetAction()])
	}
}

// X4: the audited calls that docs/security.md names are those of deeds.
func TestAuditedCallsAreTested(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var tested []string
		for _, d := range auditedCalls(t.Context(), t, r) {
			tested = append(tested, path.Base(d.method))
		}
		slices.Sort(tested)
		if named := wiretest.ReadAccessRules(t).Audited(); !slices.Equal(tested, named) {
			t.Errorf("tested are %q\ndocs/security.md names %q", tested, named)
		}
	})
}

// X4: a refused call leaves an entry with the code of the refusal. If its credential or its role
// was refused, this holds for every call, otherwise only for audited calls. A call without a known
// credential leaves no entry.
func TestRefusedCallsLeaveAnEntry(t *testing.T) {
	t.Attr("rules", "X4")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		producer, producerID := r.Issue(t, "acme", auth.Producer)
		if _, err := r.Gate.Keyring().Rotate(t.Context(), "acme", new(time.Duration), time.Now()); err != nil {
			t.Fatal(err)
		}
		operator, _ := r.Issue(t, "acme", auth.Operator)
		viewer, viewerID := r.Issue(t, "acme", auth.Viewer)
		worker, workerID := r.IssueFor(t, "acme", auth.Worker, time.Second)
		if _, err := r.Gate.Keyring().Revoke(t.Context(), "acme", workerID, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		ctx := wiretest.WithToken(t.Context(), operator)
		for _, tt := range []struct {
			who, method, code, credential string
		}{
			{viewer, lessorv1.TaskService_SubmitTask_FullMethodName, refusal.CodeForbidden, viewerID},
			{viewer, lessorv1.WorkerService_Session_FullMethodName, refusal.CodeForbidden, viewerID},
			{worker, lessorv1.WorkerService_Lease_FullMethodName, refusal.CodeToken, workerID},
			{worker, lessorv1.WorkerService_Session_FullMethodName, refusal.CodeToken, workerID},
			// of a retired key
			{producer, lessorv1.TaskService_SubmitTask_FullMethodName, refusal.CodeToken, producerID},
			{operator, lessorv1.TaskService_CancelTask_FullMethodName, refusal.CodeInvalid, ""},
			{operator, lessorv1.AdminService_UpdateQueue_FullMethodName, refusal.CodeInvalid, ""},
			{operator, lessorv1.TaskService_GetTask_FullMethodName, "", ""}, // reads are not audited
			{"nonsense", lessorv1.TaskService_GetTask_FullMethodName, "", ""},
			{worker[:len(worker)-4] + "AAAA", lessorv1.TaskService_GetTask_FullMethodName, "", ""},
			{producer[:len(producer)-4] + "AAAA", lessorv1.TaskService_GetTask_FullMethodName, "", ""},
		} {
			before := len(r.AuditEvents(ctx, t, wiretest.WholeAudit()))
			if err := r.Invoke(wiretest.WithToken(t.Context(), tt.who), tt.method); err == nil {
				t.Errorf("%s was not refused", tt.method)
			}
			events := r.AuditEvents(ctx, t, wiretest.WholeAudit())[before:]
			switch {
			case tt.code == "":
				if len(events) > 0 {
					t.Errorf("%s: the audit has %v, want no entry", tt.method, events)
				}
			case len(events) != 1:
				t.Errorf("%s: %d entries, want one", tt.method, len(events))
			default:
				e := events[0]
				if e.GetOutcome() != tt.code || e.GetAction() != path.Base(tt.method) || e.GetTimes() != 1 || tt.credential != "" && e.GetCredentialId() != tt.credential {
					t.Errorf("%s: the entry is %v, want %s of credential %s", tt.method, e, tt.code, tt.credential)
				}
			}
		}
	})
}

// X4, X5: calls that no quota refuses do not fill the audit if they have no effect. Those that have
// one outside the store leave an entry each.
func TestCallsWithoutEffectDoNotFillTheAudit(t *testing.T) {
	t.Attr("rules", "X4 X5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, gate.DefaultTenant, auth.Operator)
		ctx := wiretest.WithToken(t.Context(), token)
		_, old := r.Issue(t, gate.DefaultTenant, auth.Viewer)
		made, err := r.Tasks.SubmitTask(ctx, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
		if err != nil {
			t.Fatal(err)
		}
		r.WithToken(token).OpenSession(t, "w", 1)
		tokens := lessorv1.NewAuthServiceClient(r.Conn)
		const calls = 100
		for _, tt := range []struct {
			what    string
			call    func() error
			entries int
		}{
			{"DrainWorker", func() error {
				return wiretest.ErrOf(r.Admin.DrainWorker(ctx, &lessorv1.DrainWorkerRequest{WorkerId: "w"}))
			}, calls},
			{"CancelTask", func() error {
				return wiretest.ErrOf(r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: made.GetTask().GetTaskId()}))
			}, 3}, // the one that cancels, the first of the others, and the sum of those
			{"BatchCancelTasks", func() error {
				return wiretest.ErrOf(r.Tasks.BatchCancelTasks(ctx,
					&lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{Queue: "none"}}))
			}, 2},
			{"RevokeToken", func() error {
				return wiretest.ErrOf(tokens.RevokeToken(ctx, &lessorv1.RevokeTokenRequest{TokenId: old}))
			}, 3},
		} {
			for range calls {
				if err := tt.call(); err != nil {
					t.Fatalf("%s: %v", tt.what, err)
				}
			}
			time.Sleep(time.Minute)
			synctest.Wait()
			all, sum := r.AuditEvents(ctx, t, &lessorv1.ListAuditEventsRequest{Action: tt.what}), uint64(0)
			for _, e := range all {
				sum += max(e.GetTimes(), 1)
				if e.GetOutcome() != records.OutcomeOK || e.GetCredentialId() != id {
					t.Errorf("%s: the entry %v is not of the caller", tt.what, e)
				}
			}
			if len(all) != tt.entries || sum != calls {
				t.Errorf("%s: %d entries about %d calls, want %d about %d", tt.what, len(all), sum, tt.entries, calls)
			}
		}
	})
}

// X4: the audit contains no part of a token, no payload and no output. The details of very large
// requests are cut off.
func TestNoSecretInTheAudit(t *testing.T) {
	t.Attr("rules", "X4")
	st := memstore.New()
	wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}, HostTenant: gate.DefaultTenant, Sessions: wiretest.NoHeartbeats.Sessions}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
		ctx := wiretest.WithToken(t.Context(), token)
		r.Token = token
		all := auditedCalls(ctx, t, r)
		r.OpenSession(t, "w", 1)
		for _, d := range all {
			if err := d.call(ctx); err != nil {
				t.Fatalf("%s: %v", d.method, err)
			}
		}
		large := strings.Repeat("ä", 300<<10)
		_, _ = r.Tasks.CancelTask(ctx, &lessorv1.CancelTaskRequest{TaskId: large, Reason: large, RequestId: large})
		viewer, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
		_, _ = r.Tasks.SubmitTask(wiretest.WithToken(t.Context(), viewer),
			&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", Payload: []byte("classified")}})
		secrets := slices.Concat([]string{"classified"}, strings.Split(token, ".")[1:], strings.Split(viewer, ".")[1:])
		entries := 0
		err := st.View(func(rd store.Reader) error {
			return rd.Scan(store.Audit, nil, nil, func(_, value []byte) bool {
				entries++
				for _, secret := range secrets {
					if strings.Contains(string(value), secret) {
						t.Errorf("the audit has the secret %s in %q", secret, value)
					}
				}
				if len(value) > 4<<10 {
					t.Errorf("an entry has %d bytes, want at most %d", len(value), 4<<10)
				}
				return true
			})
		})
		if err != nil || entries != len(all)+2 {
			t.Errorf("the audit has %d entries (%v), want %d", entries, err, len(all)+2)
		}
	})
}
