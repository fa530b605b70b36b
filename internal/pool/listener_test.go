package pool

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

const testToken = "token-of-the-tests-0123456789"

// locked is a buffer for many writers.
type locked struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.String()
}

// site is a supervisor that serves two pools, gpu with one worker on GPU 3 and p with two. The
// worker p-1 has no process; the others are starting.
type site struct {
	*testing.T
	*Supervisor
	url    string
	client *http.Client
	grpc   *grpc.ClientConn
}

func newSite(t *testing.T) *site {
	t.Helper()
	config, err := Parse([]byte("pools:\n- {id: p, command: [sh], ready_timeout: 1m, workers: 2}\n- {id: gpu, command: [sh], ready_timeout: 1m, gpus: [3]}\n"))
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	log := &locked{}
	s := &site{T: t, url: "http://" + l.Addr().String(), client: &http.Client{Transport: &http.Transport{}}}
	s.Supervisor = New(config, Options{
		Token: testToken, URL: s.url, Output: io.Discard,
		Log: slog.New(slog.NewJSONHandler(log, nil)),
	})
	s.begin("p-0", "gpu-3")
	s.get("p-1").noteStopped(ending{})
	s.grpc, err = grpc.NewClient("passthrough:///"+l.Addr().String(), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	server := s.serve(l, func() {})
	t.Cleanup(func() {
		_ = s.grpc.Close()
		s.client.CloseIdleConnections()
		if err := server.close(); err != nil {
			t.Error(err)
		}
		s.hides("the log", log.String())
	})
	return s
}

func (s *site) get(id string) *worker {
	for _, p := range s.pools {
		if w := p.worker(id); w != nil {
			return w
		}
	}
	return nil
}

// begin gives workers a new process.
func (s *site) begin(ids ...string) {
	for _, id := range ids {
		s.get(id).noteStarting()
		s.get(id).noteStarted(7)
	}
}

// hides checks P2: the token is nowhere but where the processes get it.
func (s *site) hides(where, text string) {
	s.Helper()
	if strings.Contains(text, testToken) {
		s.Errorf("%s has the token: %s", where, text)
	}
}

// send returns the status of an answer, its header and its body.
func (s *site) send(method, path, body string, authorization ...string) (int, http.Header, string) {
	s.Helper()
	req, err := http.NewRequestWithContext(s.Context(), method, s.url+path, strings.NewReader(body))
	if err != nil {
		s.Fatal(err)
	}
	req.Header["Authorization"] = authorization
	resp, err := s.client.Do(req)
	if err != nil {
		s.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		s.Fatal(err)
	}
	s.hides("the answer", fmt.Sprint(resp.Header, string(text)))
	return resp.StatusCode, resp.Header, string(text)
}

// posts sends a notification with the token, and checks the answer: {}, or an error that begins
// with problem.
func (s *site) posts(path, body string, code int, problem string) {
	s.Helper()
	want := "{}\n"
	if problem != "" {
		want = `{"error":"` + problem
	}
	got, header, text := s.send(http.MethodPost, path, body, "Bearer "+testToken)
	if got != code || !strings.HasPrefix(text, want) || header.Get("Content-Type") != "application/json" {
		s.Errorf("%s %.300s: %d %s, want %d %s", path, body, got, text, code, want)
	}
}

const (
	readyPath  = "/v2/internal/workers/ready"
	failedPath = "/v2/internal/workers/p-0/failed"
)

// readyBody returns a ready notification of p-0 with more fields, or with other values of its
// fields.
func readyBody(fields string) string {
	body := ""
	for _, field := range []string{`,"worker_id":"p-0"`, `,"pool_id":"p"`, `,"status":"ready"`, `,"vram_used_bytes":5`} {
		if name, _, _ := strings.Cut(field, ":"); !strings.Contains(fields, name+":") {
			body += field
		}
	}
	return "{" + strings.TrimPrefix(body+fields, ",") + "}"
}

// A ready notification is answered with 200, or with 400 and its wrong field, or 409.
func TestReadyByHTTP(t *testing.T) {
	t.Attr("rules", "P2 P3")
	s := newSite(t)
	text := func(n int) string { return strings.Repeat("x", n) }
	for _, test := range []struct {
		body    string
		code    int
		problem string
	}{
		{readyBody(""), 200, ""},
		{`{"worker_id":"p-0","pool_id":"p","status":"draining"}`, 200, ""},
		{readyBody(`,"endpoint":"http://127.0.0.1:1","capabilities":{"gpu_device":9,"slots_total":4,"model_ref":"m","engine_version":"1"}`), 200, ""},
		{readyBody(`,"capabilities":null`), 200, ""},
		{readyBody(`,"endpoint":"http://h/\ud83d\ude00\ufffd` + "\ufffd" + `\\ud83d"`), 200, ""},
		{readyBody(`,"endpoint":""`), 200, ""},
		{readyBody(`,"endpoint":"https://[::1]:8001/v1?a=b"`), 200, ""},
		{readyBody(`,"endpoint":"grpc://localhost"`), 200, ""},
		{readyBody(`,"endpoint":"unix:///run/gpu-0.sock"`), 200, ""},
		{readyBody(`,"endpoint":"unix:/run/gpu-0.sock"`), 200, ""},
		{readyBody(`,"vram_used_bytes":18446744073709551615`), 200, ""},
		{readyBody(`,"endpoint":"http://h/` + text(1015) + `","capabilities":{"model_ref":"` + text(256) + `","engine_version":"` + text(256) + `"}`), 200, ""},
		{`{"worker_id":"gpu-3","pool_id":"gpu","status":"ready","vram_used_bytes":5,"capabilities":{"gpu_device":3}}`, 200, ""},

		{"", 400, "body: ends before its JSON object is complete"},
		{"{", 400, "body: ends before its JSON object is complete"},
		{"no", 400, "body: is not valid JSON: "},
		{"[]", 400, "body: is not a JSON object"},
		{readyBody("") + "x", 400, "body: has more data after its JSON object"},
		{readyBody("") + "{}", 400, "body: has more data after its JSON object"},
		{"null", 400, "body: is not a JSON object"},
		{"{}", 400, "pool_id: is required"},
		{readyBody(`,"endpoint":"` + "\xff" + `"`), 400, "body: is not valid UTF-8"},
		{readyBody(`,"endpoint":"\ud83d"`), 400, "endpoint: has an unpaired surrogate"},
		{readyBody(`,"endpoint":"\ud83d\ud83d\ude00"`), 400, "endpoint: has an unpaired surrogate"},
		{readyBody(`,"endpoint":"a","endpoint":"b"`), 400, "endpoint: is sent twice"},
		{readyBody(`,"capabilities":{"slots_total":1,"slots_total":2}`), 400, "capabilities.slots_total: is sent twice"},
		{readyBody(`,"Endpoint":"a"`), 400, "Endpoint: has the wrong case; the field is endpoint"},
		{readyBody(`,"capabilities":{"Slots_total":1}`), 400, "capabilities.Slots_total: has the wrong case; the field is slots_total"},
		{readyBody(`,"vram":1`), 400, "vram: is not a field of this request"},
		{readyBody(`,"capabilities":{"gpu":1}`), 400, "capabilities.gpu: is not a field of this request"},
		{`{"pool_id":"p","status":"ready","vram_used_bytes":5}`, 400, "worker_id: is required"},
		{readyBody(`,"worker_id":"p-2"`), 400, "worker_id: the pool has no such worker"},
		{readyBody(`,"worker_id":"gpu-3"`), 400, "worker_id: the pool has no such worker"},
		{readyBody(`,"worker_id":"` + text(257) + `"`), 400, "worker_id: has 257 bytes; at most 256 are allowed"},
		{readyBody(`,"pool_id":"q"`), 400, "pool_id: the supervisor has no such pool"},
		{readyBody(`,"pool_id":"` + text(257) + `"`), 400, "pool_id: has 257 bytes; at most 256 are allowed"},
		{readyBody(`,"pool_id":1`), 400, "pool_id: is a number; it must be a string"},
		{readyBody(`,"status":""`), 400, "status: must be ready or draining"},
		{readyBody(`,"status":"failed"`), 400, "status: must be ready or draining"},
		{readyBody(`,"status":"READY"`), 400, `status: is \"READY\"; it must be ready or draining`},
		{readyBody(`,"vram_used_bytes":0`), 400, "vram_used_bytes: must not be 0"},
		{readyBody(`,"vram_used_bytes":-1`), 400, "vram_used_bytes: is -1; it must be a whole number from 0 to 18446744073709551615"},
		{readyBody(`,"endpoint":"` + text(1025) + `"`), 400, "endpoint: has 1025 bytes; at most 1024 are allowed"},
		{readyBody(`,"endpoint":"nope"`), 400, `endpoint: is \"nope\"; it must be a URL such as http://127.0.0.1:8001"}`},
		{readyBody(`,"endpoint":"127.0.0.1:8001"`), 400, `endpoint: is \"127.0.0.1:8001\"; it must be a URL`},
		{readyBody(`,"endpoint":"localhost:8001"`), 400, `endpoint: is \"localhost:8001\"; it must be a URL`},
		{readyBody(`,"endpoint":"//localhost:8001"`), 400, `endpoint: is \"//localhost:8001\"; it must be a URL`},
		{readyBody(`,"endpoint":"/run/gpu-0.sock"`), 400, `endpoint: is \"/run/gpu-0.sock\"; it must be a URL`},
		{readyBody(`,"endpoint":"http://:8001/"`), 400, `endpoint: is \"http://:8001/\"; it must be a URL`},
		{readyBody(`,"endpoint":"http://"`), 400, `endpoint: is \"http://\"; it must be a URL`},
		{readyBody(`,"endpoint":"http://h/\n"`), 400, `endpoint: is \"http://h/\\n\"; it must be a URL`},
		{readyBody(`,"capabilities":[]`), 400, "capabilities: is an array; it must be an object"},
		{readyBody(`,"capabilities":{"slots_total":"4"}`), 400, "capabilities.slots_total: is a string; it must be a number"},
		{readyBody(`,"capabilities":{"model_ref":"` + text(257) + `"}`), 400, "capabilities.model_ref: has 257 bytes; at most 256 are allowed"},
		{readyBody(`,"capabilities":{"engine_version":"` + text(257) + `"}`), 400, "capabilities.engine_version: has 257 bytes; at most 256 are allowed"},
		{
			`{"worker_id":"gpu-3","pool_id":"gpu","status":"ready","vram_used_bytes":5,"capabilities":{"gpu_device":0}}`, 400,
			"capabilities.gpu_device: is 0, but the worker was given GPU 3",
		},
		{readyBody(`,"worker_id":"p-1"`), 409, `worker_id: no process of \"p-1\" runs`},
	} {
		s.begin("p-0", "gpu-3")
		s.posts(readyPath, test.body, test.code, test.problem)
	}
	s.begin("p-0")
	for _, test := range []struct {
		body    string
		code    int
		problem string
	}{
		{readyBody(""), 200, ""},
		{readyBody(""), 200, ""},
		{readyBody(`,"endpoint":"nope"`), 400, "endpoint: "}, // also now: what is wrong is said first
		{readyBody(`,"endpoint":"http://other"`), 409, `worker_id: \"p-0\" has said something else before: this process did, or another one that uses its id"}`},
		{`{"worker_id":"p-0","pool_id":"p","status":"draining"}`, 200, ""},
		{readyBody(`,"endpoint":"http://other"`), 409, `worker_id: \"p-0\" drains, and cannot become ready again`},
	} {
		s.posts(readyPath, test.body, test.code, test.problem)
	}
}

// The same of a failed notification.
func TestFailedByHTTP(t *testing.T) {
	t.Attr("rules", "P2 P3")
	s := newSite(t)
	for _, test := range []struct {
		body    string
		code    int
		problem string
	}{
		{`{"pool_id":"p"}`, 200, ""},
		{`{"worker_id":"p-0","pool_id":"p","status":"failed","message":"` + strings.Repeat("x", 1024) + `"}`, 200, ""},
		{`{}`, 400, "pool_id: is required"},
		{`{"pool_id":"gpu"}`, 400, "worker_id: the pool has no such worker"},
		{`{"pool_id":"p","worker_id":"p-1"}`, 400, `worker_id: \"p-1\" is not the worker of the path, \"p-0\"`},
		{`{"pool_id":"p","status":"ready"}`, 400, "status: must be failed"},
		{`{"pool_id":"p","status":"dead"}`, 400, `status: is \"dead\"; it must be failed`},
		{`{"pool_id":"p","message":"` + strings.Repeat("x", 1025) + `"}`, 400, "message: has 1025 bytes; at most 1024 are allowed"},
		{`{"pool_id":"p","endpoint":"x"}`, 400, "endpoint: is not a field of this request"},
	} {
		s.begin("p-0")
		s.posts(failedPath, test.body, test.code, test.problem)
		if is := s.get("p-0").state() == failed; is != (test.code == 200) {
			t.Errorf("%.300s: the worker has failed: %v", test.body, is)
		}
	}
	s.posts(strings.Replace(failedPath, "p-0", "p-1", 1), `{"pool_id":"p"}`, 409, `worker_id: no process of \"p-1\" runs`)
}

// No more of a body is read than a notification can need. (A server keeps the connection for a
// while after this answer, so the test has none.)
func TestTooLargeByHTTP(t *testing.T) {
	s := newSite(t)
	pages := s.pages()
	for _, test := range []struct{ path, body string }{
		{readyPath, readyBody(`,"endpoint":"` + strings.Repeat("x", maxBody) + `"`)},
		{readyPath, readyBody("") + strings.Repeat(" ", maxBody)},
		{failedPath, `{"pool_id":"p","message":"` + strings.Repeat("x", maxBody) + `"}`},
	} {
		w, req := httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, test.path, strings.NewReader(test.body))
		req.Header.Set("Authorization", "Bearer "+testToken)
		pages.ServeHTTP(w, req)
		if w.Code != http.StatusRequestEntityTooLarge || !strings.Contains(w.Body.String(), "body: has more than 65536 bytes") || s.get("p-0").state() != starting {
			t.Errorf("%s %.100s: %d %s, want %d and the limit",
				test.path, test.body, w.Code, w.Body, http.StatusRequestEntityTooLarge)
		}
	}
}

