package coordinator_test

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// Limits of package preauth: maxCallsOfPeer is how many calls of one address may wait for their
// message without a good credential, and maxCallTime is how long each of them may wait.
const (
	maxCallsOfPeer = 32
	maxCallTime    = 10 * time.Second
)

// beginCall opens a call and sends no message. The channel gets the error with which the call ends.
func beginCall(ctx context.Context, t *testing.T, r *wiretest.Rig, method string) <-chan error {
	t.Helper()
	stream, err := r.Conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method)
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		for err == nil { // Health.Watch sends a message first
			err = stream.RecvMsg(&emptypb.Empty{})
		}
		ended <- err
	}()
	return ended
}

// countEnds counts the calls that have ended since the last count, by status code.
func countEnds(all []<-chan error) map[codes.Code]int {
	synctest.Wait()
	n := map[codes.Code]int{}
	for _, one := range all {
		select {
		case err := <-one:
			n[status.Code(err)]++
		default:
		}
	}
	return n
}

// X5: a call without a good credential is refused before its message has arrived, unless the audit
// gets something of it.
func TestCallsAreRefusedBeforeTheirMessage(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.IssueFor(t, "acme", auth.Operator, time.Second)
		time.Sleep(time.Second)
		all := []<-chan error{
			beginCall(t.Context(), t, r, lessorv1.TaskService_SubmitTask_FullMethodName),
			beginCall(t.Context(), t, r, lessorv1.TaskService_CancelTask_FullMethodName),
			beginCall(wiretest.WithToken(t.Context(), token), t, r, lessorv1.TaskService_SubmitTask_FullMethodName),
		}
		if n := countEnds(all); n[codes.Unauthenticated] != len(all) {
			t.Errorf("calls that ended at once: %v, want %d with UNAUTHENTICATED", n, len(all))
		}
		// callers without a credential do not wait for room
		if _, err := r.SubmitLimiter.Take(t.Context(), "", *coordinator.MostSubmitBytes); err != nil {
			t.Fatal(err)
		}
		if n := countEnds([]<-chan error{beginCall(t.Context(), t, r, lessorv1.TaskService_SubmitTask_FullMethodName)}); n[codes.Unauthenticated] != 1 {
			t.Errorf("a call while the room for submits is full: %v, want UNAUTHENTICATED", n)
		}
	})
}

// X5: an address may have only a limited number of calls without a good credential whose message
// has not arrived, and each of them only for a limited time. Further calls are refused at once.
// Calls with a good credential, and calls of the health service, are not affected.
func TestUnauthenticatedCallsAreBounded(t *testing.T) {
	t.Attr("rules", "X5")
	for what, tt := range map[string]struct {
		method  string
		lasting int // how many calls do not end after maxCallTime
	}{
		"a health check":   {healthv1.Health_Check_FullMethodName, 0},
		"a health watch":   {healthv1.Health_Watch_FullMethodName, maxCallsOfPeer},
		"an expired token": {"expired", 0},
	} {
		t.Run(what, func(t *testing.T) {
			wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
				ctx, method := t.Context(), tt.method
				if method == "expired" {
					token, _ := r.IssueFor(t, "acme", auth.Operator, time.Second)
					// its refusal is audited, so its message is read
					ctx, method = wiretest.WithToken(ctx, token), lessorv1.TaskService_CancelTask_FullMethodName
					time.Sleep(time.Second)
				}
				const more = 10
				var all []<-chan error
				for range maxCallsOfPeer + more {
					all = append(all, beginCall(ctx, t, r, method))
				}
				if n := countEnds(all); n[codes.ResourceExhausted] != more || len(n) != 1 {
					t.Errorf("calls that ended at once: %v, want %d with RESOURCE_EXHAUSTED", n, more)
				}
				token, _ := r.Issue(t, "acme", auth.Operator)
				var good []<-chan error
				for range maxCallsOfPeer + more {
					good = append(good, beginCall(wiretest.WithToken(t.Context(), token), t, r,
						lessorv1.TaskService_SubmitTask_FullMethodName))
				}
				if n := countEnds(good); len(n) != 0 {
					t.Errorf("good calls have ended: %v", n)
				}
				if method == lessorv1.TaskService_CancelTask_FullMethodName {
					if _, err := r.Health.Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
						t.Errorf("health: %v", err)
					}
				}
				time.Sleep(maxCallTime)
				if n := countEnds(all); n[codes.DeadlineExceeded] != maxCallsOfPeer-tt.lasting {
					t.Errorf("calls that ended after %v: %v, want %d with DEADLINE_EXCEEDED",
						maxCallTime, n, maxCallsOfPeer-tt.lasting)
				}
				if n := countEnds(good); len(n) != 0 {
					t.Errorf("good calls have ended: %v", n)
				}
				again := []<-chan error{beginCall(ctx, t, r, method)}
				if n := countEnds(again); n[codes.ResourceExhausted] != tt.lasting/maxCallsOfPeer {
					t.Errorf("a later call ended with %v, want %d with RESOURCE_EXHAUSTED", n, tt.lasting/maxCallsOfPeer)
				}
			})
		})
	}
}

// X3: if a credential ends before the message of a call has arrived, the call is refused.
func TestCredentialEndsBeforeTheMessage(t *testing.T) {
	t.Attr("rules", "X3")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, "acme", auth.Operator)
		stream, err := r.Conn.NewStream(wiretest.WithToken(t.Context(), token), &grpc.StreamDesc{ClientStreams: true},
			lessorv1.TaskService_SubmitTask_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // until its headers have arrived
		if _, err := r.Gate.Keyring().Revoke(t.Context(), "acme", id, "ann", time.Now()); err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
			t.Fatal(err)
		}
		_ = stream.CloseSend()
		if err := stream.RecvMsg(&lessorv1.SubmitTaskResponse{}); wiretest.ProblemOf(err) != string(auth.Revoked) {
			t.Errorf("the call ended with %v, want a refusal because the credential is revoked", err)
		}
	})
}

// X5: the limit of connections holds for both listeners together.
func TestListenersShareTheConnectionLimit(t *testing.T) {
	t.Attr("rules", "X5")
	co, err := coordinator.New(memstore.New(),
		coordinator.Config{Version: "test", Logger: slog.New(slog.DiscardHandler), Connections: preauth.Connections{Most: 1}})
	if err != nil {
		t.Fatal(err)
	}
	var listeners [2]net.Listener
	for i := range listeners {
		if listeners[i], err = new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0"); err != nil {
			t.Fatal(err)
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	served := make(chan error)
	go func() { served <- co.Serve(ctx, listeners[0], listeners[1]) }()
	connect := func(lis net.Listener) net.Conn {
		conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", lis.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		if err := conn.SetDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		return conn
	}
	in := connect(listeners[1])
	if _, err := io.WriteString(in, "GET /healthz HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	if _, err := in.Read(make([]byte, 1)); err != nil {
		t.Fatalf("the first connection: %v", err)
	}
	out := connect(listeners[0])
	if _, err := out.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("a connection over the limit reads %v, want EOF", err)
	}
	stop()
	if err := errors.Join(in.Close(), out.Close(), <-served); err != nil {
		t.Error(err)
	}
}
