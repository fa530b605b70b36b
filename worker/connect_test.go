package worker_test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/workertest"
)

// journal is a log that tests can read while it is written.
type journal struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.Write(p)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.text.String()
}

// runUnconnected runs a worker on a connection that cannot be established, and returns the worker's
// log. stop ends the worker and closes the connection.
func runUnconnected(t *testing.T, conn *grpc.ClientConn) (log *journal, stop func()) {
	t.Helper()
	log = &journal{}
	w, err := worker.New(conn, []string{"q"}, worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
	if err != nil {
		t.Fatal(err)
	}
	w.HandleDefault(echo)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	return log, func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
		_ = conn.Close()
	}
}

// If nobody listens at the coordinator's address, the log says so within two seconds, with the
// reason, and again after waits that grow.
func TestUnreachableCoordinatorIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := worker.Dial("passthrough:///localhost", grpc.WithContextDialer(
			func(context.Context, string) (net.Conn, error) { return nil, errors.New("nobody listens") }))
		if err != nil {
			t.Fatal(err)
		}
		log, stop := runUnconnected(t, conn)
		for _, step := range []struct {
			at          time.Duration
			least, most int
		}{{2 * time.Second, 1, 2}, {time.Minute, 4, 9}} {
			time.Sleep(step.at)
			synctest.Wait()
			lines := strings.Count(log.String(), `"no connection to the coordinator: nobody listens"`)
			if lines < step.least || lines > step.most || strings.Contains(log.String(), "session ended") {
				t.Errorf("after %v there are %d lines, want %d to %d:\n%s", step.at, lines, step.least, step.most, log)
			}
		}
		stop()
	})
}

// If nothing comes back from the coordinator's address, as behind a cut cable, the log says that,
// and not that the worker has ended its own attempt.
func TestSilentAddressIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn, err := worker.Dial("passthrough:///localhost", grpc.WithContextDialer(
			func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }))
		if err != nil {
			t.Fatal(err)
		}
		log, stop := runUnconnected(t, conn)
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if line := lineWith(log.String(), "level=WARN"); !strings.Contains(line, `"no connection to the coordinator: no answer within 1s"`) {
			t.Errorf("the log line is %q, want one that tells of no answer", line)
		}
		stop()
	})
}

// If other calls take up the whole connection, the log says so: no repeat helps, and nothing is
// wrong with the network.
func TestNoFreeStreamIsLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		id := c.Submit(&lessorv1.TaskSpec{Queue: "q"})
		ctx, cancel := context.WithCancel(t.Context())
		for range 1024 {
			if _, err := lessorv1.NewTaskServiceClient(c.Conn()).WatchTask(ctx, &lessorv1.WatchTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
		}
		log := &journal{}
		w := c.Worker("q", worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		w.HandleDefault(echo)
		c.Run(w)
		time.Sleep(10 * time.Second)
		if line := lineWith(log.String(), "level=WARN"); !strings.Contains(line, "the connection has no room for a session") {
			t.Errorf("the log has no line about the connection:\n%s", log)
		}
		cancel()
		c.Wait(id) // by the same worker
	})
}

// largeTask answers GetTask with an output of 5 MiB.
type largeTask struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (largeTask) GetTask(context.Context, *lessorv1.GetTaskRequest) (*lessorv1.GetTaskResponse, error) {
	return &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Output: make([]byte, 5<<20)}}, nil
}

