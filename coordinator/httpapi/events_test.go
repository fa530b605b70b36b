package httpapi

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X3, S5: each write waits for a slow client for at most writeTimeout. When the credential has
// ended, all further writes together wait for lastWords.
func TestWriteDeadlinesOfAStream(t *testing.T) {
	t.Attr("rules", "S5 X3")
	synctest.Test(t, func(t *testing.T) {
		w := &deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}
		s := newEventStream(w)
		ctx, end := context.WithCancel(t.Context())
		forget := s.endSoonAfter(ctx)
		for range 2 {
			time.Sleep(time.Hour)
			_ = s.write("x")
			if want := time.Now().Add(writeTimeout); !w.deadline.Equal(want) {
				t.Errorf("a write waits until %v, want %v", w.deadline, want)
			}
		}
		end()
		synctest.Wait()
		want := time.Now().Add(lastWords)
		time.Sleep(lastWords / 2)
		_ = s.write("x")
		if !w.deadline.Equal(want) {
			t.Errorf("after the end a write waits until %v, want %v", w.deadline, want)
		}
		forget()
	})
}

// X3: forget waits until a deadline that is being set is set, because after that the connection may
// have its next request.
func TestForgetWaitsForTheDeadline(t *testing.T) {
	t.Attr("rules", "X3")
	synctest.Test(t, func(t *testing.T) {
		w := slowDeadlines{deadlineRecorder{ResponseRecorder: httptest.NewRecorder()}}
		ctx, end := context.WithCancel(t.Context())
		forget := (&eventStream{w: &w, control: http.NewResponseController(&w)}).endSoonAfter(ctx)
		end()
		synctest.Wait()
		forget()
		if w.deadline.IsZero() || w.readDeadline.IsZero() {
			t.Error("forget returned before the deadlines were set")
		}
	})
}

// slowDeadlines takes a second to set a deadline.
type slowDeadlines struct{ deadlineRecorder }

func (s *slowDeadlines) SetWriteDeadline(at time.Time) error {
	time.Sleep(time.Second)
	return s.deadlineRecorder.SetWriteDeadline(at)
}

// S5: an idle stream sends a comment after a second, and then every 15 seconds until its stop, so
// that no proxy closes the connection as idle.
func TestIdleStreamSendsComments(t *testing.T) {
	t.Attr("rules", "S5")
	for idle, want := range map[time.Duration]int{
		firstPing / 2: 0, firstPing + 1: 1, firstPing + pingEvery + 1: 2, firstPing + 2*pingEvery + 1: 3,
	} {
		synctest.Test(t, func(t *testing.T) {
			w := httptest.NewRecorder()
			stop := newEventStream(w).ping(t.Context())
			time.Sleep(idle)
			stop()
			time.Sleep(time.Hour)
			if got := w.Body.String(); got != strings.Repeat(": \n\n", want) {
				t.Errorf("after %v: %q, want %d comments", idle, got, want)
			}
		})
	}
}

// slowWriter takes a second for each write.
type slowWriter struct{ *httptest.ResponseRecorder }

func (s slowWriter) Write(text []byte) (int, error) {
	time.Sleep(time.Second)
	return s.ResponseRecorder.Write(text)
}

// S5: the end of the comments waits for one that is being sent: the writer must not be used after
// the answer.
func TestTheLastCommentIsWaitedFor(t *testing.T) {
	t.Attr("rules", "S5")
	synctest.Test(t, func(t *testing.T) {
		w := slowWriter{httptest.NewRecorder()}
		stop := newEventStream(w).ping(t.Context())
		time.Sleep(firstPing + time.Second/2)
		began := time.Now()
		stop()
		if waited := time.Since(began); waited != time.Second/2 {
			t.Errorf("stop took %v, want %v, until the comment was sent", waited, time.Second/2)
		}
	})
}

// S5: only a durable event has an id, from which a reader can resume. The rest of them resumes
// after the last durable one.
func TestOnlyDurableEventsHaveAnID(t *testing.T) {
	t.Attr("rules", "S5")
	for want, m := range map[string]*lessorv1.WatchTaskResponse{
		"event: node.state\nid: 7\ndata: ": {Sequence: 7},
		"event: node.state\ndata: ":        {Sequence: 7, SubSequence: 1},
		"event: node.result.delta\ndata: ": {Sequence: 7, SubSequence: 2, Event: &lessorv1.WatchTaskResponse_Chunk{Chunk: &lessorv1.FeedbackChunk{}}},
	} {
		w := httptest.NewRecorder()
		if err := newEventStream(w).tell(m); err != nil || !strings.HasPrefix(w.Body.String(), want) {
			t.Errorf("%v is sent as %q (%v), want %q", m, w.Body, err, want)
		}
	}
}

// S5: Last-Event-ID is a decimal number of up to 64 bits, and nothing else.
func TestLastEventID(t *testing.T) {
	t.Attr("rules", "S5")
	for sent, want := range map[string]uint64{"": 0, "0": 0, "10": 10, "18446744073709551615": 1<<64 - 1} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Last-Event-ID", sent)
		if got, p := lastEventID(r); p != nil || got != want {
			t.Errorf("%q is %d (%v), want %d", sent, got, p, want)
		}
	}
	for _, sent := range []string{"18446744073709551616", "0x1", "1_0", "1a", "+1", " 1 2", "1.0"} {
		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Last-Event-ID", sent)
		if got, p := lastEventID(r); p == nil || p.body.Field != "Last-Event-ID" {
			t.Errorf("%q is %d, want a refusal that names the header", sent, got)
		}
	}
}

