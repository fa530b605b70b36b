package gate

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/audit"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// A panic in the handler of a stream reaches the interceptor that recovers panics, with the stack
// of the handler.
func TestPanicOfAStream(t *testing.T) {
	defer func() {
		if p, ok := recover().(string); !ok || !strings.Contains(p, "dropped") || !strings.Contains(p, "TestPanicOfAStream") {
			t.Errorf("recovered %q, want the panic with its stack", p)
		}
	}()
	_ = runUntilRevoked(t.Context(), func() error { panic("dropped") })
}

// If the client leaves, the gate waits for the handler, which must not use the stream after its
// end. If the credential has ended, the gate waits only for a short time.
func TestGateWaitsForTheHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for cause, want := range map[error]time.Duration{context.Canceled: time.Minute, &auth.Error{Problem: auth.Revoked}: handlerGrace} {
			ctx, end := context.WithCancelCause(t.Context())
			end(cause)
			begin := time.Now()
			_ = runUntilRevoked(ctx, func() error { time.Sleep(time.Minute); return nil })
			if took := time.Since(begin); took != want {
				t.Errorf("%v: waited for %v, want %v", cause, took, want)
			}
			time.Sleep(time.Minute)
		}
	})
}

// fakeAudit is an engine that keeps the entries of the audit, or fails.
type fakeAudit struct {
	outcomes []string
	err      error
}

func (f *fakeAudit) Record(a records.Audit) error {
	if f.err == nil {
		f.outcomes = append(f.outcomes, a.Action+" "+a.Outcome)
	}
	return f.err
}

func (*fakeAudit) Keep(context.Context, string, func(*store.Batch)) error { return nil }
func (*fakeAudit) Now() lease.Now                                         { return lease.Now{} }

// newGate returns a gate with these quotas, and its audit. With credentials, it has a token of a
// viewer of acme too.
func newGate(t *testing.T, quotas quota.Config, required bool) (g *Gate, said *fakeAudit, token string) {
	t.Helper()
	d, said := newDeps(quotas)
	if required {
		d.Auth = &Auth{}
	}
	g, err := New(d)
	if err == nil && required {
		token, _, err = g.Keyring().Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Viewer, Subject: "v"}, time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	return g, said, token
}

// newDeps returns what a gate that requires no credentials needs, and its audit.
func newDeps(quotas quota.Config) (Deps, *fakeAudit) {
	st, said := memstore.New(), &fakeAudit{}
	return Deps{
		Store: st, Host: DefaultTenant, Quotas: quota.New(quotas, func(quota.Caller, *quota.Error, bool) {}),
		Trail: audit.New(said, st, audit.DefaultRetention, slog.New(slog.DiscardHandler)),
		Keep: func(_ context.Context, _, _ string, put func(*store.Batch)) error {
			var b store.Batch
			put(&b)
			return st.Commit(context.Background(), &b)
		},
		OpenToken: func(context.Context, string) (context.Context, TaskToken, bool) {
			return nil, TaskToken{}, false
		},
	}, said
}

// unread is a store that cannot be read.
type unread struct{ store.Store }

func (unread) View(func(store.Reader) error) error { return errors.New("damaged") }

// X1: a gate refuses callers without a certificate if its settings say so. If the credentials
// cannot be read there is no gate, because a gate without them would admit everybody.
func TestNewGate(t *testing.T) {
	t.Attr("rules", "X1")
	d, _ := newDeps(quota.Config{})
	d.Auth = &Auth{RequireCertificate: true}
	g, err := New(d)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := g.Keyring().Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Operator, Subject: "ann"},
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	info := &grpc.UnaryServerInfo{FullMethod: lessorv1.AdminService_GetStatus_FullMethodName}
	_, err = g.Unary(callWith(t, token), nil, info, func(context.Context, any) (any, error) { return nil, nil })
	if code := refusal.CodeOf(err); code != refusal.CodeCertificate {
		t.Errorf("a call with a token and without a certificate: %v, want %s", err, refusal.CodeCertificate)
	}
	d.Store = unread{d.Store}
	if g, err := New(d); g != nil || err == nil {
		t.Errorf("the gate is %v (%v) although the credentials cannot be read, want none", g, err)
	}
}

