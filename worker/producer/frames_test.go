package producer_test

import (
	"context"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/producer"
)

// answering is a coordinator that answers each frame with what answer returns.
type answering struct {
	lessorv1.UnimplementedTaskServiceServer
	answer func(*lessorv1.SubmitStreamRequest) []*lessorv1.SubmitResult
}

func (a *answering) SubmitStream(
	stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse],
) error {
	for {
		req, err := stream.Recv()
		if err != nil {
			return nil //nolint:nilerr // the client has gone
		}
		if err := stream.Send(&lessorv1.SubmitStreamResponse{Results: a.answer(req)}); err != nil {
			return err
		}
	}
}

// withAnswers runs a test with a producer of such a coordinator, in a bubble of fake time.
func withAnswers(
	t *testing.T, answer func(*lessorv1.SubmitStreamRequest) []*lessorv1.SubmitResult,
	test func(t *testing.T, p *producer.Client),
) {
	t.Helper()
	withTaskService(t, &answering{answer: answer}, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		test(t, p)
	})
}

// A frame has at most 1 MiB, far below the largest message that a coordinator reads. A call whose
// caller has gone before its frame is not sent.
func TestFramesAreSmall(t *testing.T) {
	var mu sync.Mutex
	var sizes []int
	sent, room := map[string]bool{}, make(chan struct{})
	withAnswers(t, func(req *lessorv1.SubmitStreamRequest) (all []*lessorv1.SubmitResult) {
		<-room
		mu.Lock()
		defer mu.Unlock()
		sizes = append(sizes, proto.Size(req))
		for _, spec := range req.GetTasks() {
			sent[spec.GetTaskKey()] = true
			all = append(all, &lessorv1.SubmitResult{})
		}
		return all
	}, func(t *testing.T, p *producer.Client) {
		room = make(chan struct{}) // of this bubble
		gone, leave := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for _, key := range strings.Split("a b c d e f g gone", " ") {
			wg.Go(func() {
				ctx, size := t.Context(), 300<<10
				switch key {
				case "gone":
					ctx = gone
				case "c", "d": // already two of these are too many
					size = 600 << 10
				}
				_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q", TaskKey: key, Payload: make([]byte, size)})
				if (err != nil) != (key == "gone") {
					t.Errorf("%s: %v", key, err)
				}
			})
			synctest.Wait()
		}
		leave()
		synctest.Wait()
		close(room)
		wg.Wait()
		for _, size := range sizes {
			if size > 1<<20+1<<10 {
				t.Errorf("frames of %d bytes", sizes)
			}
		}
		if len(sent) != 7 || sent["gone"] {
			t.Errorf("%v were sent", sent)
		}
	})
}

// S7: a spec of 4 MiB less 1 KiB fits into the largest message that a coordinator reads by default.
// A larger one is refused before it is sent.
func TestLargestSpec(t *testing.T) {
	t.Attr("rules", "S7")
	const most = 4<<20 - 1<<10
	withAnswers(t, func(*lessorv1.SubmitStreamRequest) []*lessorv1.SubmitResult {
		return []*lessorv1.SubmitResult{{}}
	}, func(t *testing.T, p *producer.Client) {
		spec := &lessorv1.TaskSpec{Queue: "q", Payload: make([]byte, most)}
		spec.Payload = spec.Payload[:2*most-proto.Size(spec)]
		if _, err := p.Submit(t.Context(), spec); err != nil {
			t.Errorf("a spec of %d bytes: %v", proto.Size(spec), err)
		}
		spec.Payload = spec.Payload[:len(spec.Payload)+1]
		if _, err := p.Submit(t.Context(), spec); status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "the limit is 4193280") {
			t.Errorf("a spec of %d bytes: %v, want INVALID_ARGUMENT with the limit", proto.Size(spec), err)
		}
	})
}

// X5: a call that the quota refuses again and again ends with the refusal.
func TestSubmitGivesUp(t *testing.T) {
	t.Attr("rules", "X5")
	tries := 0
	withAnswers(t, func(*lessorv1.SubmitStreamRequest) []*lessorv1.SubmitResult {
		if tries++; tries > 100 {
			return []*lessorv1.SubmitResult{{}}
		}
		return []*lessorv1.SubmitResult{{Error: &lessorv1.SubmitError{
			Status: int32(codes.ResourceExhausted), Code: "E.QUOTA.SUBMITS", Message: "no", RetryAfter: durationpb.New(1e9),
		}}}
	}, func(t *testing.T, p *producer.Client) {
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); status.Code(err) != codes.ResourceExhausted || tries > 20 {
			t.Errorf("%v after %d tries", err, tries)
		}
	})
}

// T1: a spec with a key that got no decision is sent again after growing waits, also if the
// coordinator asks for none. A refusal of a repeat does not say whether the first try made the
// task.
func TestWaitsBetweenUndecidedTries(t *testing.T) {
	t.Attr("rules", "T1")
	tries := 0
	withAnswers(t, func(*lessorv1.SubmitStreamRequest) []*lessorv1.SubmitResult {
		e := &lessorv1.SubmitError{Status: int32(codes.Unavailable), Code: "E.STORE.FAILED", Message: "later"}
		if tries++; tries > 5 {
			e = &lessorv1.SubmitError{Status: int32(codes.PermissionDenied), Code: "E.AUTH.DENIED", Message: "no"}
		}
		return []*lessorv1.SubmitResult{{Error: e}}
	}, func(t *testing.T, p *producer.Client) {
		begun := time.Now()
		_, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
		if status.Code(err) != codes.Unavailable || !strings.Contains(err.Error(), "unknown whether the task was created: no") {
			t.Errorf("Submit = %v, want UNAVAILABLE, and that it is unknown whether the task was created", err)
		}
		const least = (50 + 100 + 200 + 400 + 800) * time.Millisecond / 2
		if took := time.Since(begun); took < least || took > 2*least {
			t.Errorf("five waits took %v, want %v to %v", took, least, 2*least)
		}
	})
}

// An answer that does not fit its frame ends the calls of the frame, and the stream: what it says
// further may not fit either.
func TestAnswerThatDoesNotFit(t *testing.T) {
	for name, results := range map[string][]*lessorv1.SubmitResult{"too many results": {{}, {}}, "too few results": nil} {
		t.Run(name, func(t *testing.T) {
			answers := [][]*lessorv1.SubmitResult{results, {{}}}
			service := &answering{answer: func(*lessorv1.SubmitStreamRequest) []*lessorv1.SubmitResult {
				next := answers[0]
				answers = answers[1:]
				return next
			}}
			withTaskService(t, service, func(t *testing.T, conn *grpc.ClientConn) {
				c := &timed{ClientConnInterface: conn}
				p := producer.New(c)
				defer func() { _ = p.Close() }()
				if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"}); status.Code(err) != codes.Internal {
					t.Errorf("Submit = %v, want INTERNAL", err)
				}
				if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil || len(c.opened) != 2 {
					t.Errorf("the next Submit = %v on stream %d, want none and 2", err, len(c.opened))
				}
			})
		})
	}
}