// A notification that does not arrive whole because of its connection is no bad one: the process
// tries again (P3). What it has sent wrongly, it would send again.
func TestBodyThatDoesNotArrive(t *testing.T) {
	t.Attr("rules", "P3")
	s := newSite(t)
	client, server := net.Pipe()
	defer func() { _ = errors.Join(client.Close(), server.Close()) }()
	if err := server.SetReadDeadline(time.Unix(1, 0)); err != nil { // as the server does it after its timeout
		t.Fatal(err)
	}
	for name, test := range map[string]struct {
		rest io.Reader
		code int
		why  string
	}{
		"late":         {server, http.StatusServiceUnavailable, "body: has not arrived"},
		"cut":          {iotest.ErrReader(io.ErrUnexpectedEOF), http.StatusServiceUnavailable, "body: has not arrived"},
		"wrong chunks": {httputil.NewChunkedReader(strings.NewReader("many\r\n")), http.StatusBadRequest, "body: cannot be read"},
	} {
		w, req := httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, readyPath,
				io.MultiReader(strings.NewReader("{"), test.rest))
		req.Header.Set("Authorization", "Bearer "+testToken)
		s.pages().ServeHTTP(w, req)
		if w.Code != test.code || !strings.Contains(w.Body.String(), test.why) {
			t.Errorf("%s: %d %s, want %d and %q", name, w.Code, w.Body, test.code, test.why)
		}
	}
}