// X3: the gate watches the credential of a Lease, a stream and a request over HTTP until their end,
// and no longer.
func TestCredentialIsWatchedUntilTheEnd(t *testing.T) {
	t.Attr("rules", "X3")
	g, _, _ := newGate(t, quota.Config{}, true)
	token, _, err := g.Keyring().Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Operator, Subject: "ann"},
		time.Now())
	if err != nil {
		t.Fatal(err)
	}
	ctx := callWith(t, token)
	watched := 0
	for name, call := range map[string]func() error{
		"Lease": func() error {
			_, err := g.Unary(ctx, nil, &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Lease_FullMethodName}, func(context.Context, any) (any, error) {
				watched = len(g.calls.calls)
				return nil, nil
			})
			return err
		},
		"stream": func() error {
			info := &grpc.StreamServerInfo{FullMethod: lessorv1.TaskService_WatchTask_FullMethodName}
			return g.Stream(nil, &fakeStream{ctx: ctx}, info, func(any, grpc.ServerStream) error {
				watched = len(g.calls.calls)
				return nil
			})
		},
		"request": func() error {
			_, leave, err := g.Admit(ctx, "GET /v1/tasks/{task_id}/events", "t")
			watched = len(g.calls.calls)
			leave()
			return err
		},
	} {
		watched = 0
		if err := call(); err != nil || watched != 1 || len(g.calls.calls) != 0 {
			t.Errorf("%s: %d credentials are watched in the call, and %d after its end (%v), want 1 and 0",
				name, watched, len(g.calls.calls), err)
		}
	}
}

// callWith returns the context of a call with a token.
func callWith(t *testing.T, token string) context.Context {
	t.Helper()
	ctx := peer.NewContext(t.Context(), &peer.Peer{Addr: &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1)}})
	return metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", "Bearer "+token))
}

// X4: a call that changed nothing succeeds only if its entry was written. A refusal gets an entry,
// but an error that is no refusal does not.
func TestAuditOfACall(t *testing.T) {
	t.Attr("rules", "X4")
	info := &grpc.UnaryServerInfo{FullMethod: lessorv1.AdminService_PurgeQueue_FullMethodName}
	for code, want := range map[codes.Code]string{
		codes.OK: "PurgeQueue OK", codes.NotFound: "PurgeQueue E.WHY", codes.Unavailable: "", codes.Canceled: "",
		codes.DeadlineExceeded: "",
		codes.Internal:         "", codes.Unknown: "",
	} {
		for _, fails := range []error{nil, errors.New("stopped")} {
			g, said, _ := newGate(t, quota.Config{}, false)
			said.err = fails
			_, err := g.Unary(t.Context(), &lessorv1.PurgeQueueRequest{}, info, func(context.Context, any) (any, error) {
				return nil, refusal.New(code, "E.WHY", "", nil)
			})
			if got := strings.Join(said.outcomes, ", "); fails == nil && (!strings.HasPrefix(got, want) || want == "" && got != "") {
				t.Errorf("%v: the audit has %q, want %q", code, got, want)
			}
			if (err == nil) != (code == codes.OK && fails == nil) {
				t.Errorf("%v, with an audit that returns %v: %v", code, fails, err)
			}
		}
	}
}

// fakeStream is a stream that keeps what was sent, and always has a message to receive.
type fakeStream struct {
	grpc.ServerStream
	ctx  context.Context //nolint:containedctx // Context returns it
	sent int
}

func (w *fakeStream) Context() context.Context { return w.ctx }
func (w *fakeStream) SendMsg(any) error        { w.sent++; return nil }
func (*fakeStream) RecvMsg(any) error          { return nil }

