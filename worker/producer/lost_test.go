package producer_test

import (
	"context"
	"errors"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker/producer"
)

// scripted is a coordinator that answers a number of frames of each stream, receives the next
// frame, and ends the stream without an answer to it.
type scripted struct {
	lessorv1.UnimplementedTaskServiceServer
	frames  []int // how many frames it answers on each stream
	end     error // with which each stream ends
	accepts bool  // it sends its headers before it reads a frame
}

func (s *scripted) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	frames := s.frames[0]
	s.frames = s.frames[1:]
	if s.accepts {
		if err := stream.SendHeader(nil); err != nil {
			return err
		}
	}
	for range frames {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		res := &lessorv1.SubmitStreamResponse{}
		for _, spec := range req.GetTasks() {
			res.Results = append(res.Results, &lessorv1.SubmitResult{TaskId: spec.GetTaskKey(), Created: true})
		}
		if err := stream.Send(res); err != nil {
			return err
		}
	}
	if _, err := stream.Recv(); err != nil {
		return nil //nolint:nilerr // the client has gone
	}
	return s.end
}

// withTaskService runs a test with a coordinator that has only this service, in a bubble of fake
// time.
func withTaskService(t *testing.T, s lessorv1.TaskServiceServer, test func(t *testing.T, conn *grpc.ClientConn)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		server := grpc.NewServer()
		lessorv1.RegisterTaskServiceServer(server, s)
		served := make(chan error, 1)
		go func() { served <- server.Serve(lis) }()
		conn, err := grpc.NewClient("passthrough:///coordinator", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
		if err != nil {
			t.Fatal(err)
		}
		test(t, conn)
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// T1: if a stream on which frames were answered ends before the answer to a frame, for example
// because its token has expired, the specs of that frame may have been made. A spec with an
// idempotency key is sent again; a call without one fails with UNAVAILABLE, and so does one whose
// repeat is refused. If no frame of the stream was answered, the coordinator refused the stream,
// and the call gets that refusal; so does one whose frame is too large for the coordinator or a
// proxy, which no repeat changes. A stream that ends without an error, as a proxy may end it,
// refuses nothing.
func TestStreamEndsBeforeTheAnswer(t *testing.T) {
	t.Attr("rules", "T1")
	ended := status.Error(codes.Unauthenticated, "the token has run out")
	proxy := status.Error(codes.Unknown, "unexpected HTTP status code received from server: 413 (Request Entity Too Large)")
	large := status.Error(codes.ResourceExhausted, "grpc: received message larger than max (2000 vs. 1000)")
	for name, test := range map[string]struct {
		frames []int
		first  bool // the frame that gets no answer is the first of the client
		key    string
		end    error
		want   codes.Code
	}{
		"without a key":           {[]int{1, 1}, false, "", ended, codes.Unavailable},
		"with a key":              {[]int{1, 1}, false, "k", ended, codes.OK},
		"repeat is refused":       {[]int{1, 0}, false, "k", ended, codes.Unavailable},
		"refused at once":         {[]int{0}, true, "k", ended, codes.Unauthenticated},
		"too large for a proxy":   {[]int{0}, true, "k", proxy, codes.Unknown},
		"proxy, later frame":      {[]int{1, 0}, false, "k", proxy, codes.Unavailable},
		"too large":               {[]int{0}, true, "k", large, codes.ResourceExhausted},
		"too large, later frame":  {[]int{1, 0}, false, "k", large, codes.Unavailable},
		"no error, without a key": {[]int{0}, true, "", nil, codes.Unavailable},
		"no error, with a key":    {[]int{0, 1}, true, "k", nil, codes.OK},
		"accepted, credential":    {[]int{0}, true, "", ended, codes.Unavailable},
		"accepted, bad frame":     {[]int{0}, true, "", status.Error(codes.InvalidArgument, "tasks: must not be empty"), codes.InvalidArgument},
	} {
		t.Run(name, func(t *testing.T) {
			accepts := strings.HasPrefix(name, "accepted")
			withTaskService(t, &scripted{frames: test.frames, end: test.end, accepts: accepts}, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				if !test.first {
					if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
						t.Fatal(err)
					}
				}
				_, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: test.key})
				if status.Code(err) != test.want {
					t.Errorf("Submit = %v, want %v", err, test.want)
				}
			})
		})
	}
}

// renewing is a coordinator that ends its first streams after an answer because their credential
// has expired, with the frame behind it not taken, and refuses the streams after them with the
// status after, unless that is nil.
type renewing struct {
	lessorv1.UnimplementedTaskServiceServer
	expire int
	after  error
}