// pipes is a listener for connections within this process, which work on the fake clock.
type pipes struct {
	conns chan net.Conn
	once  sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	if conn, open := <-p.conns; open {
		return conn, nil
	}
	return nil, net.ErrClosed
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.conns) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{} }

// Whoever keeps a connection open, or sends slowly, holds up a stop for no more than closeWait.
func TestStopClosesConnections(t *testing.T) {
	post := "POST " + readyPath + " HTTP/1.1\r\nHost: x\r\n"
	for _, sent := range []string{
		"", post, post + "Authorization: Bearer " + testToken + "\r\nContent-Length: 9\r\n\r\n{", "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			s := New(&Config{}, Options{Token: testToken, Output: io.Discard, Log: slog.New(slog.DiscardHandler)})
			l := &pipes{conns: make(chan net.Conn)}
			server := s.serve(l, func() {})
			client, conn := net.Pipe()
			l.conns <- conn
			// until the server closes the connection
			go func() { _, _ = io.Copy(io.Discard, client); _ = client.Close() }()
			_, _ = io.WriteString(client, sent)
			synctest.Wait()
			began := time.Now()
			if err := server.close(); err != nil || time.Since(began) > closeWait {
				t.Errorf("after %q, closing took %v (%v), want at most %v", sent, time.Since(began), err, closeWait)
			}
		})
	}
}

