package coordinator_test

import (
	"context"
	"errors"
	"net/http"
	"regexp"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// lowerRoom makes the room for submits of the coordinators that the test starts smaller, so that
// the test is quick.
func lowerRoom(t *testing.T, size int) {
	t.Helper()
	before := *coordinator.MostSubmitBytes
	t.Cleanup(func() { *coordinator.MostSubmitBytes = before })
	*coordinator.MostSubmitBytes = size
}

// heldRoom returns how many bytes of the room for submits are taken.
func heldRoom(r *wiretest.Rig) int {
	held, _ := r.SubmitLimiter.Usage()
	return held
}

// X5: on a slow disk, large frames on many streams and large batches from many callers wait in
// their clients: the coordinator reads only what has room. None of them gets an error, and all are
// answered when the disk is fast again. A call that does not submit needs no room.
func TestSubmitsWaitForRoom(t *testing.T) {
	t.Attr("rules", "X5")
	const size, callers, frames = 2 << 20, 40, 3
	lowerRoom(t, size)
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		large := []*lessorv1.TaskSpec{{Queue: "q", Payload: make([]byte, size/16)}}
		st.CommitTime.Store(int64(time.Minute))
		r.WantMetric(t, "lessor_submits_waiting", 0)
		ended := make(chan error, 2*callers)
		for range callers {
			go func() { ended <- submitFrames(t.Context(), r, large, frames) }()
			go func() {
				_, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: large})
				ended <- err
			}()
		}
		time.Sleep(10 * time.Second)
		if held := heldRoom(r); held < size/4 || held > size {
			t.Errorf("%d KiB of submits are held, want between %d and %d", held>>10, size>>12, size>>10)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.Tasks.SubmitTask(late, &lessorv1.SubmitTaskRequest{Task: large[0]}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a submit while the room is full: %v, want DEADLINE_EXCEEDED", err)
		}
		synctest.Wait()
		// whichever reaches the coordinator first
		gaveUp := regexp.MustCompile(`lessor_calls_total{code="(DeadlineExceeded|Canceled)",method="SubmitTask"} 1\n`)
		if !gaveUp.MatchString(wiretest.GetPath(t, r, "/metrics", http.StatusOK)) {
			t.Error("the submit that gave up is not counted")
		}
		if _, n := r.SubmitLimiter.Usage(); n == 0 {
			t.Error("no submit waits")
		} else {
			r.WantMetric(t, "lessor_submits_waiting", n)
		}
		other := make(chan error, 1)
		go func() {
			_, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: "t000020000000ffff"})
			other <- err
		}()
		st.CommitTime.Store(0)
		if err := <-other; status.Code(err) != codes.NotFound || len(ended) == 2*callers {
			t.Errorf("a cancel: %v, want NOT_FOUND before the submits are through", err)
		}
		for range 2 * callers {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if held := heldRoom(r); held != 0 {
			t.Errorf("at the end %d bytes are held", held)
		}
	})
}

// A6: a stop refuses the submits that wait for room, at once and in a way that says that nothing
// was done. Those that it has read are answered.
func TestStopRefusesSubmitsThatWaitForRoom(t *testing.T) {
	t.Attr("rules", "A6")
	const size, callers = 2 << 20, 40
	lowerRoom(t, size)
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		large := []*lessorv1.TaskSpec{{Queue: "q", Payload: make([]byte, size/8)}}
		st.CommitTime.Store(int64(3 * time.Second))
		ended := make(chan error, callers)
		for range callers {
			go func() {
				_, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: large})
				ended <- err
			}()
		}
		time.Sleep(time.Second)
		_, waiting := r.SubmitLimiter.Usage()
		r.Stop()
		synctest.Wait()
		if n := len(ended); waiting == 0 || n != waiting {
			t.Errorf("%d submits were answered at the stop, want the %d that waited", n, waiting)
		}
		created := 0
		for range callers {
			switch err := <-ended; {
			case err == nil:
				created++
			case status.Code(err) != codes.Unavailable || refusal.CodeOf(err) != refusal.CodeStopping:
				t.Errorf("a submit got %v, want UNAVAILABLE, %s", err, refusal.CodeStopping)
			}
		}
		if created != callers-waiting {
			t.Errorf("%d submits made a task, want the %d that had been read", created, callers-waiting)
		}
	})
}

// submitFrames sends frames on a stream, each as soon as the coordinator takes it, and waits for
// their answers.
func submitFrames(ctx context.Context, r *wiretest.Rig, tasks []*lessorv1.TaskSpec, frames int) error {
	stream, err := r.Tasks.SubmitStream(ctx)
	if err != nil {
		return err
	}
	go func() {
		for range frames {
			_ = stream.Send(&lessorv1.SubmitStreamRequest{Tasks: tasks}) // an error shows in Recv
		}
		_ = stream.CloseSend()
	}()
	for range frames {
		res, err := stream.Recv()
		if err != nil {
			return err
		}
		if e := res.GetResults()[0].GetError(); e != nil {
			return errors.New(e.GetMessage())
		}
	}
	_, _ = stream.Recv() // until the stream has ended
	return nil
}

// X5: a producer that does not read its answers keeps no room.
func TestUnreadAnswersKeepNoRoom(t *testing.T) {
	t.Attr("rules", "X5")
	const window = 8 // frames of a stream that wait for their answers
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.Tasks.SubmitStream(ctx)
		if err != nil {
			t.Fatal(err)
		}
		var sent atomic.Int64
		many := slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q"}}, 100)
		go func() {
			for stream.Send(&lessorv1.SubmitStreamRequest{Tasks: many}) == nil {
				sent.Add(1)
			}
		}()
		time.Sleep(time.Second) // longer than room is kept for a message that does not come
		if held := heldRoom(r); held != 0 || int(sent.Load()) < window {
			t.Errorf("%d bytes are held after %d frames, want none after a full window", held, sent.Load())
		}
	})
}