func (s *renewing) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	if s.expire == 0 && s.after != nil {
		return s.after
	}
	if err := stream.SendHeader(nil); err != nil {
		return err
	}
	for frames := 0; ; frames++ {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		if s.expire > 0 && frames == 1 {
			s.expire--
			info := detail.ErrorInfo("E.AUTH.INVALID_TOKEN")
			info.Metadata[detail.Unanswered] = detail.NotTaken
			st, err := status.New(codes.Unauthenticated, "the credential has expired").WithDetails(info)
			if err != nil {
				return err
			}
			return st.Err()
		}
		if err := stream.Send(&lessorv1.SubmitStreamResponse{Results: make([]*lessorv1.SubmitResult, len(req.GetTasks()))}); err != nil {
			return err
		}
	}
}

// X1: while its token is replaced in time, no Submit fails, with or without a key: what the
// coordinator has not taken when the old token expires goes with the new one. If there is no new
// one, Submit says that the coordinator refused the old one, and so that there is no task.
func TestCredentialIsReplaced(t *testing.T) {
	t.Attr("rules", "X1")
	for name, after := range map[string]error{"in time": nil, "too late": status.Error(codes.Unauthenticated, "the credential has expired")} {
		t.Run(name, func(t *testing.T) {
			withTaskService(t, &renewing{expire: 3, after: after}, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				submits := 10
				if after != nil {
					submits = 3
				}
				for i := range submits {
					if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
						t.Errorf("Submit %d = %v, want nil", i, err)
					}
				}
				if after == nil {
					return
				}
				if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); status.Code(err) != codes.Unauthenticated {
					t.Errorf("Submit = %v, want UNAUTHENTICATED", err)
				}
			})
		})
	}
}

// A spec with an idempotency key is sent again as long as its context allows. At the deadline the
// error has the reason why no stream could be opened, but not after a stream was opened again.
func TestDeadlineErrorNamesTheCause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		lis := bufconn.Listen(1 << 20)
		var away atomic.Bool
		away.Store(true)
		server := grpc.NewServer()
		lessorv1.RegisterTaskServiceServer(server, &scripted{frames: []int{1}})
		served := make(chan error, 1)
		go func() { served <- server.Serve(lis) }()
		conn, err := grpc.NewClient("passthrough:///scripted", grpc.WithTransportCredentials(insecure.NewCredentials()),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				if away.Load() {
					return nil, errors.New("nobody listens")
				}
				return lis.DialContext(ctx)
			}))
		if err != nil {
			t.Fatal(err)
		}
		p := producer.New(conn)
		submit := func(within time.Duration) error {
			ctx, cancel := context.WithTimeout(t.Context(), within)
			defer cancel()
			_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
			return err
		}
		if err := submit(10 * time.Second); status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "nobody listens") {
			t.Errorf("Submit = %v, want DEADLINE_EXCEEDED with %q", err, "nobody listens")
		}
		away.Store(false)
		if err := submit(5 * time.Minute); err != nil {
			t.Errorf("Submit = %v, want nil", err)
		}
		if err := submit(0); status.Code(err) != codes.DeadlineExceeded || status.Convert(err).Message() != context.DeadlineExceeded.Error() {
			t.Errorf("Submit = %v, want DEADLINE_EXCEEDED without a cause", err)
		}
		_ = p.Close()
		_ = conn.Close()
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
}

// If streams open, but end before a frame is answered, then the error at the deadline has the
// reason why the last of them ended.
func TestDeadlineErrorNamesTheEndOfTheStream(t *testing.T) {
	withTaskService(t, &scripted{frames: make([]int, 100), end: errAway}, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
		if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "the coordinator is away") {
			t.Errorf("Submit = %v, want DEADLINE_EXCEEDED with %q", err, "the coordinator is away")
		}
	})
}

// restarting loses its first stream before the answer. On the next one it says for each spec that
// it is stopping, the given number of times, and then accepts.
type restarting struct {
	lessorv1.UnimplementedTaskServiceServer
	streams, stops int
	wait           time.Duration
}