// By HTTP and by gRPC, a process has the answer to its failure before it gets SIGTERM, which may
// end its call. One that does not read the answer gets SIGTERM as soon.
func TestAnswerComesBeforeTheSignal(t *testing.T) {
	post := "POST /v2/internal/workers/p-0/failed HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer secret\r\n" +
		"Content-Length: 15\r\n\r\n{\"pool_id\":\"p\"}"
	for name, fails := range map[string]func(t *testing.T, conn net.Conn){
		"HTTP": func(t *testing.T, conn net.Conn) {
			_, _ = io.WriteString(conn, post)
			resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil || resp.StatusCode != http.StatusOK {
				t.Errorf("the answer is %v (%v), want 200", resp, err)
				return
			}
			_ = resp.Body.Close()
		},
		"gRPC": func(t *testing.T, conn net.Conn) {
			client, err := grpc.NewClient("passthrough:///pipe", grpc.WithTransportCredentials(insecure.NewCredentials()),
				grpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return conn, nil }))
			if err != nil {
				t.Fatal(err)
			}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer secret")
			if _, err := lessorv1.NewPoolServiceClient(client).NotifyFailed(ctx, &lessorv1.NotifyFailedRequest{WorkerId: "p-0", PoolId: "p"}); err != nil {
				t.Error(err)
			}
			_ = client.Close()
		},
		"HTTP, and the answer is not read": func(_ *testing.T, conn net.Conn) {
			_, _ = io.WriteString(conn, post)
			synctest.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, slowStart)
				w.start()
				process := w.fakes.process()
				l := &pipes{conns: make(chan net.Conn)}
				server := w.serve(l, func() {})
				client, conn := net.Pipe()
				l.conns <- conn
				began := time.Now()
				fails(t, client)
				synctest.Wait()
				if got, took := process.signals(), time.Since(began); got != "" || took != 0 {
					t.Errorf("the process got %q with the answer, after %v, want no signal yet", got, took)
				}
				w.want(failed, 1)
				w.after(answerWait)
				if got := process.signals(); got != "TERM" {
					t.Errorf("the process got %q %v after the answer, want TERM", got, answerWait)
				}
				_ = client.Close()
				w.close()
				if err := server.close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// busyListener fails once, as a listener does when there are too many open files.