// A coordinator bounds its answers itself, by limits that can be raised: programs on a connection
// of Dial get those over gRPC's own limit of 4 MiB, too.
func TestDialTakesLargeAnswers(t *testing.T) {
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer()
	lessorv1.RegisterTaskServiceServer(server, largeTask{})
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()
	conn, err := worker.Dial("passthrough:///localhost", grpc.WithContextDialer(
		func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	if _, err := lessorv1.NewTaskServiceClient(conn).GetTask(t.Context(), &lessorv1.GetTaskRequest{}); err != nil {
		t.Error(err)
	}
}

// If only one side uses TLS no session can be opened. All that the worker sees is a connection that
// ends, but its log says that TLS may be the reason.
func TestTLSOnOneSideIsLogged(t *testing.T) {
	for name, test := range map[string]struct {
		creds credentials.TransportCredentials
		peer  func(net.Conn)
		want  string
	}{
		"coordinator": {insecure.NewCredentials(), func(c net.Conn) { _ = tls.Server(c, &tls.Config{}).Handshake() }, "the coordinator may require TLS"},
		"worker":      {credentials.NewTLS(&tls.Config{InsecureSkipVerify: true}), func(c net.Conn) { _ = http2.NewFramer(c, c).WriteSettings() }, "the coordinator does not use TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				listener := bufconn.Listen(1 << 16)
				served := make(chan struct{})
				defer func() { _ = listener.Close(); <-served }()
				go func() {
					defer close(served)
					for {
						peer, err := listener.Accept()
						if err != nil {
							return
						}
						test.peer(peer)
						// so that what the peer wrote arrives before the end, as over a network
						time.Sleep(time.Millisecond)
						_ = peer.Close()
					}
				}()
				conn, err := worker.Dial("passthrough:///localhost", grpc.WithTransportCredentials(test.creds),
					grpc.WithContextDialer(
						func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }))
				if err != nil {
					t.Fatal(err)
				}
				log, stop := runUnconnected(t, conn)
				time.Sleep(2 * time.Second)
				synctest.Wait()
				if line := lineWith(log.String(), "no connection to the coordinator: "); !strings.Contains(line, test.want) {
					t.Errorf("the log line is %q, want one with %q", line, test.want)
				}
				stop()
			})
		})
	}
}

// The worker logs a task that failed as a warning, with category and message, and a handler that
// panicked as an error, with the stack.
func TestFailuresAreLogged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := startCoordinator(t)
		log := &journal{}
		results := make(chan func() error, 2)
		w, err := worker.New(c.conn, []string{"q"}, worker.Config{Logger: slog.New(slog.NewTextHandler(log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		w.HandleDefault(func(context.Context, *worker.Task) ([]byte, error) { return nil, (<-results)() })
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.Run(ctx) }()
		s := c.accept()
		for id, test := range map[string]struct {
			result func() error
			want   []string
		}{
			"t1": {func() error { return worker.WithCategory(worker.DataQuality, errors.New("bad row")) }, []string{"level=WARN", "DATA_QUALITY", "bad row"}},
			"t2": {func() error { panic("slipped") }, []string{"level=ERROR", "slipped", "connect_test.go"}},
		} {
			results <- test.result
			s.dispatch(id)
			s.started(id)
			f, _ := s.outcome()
			s.commit(f)
			synctest.Wait()
			line := lineWith(log.String(), "task="+id)
			for _, word := range test.want {
				if !strings.Contains(line, word) {
					t.Errorf("the log line of task %s is %q, want one with %q", id, line, word)
				}
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run = %v, want nil", err)
		}
	})
}

// lineWith returns the first line of text that contains word, or "" if there is none.
func lineWith(text, word string) string {
	for line := range strings.Lines(text) {
		if strings.Contains(line, word) {
			return line
		}
	}
	return ""
}

// The coordinator closes a connection that has come of age, and the worker opens another. That is
// neither a warning in the log nor an error for OnError. A session that breaks, here by a restart,
// is an error for OnError.
func TestOldConnectionIsNoError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		log := &journal{}
		var mu sync.Mutex
		var errs []error
		w := c.Worker("q", worker.Config{
			Logger: slog.New(slog.NewTextHandler(log, nil)),
			Hooks:  worker.Hooks{OnError: func(err error) { mu.Lock(); defer mu.Unlock(); errs = append(errs, err) }},
		})
		w.HandleDefault(echo)
		stop := c.Run(w)
		time.Sleep(3 * time.Hour)
		synctest.Wait()
		if n := strings.Count(log.String(), "msg=\"session accepted\""); n < 2 {
			t.Errorf("%d sessions in three hours, want at least 2: no connection has come of age", n)
		}
		mu.Lock()
		if len(errs) != 0 || strings.Contains(log.String(), "level=WARN") {
			t.Errorf("OnError got %v, want no error and no warning in the log:\n%s", errs, log)
		}
		mu.Unlock()
		c.Restart()
		time.Sleep(time.Minute)
		stop()
		if len(errs) == 0 {
			t.Error("OnError was not told of the restart")
		}
	})
}