// X4: nothing of a backup is sent before its entry is written. A backup has one entry, whenever it
// fails.
func TestAuditOfABackup(t *testing.T) {
	t.Attr("rules", "X4")
	denied := refusal.New(codes.NotFound, "E.WHY", "", nil)
	for name, c := range map[string]struct {
		handle func(grpc.ServerStream) error
		fails  error
		sent   int
		audit  string
	}{
		"sent":            {func(s grpc.ServerStream) error { return errors.Join(s.SendMsg(1), s.SendMsg(2)) }, nil, 2, "Backup OK"},
		"fails in it":     {func(s grpc.ServerStream) error { _ = s.SendMsg(1); return denied }, nil, 1, "Backup OK"},
		"fails before it": {func(grpc.ServerStream) error { return denied }, nil, 0, "Backup E.WHY"},
		"no entry":        {func(s grpc.ServerStream) error { return s.SendMsg(1) }, errors.New("stopped"), 0, ""},
	} {
		g, said, _ := newGate(t, quota.Config{}, false)
		said.err = c.fails
		w := &fakeStream{ctx: t.Context()}
		err := g.Stream(nil, w, &grpc.StreamServerInfo{FullMethod: lessorv1.AdminService_Backup_FullMethodName}, func(_ any, s grpc.ServerStream) error {
			return c.handle(s)
		})
		got := strings.Join(said.outcomes, ", ")
		if w.sent != c.sent || !strings.HasPrefix(got, c.audit) || strings.Contains(got, ",") || (err == nil) != (name == "sent") {
			t.Errorf("%s: %d messages, the audit has %q, %v", name, w.sent, got, err)
		}
	}
}

// X3: a message that comes after the end of the credential reaches no handler.
func TestNoMessageAfterTheEnd(t *testing.T) {
	t.Attr("rules", "X3")
	ctx, end := context.WithCancelCause(t.Context())
	s := &admitted{ServerStream: &fakeStream{}, ctx: ctx, perTurn: 1}
	if err := s.RecvMsg(nil); err != nil {
		t.Error(err)
	}
	end(&auth.Error{Problem: auth.Revoked})
	if code := status.Code(s.RecvMsg(nil)); code != codes.Unauthenticated {
		t.Errorf("a message after the end: %v", code)
	}
}

// X5: a call that its caller may not make counts against the quota of the caller.
func TestForbiddenCallsCount(t *testing.T) {
	t.Attr("rules", "X5")
	g, said, token := newGate(t, quota.Config{Tenant: quota.Limits{Calls: quota.Rate{PerSecond: 1, Burst: 2}}}, true)
	info := &grpc.UnaryServerInfo{FullMethod: lessorv1.TaskService_SubmitTask_FullMethodName}
	for _, want := range []codes.Code{codes.PermissionDenied, codes.PermissionDenied, codes.ResourceExhausted} {
		_, err := g.Unary(callWith(t, token), &lessorv1.SubmitTaskRequest{}, info, nil)
		if status.Code(err) != want {
			t.Errorf("%v, want %v", err, want)
		}
	}
	if len(said.outcomes) != 1 { // the second is in the sum at the end of the minute
		t.Errorf("the audit has %v", said.outcomes)
	}
}

// X3, X5: calls with a revoked token are charged to nobody. So whoever has the token cannot use up
// the quota of its tenant, and is always told that it was revoked.
func TestRevokedTokenUsesNoQuota(t *testing.T) {
	t.Attr("rules", "X3 X5")
	one := quota.Limits{Calls: quota.Rate{PerSecond: 1.0 / 3600}}
	g, _, good := newGate(t, quota.Config{Tenant: one, Credential: one}, true)
	bad, issued, err := g.Keyring().Create(t.Context(), auth.Request{Tenant: "acme", Role: auth.Viewer, Subject: "old"},
		time.Now())
	if err == nil {
		_, err = g.Keyring().Revoke(t.Context(), "acme", issued.ID, "ann", time.Now())
	}
	if err != nil {
		t.Fatal(err)
	}
	const method = lessorv1.TaskService_GetTask_FullMethodName
	for range 3 {
		_, unary := g.Unary(callWith(t, bad), nil, &grpc.UnaryServerInfo{FullMethod: method}, nil)
		stream := g.Stream(nil, &fakeStream{ctx: callWith(t, bad)},
			&grpc.StreamServerInfo{FullMethod: lessorv1.TaskService_WatchTask_FullMethodName}, nil)
		_, _, route := g.Admit(callWith(t, bad), "GET /v1/tasks/{task_id}", "t")
		_, _, page := g.Request(callWith(t, bad), "/metrics", auth.Viewer, true)
		for _, err := range []error{unary, stream, route, page} {
			if status.Code(err) != codes.Unauthenticated {
				t.Errorf("a call with a revoked token: %v, want UNAUTHENTICATED", err)
			}
		}
	}
	_, err = g.Unary(callWith(t, good), nil, &grpc.UnaryServerInfo{FullMethod: method},
		func(context.Context, any) (any, error) { return nil, nil })
	if err != nil {
		t.Errorf("a call with a good token after those: %v", err)
	}
}