type busyListener struct {
	net.Listener
	failed bool
	again  chan struct{} // closed when it is asked again
}

func (l *busyListener) Accept() (net.Conn, error) {
	if !l.failed {
		l.failed = true
		return nil, syscall.EMFILE
	}
	close(l.again)
	return l.Listener.Accept()
}

// A refused notification is in the log, but not all of what the caller has sent, and nothing of one
// without the token.
func TestLogOfRefusals(t *testing.T) {
	log := &locked{}
	s := New(&Config{}, Options{Token: testToken, Output: io.Discard, Log: slog.New(slog.NewJSONHandler(log, nil))})
	s.notified(time.Now(), invalid("status", "%q", strings.Repeat("x", 5000)))
	if text := log.String(); !strings.Contains(text, `"level":"WARN","msg":"notification refused","code":"InvalidArgument","problem":"status: `) || len(text) > 1000 {
		t.Errorf("the log is %d bytes, %.200q; want the beginning of the problem", len(text), text)
	}
	before := log.String()
	s.notified(time.Now(), s.authorized(nil))
	s.notified(time.Now(), nil)
	if log.String() != before {
		t.Errorf("the log is %q, want nothing for a notification without the token or without a problem", log)
	}
}

// What package http has to say is in the log, in its form.
func TestServerLogs(t *testing.T) {
	log := &locked{}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s := New(&Config{}, Options{Token: testToken, Output: io.Discard, Log: slog.New(slog.NewJSONHandler(log, nil))})
	busy := &busyListener{Listener: l, again: make(chan struct{})}
	server := s.serve(busy, func() {})
	<-busy.again
	if err := server.close(); err != nil {
		t.Error(err)
	}
	if !strings.Contains(log.String(), `"level":"WARN","msg":"http: Accept error`) {
		t.Errorf("the log is %q, want the problem", log)
	}
}

// Whoever does not have the token learns nothing and changes nothing.
func TestHTTPNeedsTheToken(t *testing.T) {
	t.Attr("rules", "P2")
	s := newSite(t)
	for _, test := range []struct {
		authorization []string
		code          int
	}{
		{nil, 401},
		{[]string{""}, 401},
		{[]string{"Bearer"}, 401},
		{[]string{"Bearer "}, 401},
		{[]string{testToken}, 401},
		{[]string{"Basic " + testToken}, 401},
		{[]string{"Bearer  " + testToken}, 401},
		{[]string{"Bearer " + testToken[1:]}, 401},
		{[]string{"Bearer " + testToken + "x"}, 401},
		{[]string{"Bearer " + strings.ToUpper(testToken)}, 401},
		{[]string{"Bearer " + testToken, "Bearer " + testToken}, 401},
		{[]string{"bearer " + testToken}, 200},
		{[]string{"Bearer " + testToken}, 200},
	} {
		for path, body := range map[string]string{readyPath: readyBody(""), failedPath: `{"pool_id":"p"}`} {
			s.begin("p-0")
			code, header, text := s.send(http.MethodPost, path, body, test.authorization...)
			refused, changed := test.code == 401, s.get("p-0").state() != starting
			if code != test.code || (header.Get("WWW-Authenticate") == "Bearer") != refused || strings.Contains(text, "LESSOR_POOL_TOKEN") != refused || changed == refused {
				t.Errorf("%s with %q: %d %s %v, want %d", path, test.authorization, code, text, header, test.code)
			}
		}
	}
	if code, _, text := s.send(http.MethodPost, readyPath, "no"); code != 401 {
		t.Errorf("a body that is not JSON, and no token: %d %s, want 401", code, text)
	}
}

