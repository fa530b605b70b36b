package coordinator_test

import (
	"bufio"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// introduction is how long a connection has to show a valid credential before it makes room for any
// other; see package preauth.
const introduction = 2 * time.Second

// onlyOne is the configuration of a coordinator that requires credentials and has room for one
// connection.
var onlyOne = coordinator.Config{Auth: &gate.Auth{}, Connections: preauth.Connections{Most: 1}}

// X5: with as many connections as there may be, one over gRPC makes room for another unless a call
// on it has shown a valid credential. A health check shows none, nor does a call that is refused.
func TestGRPCConnectionsMakeRoom(t *testing.T) {
	t.Attr("rules", "X5")
	for what, tt := range map[string]struct {
		call func(t *testing.T, r *wiretest.Rig, on *grpc.ClientConn)
		stay bool
	}{
		"a health check": {call: func(t *testing.T, _ *wiretest.Rig, on *grpc.ClientConn) {
			if _, err := healthv1.NewHealthClient(on).Check(t.Context(), &healthv1.HealthCheckRequest{}); err != nil {
				t.Error(err)
			}
		}},
		"a bad token": {call: func(t *testing.T, _ *wiretest.Rig, on *grpc.ClientConn) {
			wantStatusOf(t, on, "lsr_x.y.z", codes.Unauthenticated)
		}},
		"a good token": {call: func(t *testing.T, r *wiretest.Rig, on *grpc.ClientConn) { wantStatusOf(t, on, r.Token, codes.OK) }, stay: true},
		"a session": {call: func(t *testing.T, r *wiretest.Rig, on *grpc.ClientConn) {
			stream, err := lessorv1.NewWorkerServiceClient(on).Session(wiretest.WithToken(t.Context(), r.Token))
			if err != nil {
				t.Fatal(err)
			}
			go func() { _, _ = stream.Recv() }()
		}, stay: true},
	} {
		t.Run(what, func(t *testing.T) {
			wiretest.ServeWith(t, nil, onlyOne, func(t *testing.T, r *wiretest.Rig) {
				r.Token, _ = r.Issue(t, "acme", auth.Operator)
				tt.call(t, r, r.Conn)
				synctest.Wait()
				time.Sleep(introduction)
				next := wiretest.Dial(t, r.Listener)
				want := codes.OK
				if tt.stay {
					want = codes.Unavailable
				}
				wantStatusOf(t, next, r.Token, want)
				_ = next.Close()
			})
		})
	}
}

// wantStatusOf makes a call with a token, and checks its status.
func wantStatusOf(t *testing.T, on *grpc.ClientConn, token string, want codes.Code) {
	t.Helper()
	if _, err := lessorv1.NewAdminServiceClient(on).GetStatus(wiretest.WithToken(t.Context(), token), &lessorv1.GetStatusRequest{}); status.Code(err) != want {
		t.Errorf("the call ends with %v, want %v", err, want)
	}
}

// A coordinator that requires no credentials closes no connection for another.
func TestWithoutAuthNobodyMakesRoom(t *testing.T) {
	wiretest.ServeWith(t, nil, coordinator.Config{Connections: onlyOne.Connections}, func(t *testing.T, r *wiretest.Rig) {
		silent, err := r.Listener.DialContext(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		time.Sleep(introduction)
		next := wiretest.Dial(t, r.Listener)
		wantStatusOf(t, next, "", codes.Unavailable)
		_, _ = next.Close(), silent.Close()
	})
}

// X5: the same over HTTP, where a task token is a valid credential, too, and so is a token in the
// form that browsers send.
func TestHTTPConnectionsMakeRoom(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.ServeWith(t, nil, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
		token, _ := r.Issue(t, "acme", auth.Operator)
		work := r.Web(t).SubmitAndLease(token, "q")
		limiter := preauth.NewConnLimiter(preauth.Connections{Most: 1, MostOfPeer: 1}, true, slog.New(slog.DiscardHandler))
		lis := make(pipeListener)
		served := make(chan error)
		go func() { served <- r.HTTP.Serve(limiter.Listener(lis)) }()
		beat := fmt.Sprintf("POST /v1/tasks/%s/heartbeat HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\nAuthorization: Bearer %%s\r\n\r\n{\"attempt\": 1}", work.ID)
		for what, tt := range map[string]struct {
			request string
			status  int
			stays   bool
		}{
			"a health check":        {get("/readyz", ""), http.StatusOK, false},
			"no token":              {get("/metrics", ""), http.StatusUnauthorized, false},
			"a bad token":           {get("/metrics", "Bearer lsr_x.y.z"), http.StatusUnauthorized, false},
			"a bad task token":      {fmt.Sprintf(beat, "lst_x"), http.StatusUnauthorized, false},
			"a good token":          {get("/metrics", "Bearer "+token), http.StatusOK, true},
			"a token in a call":     {get("/v1/tasks/"+work.ID, "Bearer "+token), http.StatusOK, true},
			"a token as a password": {get("/ui/", "Basic "+base64.StdEncoding.EncodeToString([]byte("ann:"+token))), http.StatusOK, true},
			"a task token":          {fmt.Sprintf(beat, work.Token), http.StatusOK, true},
		} {
			first := lis.dial(t)
			if got := ask(t, first, tt.request); got != tt.status {
				t.Errorf("%s: status %d, want %d", what, got, tt.status)
			}
			time.Sleep(introduction)
			second := lis.dial(t)
			_ = second.SetReadDeadline(time.Now().Add(time.Second))
			if _, err := second.Read(make([]byte, 1)); errors.Is(err, io.EOF) != tt.stays {
				t.Errorf("%s: another connection reads %v, want that it is refused: %t", what, err, tt.stays)
			}
			_, _ = first.Close(), second.Close()
			synctest.Wait()
		}
		_ = r.HTTP.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
}

// get returns an HTTP request with this header Authorization, or without one.
func get(path, credential string) string {
	if credential != "" {
		credential = "Authorization: " + credential + "\r\n"
	}
	return "GET " + path + " HTTP/1.1\r\nHost: x\r\n" + credential + "\r\n"
}

// ask sends an HTTP request and returns the status of the answer, which it reads to its end.
func ask(t *testing.T, on net.Conn, request string) int {
	t.Helper()
	if _, err := io.WriteString(on, request); err != nil {
		t.Fatal(err)
	}
	res, err := http.ReadResponse(bufio.NewReader(on), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	if _, err := io.Copy(io.Discard, res.Body); err != nil {
		t.Fatal(err)
	}
	return res.StatusCode
}

// pipeListener is a listener for connections in memory. Unlike those of bufconn they notice when a
// read deadline is cleared.
type pipeListener chan net.Conn

func (l pipeListener) Accept() (net.Conn, error) {
	if conn, ok := <-l; ok {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (l pipeListener) Close() error {
	close(l)
	return nil
}

func (pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (l pipeListener) dial(t *testing.T) net.Conn {
	conn, other := net.Pipe()
	t.Cleanup(func() { _, _ = conn.Close(), other.Close() })
	l <- conn
	return other
}
