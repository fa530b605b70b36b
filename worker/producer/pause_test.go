package producer_test

import (
	"context"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

var errAway = status.Error(codes.Unavailable, "the coordinator is away")

// timed is a connection that records when the client opens streams. The first refused streams fail
// to open.
type timed struct {
	grpc.ClientConnInterface
	refused int
	opened  []time.Time
}

func (c *timed) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	c.opened = append(c.opened, time.Now())
	if len(c.opened) <= c.refused {
		return nil, errAway
	}
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// While no stream lives until its first answer, the client waits before it opens the next one: 25
// to 50 ms at first, then twice as long each time, at most 5 s. After a stream with an answer, the
// waits begin again with the shortest.
func TestWaitsBetweenStreams(t *testing.T) {
	const losses = 12
	for name, test := range map[string]struct {
		refused int
		frames  []int
	}{
		"streams end":         {0, append(make([]int, losses), 1, 1)},
		"streams do not open": {losses, []int{1, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			withTaskService(t, &scripted{frames: test.frames, end: errAway}, func(t *testing.T, conn *grpc.ClientConn) {
				c := &timed{ClientConnInterface: conn, refused: test.refused}
				p := producer.New(c)
				defer func() { _ = p.Close() }()
				for _, key := range []string{"a", "b"} { // the stream with the answer to a ends before the answer to b
					if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: key}); err != nil {
						t.Fatal(err)
					}
				}
				if len(c.opened) != losses+2 {
					t.Fatalf("%d streams were opened, want %d", len(c.opened), losses+2)
				}
				most := 50 * time.Millisecond
				for i, at := range c.opened[1:] {
					if i == losses {
						most = 50 * time.Millisecond
					}
					if wait := at.Sub(c.opened[i]); wait < most/2 || wait > most {
						t.Errorf("stream %d was opened %v after the one before, want %v to %v", i+1, wait, most/2, most)
					}
					most = min(2*most, 5*time.Second)
				}
			})
		})
	}
}

// While no stream can be opened nothing is sent, so a call waits for one, also without an
// idempotency key, until its context ends.
func TestWhatWasNotSentWaits(t *testing.T) {
	withTaskService(t, &scripted{frames: []int{1}}, func(t *testing.T, conn *grpc.ClientConn) {
		p := producer.New(&timed{ClientConnInterface: conn, refused: 50})
		defer func() { _ = p.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		_, err := p.Submit(ctx, &lessorv1.TaskSpec{Queue: "q"})
		if st := status.Convert(err); st.Code() != codes.DeadlineExceeded || !strings.Contains(st.Message(), "the coordinator is away") {
			t.Errorf("Submit = %v, want DEADLINE_EXCEEDED with the reason why there is no stream", err)
		}
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
			t.Errorf("Submit without a deadline = %v, want the result once a stream opens", err)
		}
	})
}

// silent is a coordinator that answers no frame.
type silent struct {
	lessorv1.UnimplementedTaskServiceServer
}

func (silent) SubmitStream(stream grpc.BidiStreamingServer[lessorv1.SubmitStreamRequest, lessorv1.SubmitStreamResponse]) error {
	<-stream.Context().Done()
	return nil
}

// Close returns at once, and so do all calls in progress: those that were sent, those that wait for
// room in the window, and those that wait for the next stream. They fail with CANCELLED: it is
// unknown whether their tasks were created.
func TestCloseEndsCalls(t *testing.T) {
	for name, service := range map[string]lessorv1.TaskServiceServer{
		"no answer comes": silent{},
		"streams end":     &scripted{frames: make([]int, 100), end: errAway},
	} {
		t.Run(name, func(t *testing.T) {
			withTaskService(t, service, func(t *testing.T, conn *grpc.ClientConn) {
				p := producer.New(conn)
				const calls = 5
				ended := make(chan error, calls)
				for range calls {
					go func() {
						_, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
						ended <- err
					}()
					synctest.Wait() // so each call has its own frame
				}
				time.Sleep(time.Minute) // if the streams end, the client is in a wait of 2.5 to 5 s
				begin := time.Now()
				if err := p.Close(); err != nil {
					t.Error(err)
				}
				for range calls {
					if err := <-ended; status.Code(err) != codes.Canceled {
						t.Errorf("Submit = %v, want CANCELLED", err)
					}
				}
				if took := time.Since(begin); took != 0 {
					t.Errorf("the calls ended %v after Close began, want at once", took)
				}
			})
		})
	}
}

// Calls race with Close: each either gets its result or fails because the client is closed, and
// none hangs.
func TestCallsRaceWithClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		for range 20 {
			p := producer.New(c.Conn())
			var results atomic.Int32
			var wg sync.WaitGroup
			for range 8 {
				wg.Go(func() {
					for {
						r, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"})
						if err != nil {
							if r != nil || status.Code(err) != codes.Canceled || !strings.Contains(err.Error(), "the producer is closed") {
								t.Errorf("Submit = %v, %v; want no result, and CANCELLED: the producer is closed", r, err)
							}
							return
						}
						if results.Add(1) == 50 {
							wg.Go(func() { _ = p.Close() })
						}
					}
				})
			}
			wg.Wait()
		}
	})
}