// X4: an audited call that its caller may not make leaves an entry even if a quota refuses it.
func TestForbiddenCallOverItsQuotaIsAudited(t *testing.T) {
	t.Attr("rules", "X4")
	g, said, token := newGate(t, quota.Config{Tenant: quota.Limits{Calls: quota.Rate{PerSecond: 1.0 / 3600}}}, true)
	for _, method := range []string{lessorv1.TaskService_SubmitTask_FullMethodName, lessorv1.TaskService_DeleteTask_FullMethodName} {
		_, err := g.Unary(callWith(t, token), nil, &grpc.UnaryServerInfo{FullMethod: method}, nil)
		if err == nil {
			t.Errorf("%s: a viewer made the call", method)
		}
	}
	if got, want := strings.Join(said.outcomes, ", "), "SubmitTask E.AUTH.FORBIDDEN, DeleteTask E.QUOTA.CALLS"; got != want {
		t.Errorf("the audit has %q, want %q", got, want)
	}
}

// X3, X5: a request over HTTP ends with its credential. Guesses at a task token are paced like
// those at other credentials.
func TestRequestsOverHTTP(t *testing.T) {
	t.Attr("rules", "X3 X5")
	synctest.Test(t, func(t *testing.T) {
		g, _, token := newGate(t, quota.Config{}, true)
		in, leave, err := g.Admit(callWith(t, token), "GET /v1/tasks/{task_id}/events", "t")
		if err != nil {
			t.Fatal(err)
		}
		defer leave()
		if _, err := g.Keyring().Revoke(t.Context(), "acme", Identify(in).Credential, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		if auth.Ended(in) == nil {
			t.Error("a request goes on after the end of its credential")
		}
		begin := time.Now()
		for range attemptBurst + 1 {
			if _, _, err := g.Admit(callWith(t, "guess"), "POST /v1/tasks/{task_id}/started", "t"); status.Code(err) != codes.Unauthenticated {
				t.Fatal(err)
			}
		}
		if time.Since(begin) == 0 {
			t.Error("guesses at a task token are not paced")
		}
	})
}

// H1: a request for a callback without a task token is told which header to send; one with a wrong
// task token is told that the token is wrong, and one with a credential in its place that it is
// none, whether the credential is good or not.
func TestTaskTokenIsAskedFor(t *testing.T) {
	t.Attr("rules", "H1")
	g, _, _ := newGate(t, quota.Config{}, true)
	for header, want := range map[string]string{
		"": "send the header Authorization", "Basic dTpw": "send the header Authorization", "Bearer lst_x": "was not issued by this coordinator",
		"Bearer lsr_x": "is a credential, not the task token",
	} {
		ctx := t.Context()
		if header != "" {
			ctx = metadata.NewIncomingContext(ctx, metadata.Pairs("authorization", header))
		}
		_, _, err := g.Admit(ctx, "POST /v1/tasks/{task_id}/started", "t")
		if status.Code(err) != codes.Unauthenticated || !strings.Contains(err.Error(), want) {
			t.Errorf("header %q: error %v, want UNAUTHENTICATED with %q", header, err, want)
		}
	}
}

// The page token of a bulk call says nothing to people, so it is not in the audit.
func TestDetailOfAnEntry(t *testing.T) {
	a := newEntry(t.Context(), everyone, lessorv1.TaskService_BatchCancelTasks_FullMethodName, &lessorv1.BatchCancelTasksRequest{
		Filter: &lessorv1.TaskFilter{WorkspaceId: "ws", Queue: "q"}, PageToken: "page", RequestId: "r",
	})
	if a.Workspace != "ws" || a.Corr != "r" || !strings.Contains(a.Detail, `"q"`) || strings.Contains(a.Detail, "page") {
		t.Errorf("%+v", a)
	}
}