// What is not served says so, and how the rest is to be called.
func TestOtherRequests(t *testing.T) {
	s := newSite(t)
	for _, test := range []struct {
		method, path string
		code         int
		allow        string
	}{
		{http.MethodGet, readyPath, 405, "POST"},
		{http.MethodPut, failedPath, 405, "POST"},
		{http.MethodPost, "/metrics", 405, "GET, HEAD"},
		{http.MethodPost, "/", 404, ""},
		{http.MethodPost, lessorv1.PoolService_ListPools_FullMethodName, 404, ""}, // gRPC is not HTTP/1
	} {
		if code, header, _ := s.send(test.method, test.path, "", "Bearer "+testToken); code != test.code || header.Get("Allow") != test.allow {
			t.Errorf("%s %s: %d, Allow %q, want %d, %q", test.method, test.path, code, header.Get("Allow"), test.code, test.allow)
		}
	}
}

// call makes a call by gRPC, with the authorizations, and returns the answer.
func call[R any, M interface {
	*R
	proto.Message
}](s *site, method string, req proto.Message, authorization ...string,
) (M, error) {
	ctx := s.Context()
	for _, a := range authorization {
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", a)
	}
	resp := M(new(R))
	err := s.grpc.Invoke(ctx, method, req, resp)
	s.hides("the answer", fmt.Sprint(resp, err))
	return resp, err
}

// methods are all methods, each with a request that is right.
func methods() map[string]proto.Message {
	return map[string]proto.Message{
		lessorv1.PoolService_NotifyReady_FullMethodName: &lessorv1.NotifyReadyRequest{
			WorkerId: "p-0", PoolId: "p", Status: lessorv1.WorkerStatus_WORKER_STATUS_READY,
			Endpoint: "http://127.0.0.1:1", VramUsedBytes: 5,
			Capabilities: &lessorv1.WorkerCapabilities{SlotsTotal: 4},
		},
		lessorv1.PoolService_NotifyFailed_FullMethodName: &lessorv1.NotifyFailedRequest{
			WorkerId: "gpu-3",
			PoolId:   "gpu", Message: "no memory",
		},
		lessorv1.PoolService_ListPools_FullMethodName: &lessorv1.ListPoolsRequest{},
		lessorv1.PoolService_GetPool_FullMethodName:   &lessorv1.GetPoolRequest{PoolId: "p"},
	}
}

// fails makes a call by gRPC with the authorizations and checks its error.
func (s *site) fails(method string, req proto.Message, code codes.Code, problem string, authorization ...string) {
	s.Helper()
	_, err := call[lessorv1.ListPoolsResponse](s, method, req, authorization...)
	if status.Code(err) != code || !strings.HasPrefix(status.Convert(err).Message(), problem) {
		s.Errorf("%s %.200v: error %v, want %v: %s", method, req, err, code, problem)
	}
	if field, text := detail.Field(status.Convert(err)); code == codes.InvalidArgument && field+": "+text != status.Convert(err).Message() {
		s.Errorf("%s %.200v: error %v has the field %q, problem %q", method, req, err, field, text)
	}
}

// Each method does what it says, and a list shows at once what was notified before it, by gRPC or
// by HTTP.
func TestMethodsByGRPC(t *testing.T) {
	t.Attr("rules", "P2 P4")
	const bearer = "Bearer " + testToken
	s := newSite(t)
	reqs := methods()
	list := func() []*lessorv1.Pool {
		t.Helper()
		resp, err := call[lessorv1.ListPoolsResponse](s, lessorv1.PoolService_ListPools_FullMethodName,
			&lessorv1.ListPoolsRequest{}, bearer)
		if err != nil {
			t.Fatal(err)
		}
		return resp.GetPools()
	}
	check := func(v *lessorv1.PoolWorker, id string, state lessorv1.PoolWorkerState) {
		t.Helper()
		if v.GetWorkerId() != id || v.GetState() != state {
			t.Errorf("got %v, want %s %v", v, id, state)
		}
	}
	pools := list()
	if len(pools) != 2 || pools[0].GetPoolId() != "gpu" || pools[1].GetPoolId() != "p" || pools[1].GetWorkersReady() != 0 || pools[0].GetWorkers()[0].GetGpuDevice() != 3 {
		t.Errorf("got %v, want the pools by id, and the GPU", pools)
	}
	check(pools[1].GetWorkers()[0], "p-0", starting)
	check(pools[1].GetWorkers()[1], "p-1", stopped)

	if _, err := call[lessorv1.NotifyReadyResponse](s, lessorv1.PoolService_NotifyReady_FullMethodName, reqs[lessorv1.PoolService_NotifyReady_FullMethodName], bearer); err != nil {
		t.Fatal(err)
	}
	p := list()[1]
	w := p.GetWorkers()[0]
	check(w, "p-0", ready)
	if p.GetWorkersReady() != 1 || w.GetEndpoint() != "http://127.0.0.1:1" || w.GetVramUsedBytes() != 5 || w.GetCapabilities().GetSlotsTotal() != 4 || w.GetPid() != 7 || w.GetStarts() != 1 {
		t.Errorf("got %v, want what was notified", p)
	}
	one, err := call[lessorv1.GetPoolResponse](s, lessorv1.PoolService_GetPool_FullMethodName,
		&lessorv1.GetPoolRequest{PoolId: "p"}, bearer)
	if err != nil || !proto.Equal(one.GetPool(), p) {
		t.Errorf("got %v (%v), want the pool as in the list, %v", one, err, p)
	}

	if _, err := call[lessorv1.NotifyFailedResponse](s, lessorv1.PoolService_NotifyFailed_FullMethodName, reqs[lessorv1.PoolService_NotifyFailed_FullMethodName], bearer); err != nil {
		t.Fatal(err)
	}
	w = list()[0].GetWorkers()[0]
	check(w, "gpu-3", failed)
	if w.GetLastFailure() != "no memory" {
		t.Errorf("got %v, want the message", w)
	}

	s.begin("p-0")
	s.posts(readyPath, readyBody(""), http.StatusOK, "")
	check(list()[1].GetWorkers()[0], "p-0", ready)
	s.posts(failedPath, `{"pool_id":"p"}`, http.StatusOK, "")
	check(list()[1].GetWorkers()[0], "p-0", failed)
}