// slowError is an error that takes a while to become a status.
type slowError struct{}

func (slowError) Error() string { return "the store does not answer" }

func (slowError) GRPCStatus() *status.Status {
	time.Sleep(2 * firstPing)
	return status.New(codes.Unavailable, "no")
}

// failedWatch is a watch that fails.
type failedWatch struct {
	grpc.ServerStreamingClient[lessorv1.WatchTaskResponse]
}

func (failedWatch) Recv() (*lessorv1.WatchTaskResponse, error) { return nil, slowError{} }

// A watch that fails before its first event is answered with a problem: no comment begins a stream
// in the meantime.
func TestNoCommentBeforeAProblem(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := httptest.NewRecorder()
		if p := follow(t.Context(), newEventStream(w), failedWatch{}); p == nil || p.status != http.StatusServiceUnavailable || w.Body.Len() > 0 {
			t.Errorf("the problem is %v, after the answer %d %q; want a problem with status 503 and no answer before it", p, w.Code, w.Body)
		}
	})
}

// watchCalls lets a task be watched: a watch has one event, and then waits for its end.
type watchCalls struct {
	grpc.ClientConnInterface
	began chan struct{} // closed with the first event
}

func (c watchCalls) NewStream(
	ctx context.Context, _ *grpc.StreamDesc, _ string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return &oneEvent{ctx: ctx, began: c.began}, nil
}

type oneEvent struct {
	grpc.ClientStream
	ctx   context.Context //nolint:containedctx // the one of the call
	began chan struct{}
	told  bool
}

func (*oneEvent) SendMsg(any) error { return nil }
func (*oneEvent) CloseSend() error  { return nil }

func (s *oneEvent) RecvMsg(any) error {
	if s.told {
		<-s.ctx.Done()
		return status.FromContextError(s.ctx.Err()).Err()
	}
	s.told = true
	close(s.began)
	return nil
}

// H2: HEAD of events is over when its head is sent, although the watch has more to tell.
func TestHeadOfEventsEnds(t *testing.T) {
	t.Attr("rules", "H2")
	synctest.Test(t, func(t *testing.T) {
		api, _, task := newAPIWithDoor(Config{Calls: watchCalls{began: make(chan struct{})}})
		began, w := time.Now(), httptest.NewRecorder()
		// so that the test fails, instead of hanging, if HEAD does not end
		ctx, leave := context.WithTimeout(t.Context(), time.Hour)
		defer leave()
		api.ServeHTTP(w, httptest.NewRequestWithContext(ctx, http.MethodHead, task+"/events", nil))
		if took := time.Since(began); w.Code != http.StatusOK || took > time.Minute {
			t.Errorf("HEAD got %d after %v, want 200 at once", w.Code, took)
		}
	})
}

// endingDoor admits every caller until ended is done.
type endingDoor struct{ ended context.Context } //nolint:containedctx // in place of a credential

func (d endingDoor) Admit(ctx context.Context, _, _ string) (context.Context, func(), error) {
	in, leave := context.WithCancel(ctx)
	stop := context.AfterFunc(d.ended, leave)
	return in, func() { stop(); leave() }, nil
}

// X3, X5: a request for events that announces a body and does not send it holds its connection only
// until the time limit of bodies, or until its credential ends. The server reads a body before it
// writes the head of the answer.
func TestEventsDoNotWaitForABody(t *testing.T) {
	t.Attr("rules", "X3 X5")
	for name, c := range map[string]struct {
		method    string
		bodyLimit time.Duration
		end       bool
	}{
		"GET":                 {http.MethodGet, 50 * time.Millisecond, false},
		"HEAD":                {http.MethodHead, 50 * time.Millisecond, false},
		"GET, credential end": {http.MethodGet, time.Hour, true},
	} {
		t.Run(name, func(t *testing.T) {
			began := make(chan struct{})
			credential, end := context.WithCancel(t.Context())
			defer end()
			api := New(Config{
				Calls: watchCalls{began: began}, Door: endingDoor{credential}, Logger: slog.New(slog.DiscardHandler),
				Answered: func(string, int) {},
			}, http.NewServeMux())
			server := httptest.NewUnstartedServer(api)
			server.Config.ReadTimeout = c.bodyLimit
			server.Start()
			defer server.Close()
			conn, err := new(net.Dialer).DialContext(t.Context(), "tcp", server.Listener.Addr().String())
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close() // before the server, which waits for it
			_, _ = io.WriteString(conn, c.method+" /v1/tasks/t/events HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n")
			if c.end {
				<-began
				end()
			}
			// so that the test fails, instead of hanging, if the connection stays open
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			if answer, err := io.ReadAll(conn); err != nil {
				t.Errorf("the connection stays open (%v); the answer is %q", err, answer)
			}
		})
	}
}