func (s *restarting) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	if s.streams++; s.streams == 1 {
		_, _ = stream.Recv()
		return errAway
	}
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		res := &lessorv1.SubmitStreamResponse{}
		for range req.GetTasks() {
			r := &lessorv1.SubmitResult{Created: true}
			if s.stops > 0 {
				r = &lessorv1.SubmitResult{Error: &lessorv1.SubmitError{
					Status: int32(codes.Unavailable), Code: "E.COORDINATOR.STOPPING", RetryAfter: durationpb.New(s.wait),
				}}
			}
			res.Results = append(res.Results, r)
		}
		s.stops--
		if err := stream.Send(res); err != nil {
			return err
		}
	}
}

// T1: a spec with an idempotency key is also sent again if the answer is that the coordinator is
// stopping, after the wait that it asks for. If ctx ends before that, the error does not claim that
// no task was created: an earlier try, whose answer was lost, may have created it.
func TestStoppingAfterALostAnswer(t *testing.T) {
	t.Attr("rules", "T1")
	for _, test := range []struct {
		name   string
		within time.Duration
		want   codes.Code
	}{{"in time", time.Minute, codes.OK}, {"too late", 5 * time.Second, codes.Unavailable}} {
		t.Run(test.name, func(t *testing.T) {
			withTaskService(t, &restarting{stops: 2, wait: 10 * time.Second}, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				begun := time.Now()
				_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
				if status.Code(err) != test.want || len(status.Convert(err).Details()) > 0 {
					t.Errorf("Submit = %v with %v, want %v without details", err, status.Convert(err).Details(), test.want)
				}
				if took := time.Since(begun); err == nil && took < 20*time.Second {
					t.Errorf("Submit took %v, want at least twice the retry_after of 10s", took)
				}
			})
		})
	}
}

// stopping says of its first frames that it is stopping, or that its store is gone: for each spec,
// or by the end of the stream. Then it accepts.
type stopping struct {
	lessorv1.UnimplementedTaskServiceServer
	stops  int
	reason string // code, without E.
	ends   bool   // the stream
}

func (s *stopping) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	for {
		if _, err := stream.Recv(); err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		result := &lessorv1.SubmitResult{Created: true}
		if s.stops--; s.stops >= 0 {
			result = &lessorv1.SubmitResult{Error: &lessorv1.SubmitError{
				Status: int32(codes.Unavailable), Code: "E." + s.reason, RetryAfter: durationpb.New(10 * time.Second),
			}}
			if s.ends {
				st, err := status.New(codes.Unavailable, "later").WithDetails(detail.ErrorInfo("E." + s.reason))
				if err != nil {
					return err
				}
				return st.Err()
			}
		}
		if err := stream.Send(&lessorv1.SubmitStreamResponse{Results: []*lessorv1.SubmitResult{result}}); err != nil {
			return err
		}
	}
}

// T1: a spec is sent again, with or without a key, if the coordinator says that it takes none: then
// no task was created. The error of a call that has no time for that still says so.
func TestCoordinatorThatTakesNone(t *testing.T) {
	t.Attr("rules", "T1")
	for name, test := range map[string]struct {
		coordinator stopping
		key         string
		within      time.Duration
		want        codes.Code
		reason      string
	}{
		"stopping":             {stopping{stops: 3, reason: "COORDINATOR.STOPPING"}, "", time.Hour, codes.OK, ""},
		"store gone":           {stopping{stops: 3, reason: "STORE.GONE"}, "", time.Hour, codes.OK, ""},
		"end of the stream":    {stopping{stops: 3, reason: "COORDINATOR.STOPPING", ends: true}, "", time.Hour, codes.OK, ""},
		"too late":             {stopping{stops: 3, reason: "COORDINATOR.STOPPING"}, "", time.Second, codes.Unavailable, "COORDINATOR_STOPPING"},
		"too late, with a key": {stopping{stops: 3, reason: "STORE.GONE"}, "k", 15 * time.Second, codes.Unavailable, "STORE_GONE"},
		"another reason":       {stopping{stops: 1, reason: "STORE.FAILED"}, "", time.Hour, codes.Unavailable, "STORE_FAILED"},
		"another end":          {stopping{stops: 1, reason: "STORE.FAILED", ends: true}, "", time.Hour, codes.Unavailable, ""},
	} {
		t.Run(name, func(t *testing.T) {
			withTaskService(t, &test.coordinator, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				defer func() { _ = p.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), test.within)
				defer cancel()
				_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: test.key})
				reason := detail.Of[*errdetails.ErrorInfo](status.Convert(err)).GetReason()
				if status.Code(err) != test.want || reason != test.reason {
					t.Errorf("Submit = %v, reason %q, want %v, %q", err, reason, test.want, test.reason)
				}
			})
		})
	}
}