// By gRPC, too, an error names the field.
func TestErrorsByGRPC(t *testing.T) {
	t.Attr("rules", "P2 P3")
	const bearer = "Bearer " + testToken
	s := newSite(t)
	long := strings.Repeat("x", 257)
	for _, test := range []struct {
		method  string
		req     proto.Message
		code    codes.Code
		problem string
	}{
		{lessorv1.PoolService_GetPool_FullMethodName, &lessorv1.GetPoolRequest{}, codes.InvalidArgument, "pool_id: is required"},
		{lessorv1.PoolService_GetPool_FullMethodName, &lessorv1.GetPoolRequest{PoolId: long}, codes.InvalidArgument, "pool_id: has 257 bytes"},
		{lessorv1.PoolService_GetPool_FullMethodName, &lessorv1.GetPoolRequest{PoolId: "q"}, codes.NotFound, `pool_id: the supervisor has no such pool: "q"`},
		{lessorv1.PoolService_NotifyReady_FullMethodName, &lessorv1.NotifyReadyRequest{PoolId: "p", WorkerId: "p-0"}, codes.InvalidArgument, "status: "},
		{lessorv1.PoolService_NotifyReady_FullMethodName, &lessorv1.NotifyReadyRequest{PoolId: "p", WorkerId: "p-0", Status: 9}, codes.InvalidArgument, "status: "},
		{lessorv1.PoolService_NotifyReady_FullMethodName, &lessorv1.NotifyReadyRequest{PoolId: "q", WorkerId: "p-0"}, codes.InvalidArgument, "pool_id: "},
		{lessorv1.PoolService_NotifyReady_FullMethodName, &lessorv1.NotifyReadyRequest{PoolId: "p", WorkerId: "p-1", Status: 3}, codes.FailedPrecondition, "worker_id: "},
		{lessorv1.PoolService_NotifyReady_FullMethodName, &lessorv1.NotifyReadyRequest{Endpoint: strings.Repeat("x", maxBody)}, codes.ResourceExhausted, "grpc: received message larger than max"},
		{lessorv1.PoolService_NotifyFailed_FullMethodName, &lessorv1.NotifyFailedRequest{PoolId: "p"}, codes.InvalidArgument, "worker_id: is required"},
		{lessorv1.PoolService_NotifyFailed_FullMethodName, &lessorv1.NotifyFailedRequest{PoolId: "p", WorkerId: "p-0", Status: 1}, codes.InvalidArgument, "status: "},
	} {
		s.fails(test.method, test.req, test.code, test.problem, bearer)
	}
	s.posts(readyPath, readyBody(""), http.StatusOK, "")
	s.fails(lessorv1.PoolService_NotifyReady_FullMethodName, methods()[lessorv1.PoolService_NotifyReady_FullMethodName],
		codes.AlreadyExists, "worker_id: ", bearer)
}

// A field of a newer caller is refused rather than ignored.
func TestUnknownFieldsByGRPC(t *testing.T) {
	s := newSite(t)
	newer := protowire.AppendVarint(protowire.AppendTag(nil, 999, protowire.VarintType), 1)
	for method, req := range methods() {
		inner := proto.Clone(req)
		req.ProtoReflect().SetUnknown(newer)
		s.fails(method, req, codes.InvalidArgument, "request: has a field that this supervisor does not know",
			"Bearer "+testToken)
		if r, ok := inner.(*lessorv1.NotifyReadyRequest); ok {
			r.GetCapabilities().ProtoReflect().SetUnknown(newer)
			s.fails(method, r, codes.InvalidArgument, "request: has a field that this supervisor does not know",
				"Bearer "+testToken)
		}
	}
}

