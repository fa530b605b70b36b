package producer_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/producer"
)

// While no stream can be opened, calls wait, and the log says why: at once, and then once a minute.
// It says in words what gRPC's message means, and so does the error of a call that has waited for
// too long.
func TestLogSaysWhyCallsWait(t *testing.T) {
	const hint = "the coordinator may require TLS"
	for name, call := range map[string]func(context.Context, *producer.Client) error{
		"Submit": func(ctx context.Context, p *producer.Client) error {
			_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q"})
			return err
		},
		"Submit with a key": func(ctx context.Context, p *producer.Client) error {
			_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
			return err
		},
		"Wait": func(ctx context.Context, p *producer.Client) error {
			_, err := p.Wait(ctx, "t0000100000000001")
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			withTaskService(t, &scripted{}, func(t *testing.T, _ *grpc.ClientConn) {
				var log bytes.Buffer
				p := producer.NewWithConfig(plainToTLS{}, producer.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
				ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+30*time.Second)
				defer cancel()
				err := call(ctx, p)
				_ = p.Close()
				if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), hint) {
					t.Errorf("the error is %v, want DEADLINE_EXCEEDED and %q", err, hint)
				}
				if n := strings.Count(log.String(), hint); n != 6 {
					t.Errorf("%d lines of the log have %q, want 6, one a minute:\n%s", n, hint, &log)
				}
			})
		})
	}
}

// plainToTLS is a connection without TLS to a coordinator that requires it.
type plainToTLS struct{ grpc.ClientConnInterface }

func (plainToTLS) NewStream(context.Context, *grpc.StreamDesc, string, ...grpc.CallOption) (grpc.ClientStream, error) {
	return nil, status.Error(codes.Unavailable, `connection error: desc = "error reading server preface: EOF"`)
}

// The log is the program's, and may call the client: a Wait begins and ends while it has the line
// that tells why another one waits.
func TestLogMayCallTheClient(t *testing.T) {
	ended, end := context.WithCancel(t.Context())
	end()
	told := make(chan bool, 1)
	var p *producer.Client
	log := handling{slog.DiscardHandler, func() {
		returned := make(chan struct{})
		go func() {
			defer close(returned)
			_, _ = p.Wait(ended, "t0000100000000002")
		}()
		select {
		case <-returned:
			told <- true
		case <-time.After(10 * time.Second): // not fake time, which would not pass while a goroutine waits for a lock
			told <- false
		}
	}}
	p = producer.NewWithConfig(plainToTLS{}, producer.Config{Logger: slog.New(log)})
	ctx, cancel := context.WithCancel(t.Context())
	waited := make(chan struct{})
	go func() {
		defer close(waited)
		_, _ = p.Wait(ctx, "t0000100000000001")
	}()
	if !<-told {
		t.Error("a Wait hangs while the log has a line of the client")
	}
	cancel()
	<-waited
	_ = p.Close()
}

// handling is a handler of a log that calls a function for each line.
type handling struct {
	slog.Handler
	handle func()
}

func (handling) Enabled(context.Context, slog.Level) bool { return true }

func (h handling) Handle(context.Context, slog.Record) error {
	h.handle()
	return nil
}

// The end of a connection because of its age, once an hour, is not told.
func TestLogIsQuietWhenConnectionsAge(t *testing.T) {
	aged := status.Error(codes.Unavailable,
		`closing transport due to: connection error: desc = "error reading from server: EOF", received prior goaway: code: NO_ERROR, debug data: "max_age"`)
	withTaskService(t, &scripted{frames: []int{0, 1}, end: aged}, func(t *testing.T, conn *grpc.ClientConn) {
		var log bytes.Buffer
		p := producer.NewWithConfig(conn, producer.Config{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		defer func() { _ = p.Close() }()
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"}); err != nil || log.Len() > 0 {
			t.Errorf("Submit = %v, with the log %q; want neither an error nor a line", err, &log)
		}
	})
}

// A client without a connection cannot be made: its calls would crash later, in a goroutine of its
// own.
func TestNilConnection(t *testing.T) {
	for name, conn := range map[string]grpc.ClientConnInterface{"nil": nil, "nil of a type": (*grpc.ClientConn)(nil)} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if text, _ := recover().(string); !strings.Contains(text, "connection is nil") {
					t.Errorf("New panics with %q, want that the connection is nil", text)
				}
			}()
			_ = producer.New(conn).Close()
		})
	}
}