// Each method needs the token, and so does the reflection.
func TestGRPCNeedsTheToken(t *testing.T) {
	t.Attr("rules", "P2")
	s := newSite(t)
	for method, req := range methods() {
		for _, authorization := range [][]string{nil, {"Bearer " + testToken[1:]}, {"Basic " + testToken}, {testToken}, {"Bearer " + testToken, "Bearer " + testToken}} {
			s.fails(method, req, codes.Unauthenticated, "the header authorization must be", authorization...)
		}
	}
	if a, b := s.get("p-0").state(), s.get("gpu-3").state(); a != starting || b != starting {
		t.Errorf("the workers are %v and %v, want them as before", a, b)
	}
	services := func(ctx context.Context) (*reflectionv1.ServerReflectionResponse, error) {
		stream, err := reflectionv1.NewServerReflectionClient(s.grpc).ServerReflectionInfo(ctx)
		if err != nil {
			t.Fatal(err)
		}
		// Recv has the error
		_ = stream.Send(&reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}})
		_ = stream.CloseSend()
		return stream.Recv()
	}
	if resp, err := services(t.Context()); status.Code(err) != codes.Unauthenticated {
		t.Errorf("reflection without the token: %v, %v, want %v", resp, err, codes.Unauthenticated)
	}
	resp, err := services(metadata.AppendToOutgoingContext(t.Context(), "authorization", "Bearer "+testToken))
	if err != nil || !strings.Contains(fmt.Sprint(resp), "lessor.v1.PoolService") {
		t.Errorf("reflection: %v, %v, want the services", resp, err)
	}
}

// The metrics need no token, and count what happened.
func TestMetrics(t *testing.T) {
	s := newSite(t)
	s.get("p-0").noteWaiting(success, 0)
	s.begin("p-0") // a second process
	s.get("p-0").noteWaiting(crash, 0)
	s.begin("p-0")
	s.posts(readyPath, readyBody(""), http.StatusOK, "")
	s.posts(readyPath, readyBody(""), http.StatusOK, "")
	s.posts(readyPath, readyBody(`,"vram_used_bytes":0`), http.StatusBadRequest, "vram_used_bytes")
	s.posts(readyPath, "{", http.StatusBadRequest, "body")
	failed := methods()[lessorv1.PoolService_NotifyFailed_FullMethodName]
	s.fails(lessorv1.PoolService_NotifyFailed_FullMethodName, failed, codes.Unauthenticated, "", "Bearer another")
	s.fails(lessorv1.PoolService_NotifyFailed_FullMethodName, failed, codes.OK, "", "Bearer "+testToken)
	// no notification
	s.fails(lessorv1.PoolService_ListPools_FullMethodName, &lessorv1.ListPoolsRequest{}, codes.Unauthenticated, "",
		"Bearer another")
	s.send(http.MethodPost, readyPath, readyBody(""), "Bearer another")
	code, _, text := s.send(http.MethodGet, "/metrics", "")
	if code != http.StatusOK {
		t.Errorf("%d %s, want the metrics", code, text)
	}
	for name, want := range map[string]string{
		"lessor_pool_worker_starts_total":  `{pool_id="gpu"} 1|{pool_id="p"} 3`,
		"lessor_pool_workers_ready_total":  `{pool_id="gpu"} 0|{pool_id="p"} 1`,
		"lessor_pool_workers_failed_total": `{pool_id="gpu"} 1|{pool_id="p"} 1`,
		"lessor_pool_workers": `{pool_id="gpu",state="DRAINING"} 0|{pool_id="gpu",state="FAILED"} 1|{pool_id="gpu",state="READY"} 0|` +
			`{pool_id="gpu",state="STARTING"} 0|{pool_id="gpu",state="STOPPED"} 0|{pool_id="gpu",state="WAITING"} 0|` +
			`{pool_id="p",state="DRAINING"} 0|{pool_id="p",state="FAILED"} 0|{pool_id="p",state="READY"} 1|` +
			`{pool_id="p",state="STARTING"} 0|{pool_id="p",state="STOPPED"} 1|{pool_id="p",state="WAITING"} 0`,
		"lessor_pool_readiness_callback_duration_seconds_count": `{code="InvalidArgument"} 2|{code="OK"} 3|{code="Unauthenticated"} 2`,
	} {
		var series []string
		for line := range strings.Lines(text) {
			if rest, found := strings.CutPrefix(line, name+"{"); found {
				series = append(series, "{"+strings.TrimSpace(rest))
			}
		}
		if got := strings.Join(series, "|"); got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
}
