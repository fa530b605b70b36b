package coordinator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// held returns how many bytes of the room are taken.
func (r *submitRoom) held() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size - r.free
}

// mustTake takes room for a test that does not have to wait for it.
func mustTake(t *testing.T, r *submitRoom, tenant string, bytes int) *roomPlace {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
	defer cancel()
	p, err := r.take(ctx, tenant, bytes)
	if err != nil {
		t.Fatalf("no room for %d bytes of %s: %v", bytes, tenant, err)
	}
	return p
}

// X5: on a slow disk, large frames on many streams and large batches from many callers wait in their clients: the coordinator reads only what has room. None
// of them gets an error, and all are answered when the disk is fast again. A call that does not submit needs no room.
func TestSubmitsWaitForRoom(t *testing.T) {
	t.Attr("rules", "X5")
	st := &slowStore{Store: memstore.New()}
	serve(t, st, func(t *testing.T, r *rig) {
		const size, callers, frames = 2 << 20, 40, 3
		room := r.edge.room
		room.size, room.free, room.guess = size, size, size/8 // smaller, so that the test is quick
		large := []*lessorv1.TaskSpec{{Queue: "q", Payload: make([]byte, size/16)}}
		st.commitTime.Store(int64(time.Minute))
		r.wantMetric(t, "lessor_submits_waiting", 0)
		ended := make(chan error, 2*callers)
		for range callers {
			go func() { ended <- r.submitFrames(t.Context(), large, frames) }()
			go func() {
				_, err := r.tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: large})
				ended <- err
			}()
		}
		time.Sleep(10 * time.Second)
		if held := room.held(); held < size/4 || held > size {
			t.Errorf("%d KiB of submits are held, want between %d and %d", held>>10, size>>12, size>>10)
		}
		late, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.tasks.SubmitTask(late, &lessorv1.SubmitTaskRequest{Task: large[0]}); status.Code(err) != codes.DeadlineExceeded {
			t.Errorf("a submit while the room is full: %v, want DEADLINE_EXCEEDED", err)
		}
		synctest.Wait()
		gaveUp := regexp.MustCompile(`lessor_calls_total{code="(DeadlineExceeded|Canceled)",method="SubmitTask"} 1\n`) // whichever reaches the coordinator first
		if !gaveUp.MatchString(getPath(t, r, "/metrics", http.StatusOK)) {
			t.Error("the submit that gave up is not counted")
		}
		if n := room.waits(); n == 0 {
			t.Error("no submit waits")
		} else {
			r.wantMetric(t, "lessor_submits_waiting", n)
		}
		other := make(chan error, 1)
		go func() {
			_, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: "t000020000000ffff"})
			other <- err
		}()
		st.commitTime.Store(0)
		if err := <-other; status.Code(err) != codes.NotFound || len(ended) == 2*callers {
			t.Errorf("a cancel: %v, want NOT_FOUND before the submits are through", err)
		}
		for range 2 * callers {
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
		if held := room.held(); held != 0 {
			t.Errorf("at the end %d bytes are held", held)
		}
	})
}

// A6: a stop refuses the submits that wait for room, at once and in a way that says that nothing was done. Those that it has read are answered.
func TestStopRefusesSubmitsThatWaitForRoom(t *testing.T) {
	t.Attr("rules", "A6")
	st := &slowStore{Store: memstore.New()}
	serve(t, st, func(t *testing.T, r *rig) {
		const size, callers = 2 << 20, 40
		room := r.edge.room
		room.size, room.free, room.guess = size, size, size/8
		large := []*lessorv1.TaskSpec{{Queue: "q", Payload: make([]byte, size/8)}}
		st.commitTime.Store(int64(3 * time.Second))
		ended := make(chan error, callers)
		for range callers {
			go func() {
				_, err := r.tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: large})
				ended <- err
			}()
		}
		time.Sleep(time.Second)
		waiting := room.waits()
		r.stop()
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

// submitFrames sends frames on a stream, each as soon as the coordinator takes it, and waits for their answers.
func (r *rig) submitFrames(ctx context.Context, tasks []*lessorv1.TaskSpec, frames int) error {
	stream, err := r.tasks.SubmitStream(ctx)
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
	serve(t, nil, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.tasks.SubmitStream(ctx)
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
		time.Sleep(2 * expectFor)
		if held := r.edge.room.held(); held != 0 || int(sent.Load()) < submitWindow {
			t.Errorf("%d bytes are held after %d frames, want none after a full window", held, sent.Load())
		}
	})
}

// X5, T12: tenants that wait for room take turns: the one that has the least of it is first, and each waits in its own order. No tenant has more than half.
func TestTenantsShareTheRoom(t *testing.T) {
	t.Attr("rules", "X5 T12")
	synctest.Test(t, func(t *testing.T) {
		r := newSubmitRoom(4<<20, nil)
		mine := mustTake(t, r, "a", r.size/2)
		mine.arrived(r.size / 2)
		var mu sync.Mutex
		var got []string
		var places []*roomPlace
		wait := func(tenant, name string, bytes int) {
			go func() {
				p, err := r.take(t.Context(), tenant, bytes)
				if err != nil {
					t.Error(err)
					return
				}
				p.arrived(bytes)
				mu.Lock()
				defer mu.Unlock()
				got, places = append(got, name), append(places, p)
			}()
			synctest.Wait()
		}
		wait("a", "a1", r.size/4)
		wait("a", "a2", r.size/4)
		if len(got) != 0 {
			t.Errorf("%v got room, while their tenant has half of it", got)
		}
		wait("b", "b1", r.size/4)
		wait("c", "c1", r.size/4)
		wait("b", "b2", r.size/4) // a has the most, then b
		wait("c", "c2", r.size/4)
		if want := []string{"b1", "c1"}; !slices.Equal(got, want) {
			t.Errorf("%v got room, want %v", got, want)
		}
		mine.leave()
		synctest.Wait()
		if len(got) != 4 || !slices.Contains(got, "a1") {
			t.Errorf("%v got room, want b1, c1, a1, and one of b2 and c2", got)
		}
		for len(places) > 0 {
			p := places[0]
			places = places[1:]
			p.leave()
			synctest.Wait()
		}
		if len(got) != 6 || r.held() != 0 || len(r.tenants) != 0 {
			t.Errorf("%v got room; at the end %d bytes are held, by %d tenants", got, r.held(), len(r.tenants))
		}
	})
}

// X5: room is kept only for a while for a message that does not come. When it comes after that, it takes its room all the same. A message that is larger than
// the room is taken if the room is empty, and a caller that gives up leaves the line.
func TestRoomForExpectedMessages(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		r := newSubmitRoom(4<<20, nil)
		idle := mustTake(t, r, "a", r.size)
		begin := time.Now()
		next, err := r.take(t.Context(), "a", r.size)
		if waited := time.Since(begin); err != nil || waited < expectFor || waited > 2*expectFor {
			t.Errorf("the next message waited for %v (%v), want about %v", waited, err, expectFor)
		}
		idle.arrived(r.size)
		if want := r.size + r.size/2; r.held() != want { // the next one got less, as the first one had not come
			t.Errorf("%d bytes are held, want %d", r.held(), want)
		}
		next.arrived(1)
		brief, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := r.take(brief, "a", 1); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("a take while the room is full: %v", err)
		}
		if _, err := r.take(brief, "a", 1); err == nil {
			t.Error("a take after the end of its context has succeeded")
		}
		mustTake(t, r, "b", r.size).leave() // the first message of a tenant waits for nobody
		idle.leave()
		next.leave()
		next.leave() // changes nothing
		mustTake(t, r, "b", 10*r.size).leave()
		if r.held() != 0 || len(r.tenants) != 0 || r.waiting != 0 {
			t.Errorf("at the end %d bytes are held by %d tenants, and %d wait", r.held(), len(r.tenants), r.waiting)
		}
	})
}

// X5: when many streams are opened at once, of which most have nothing to send yet, others do not wait for long. If large messages come, room is kept for each.
func TestManyIdleStreams(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		const streams, most = 1000, 4 << 20
		r := newSubmitRoom(most, nil)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		open := func(n int, then func(*roomPlace)) {
			for range n {
				go func() {
					p, err := r.take(ctx, "a", most)
					if err != nil {
						return
					}
					defer p.leave()
					then(p)
				}()
			}
			synctest.Wait()
		}
		idle := func(*roomPlace) { <-ctx.Done() }
		open(streams, idle)
		begin := time.Now()
		p, err := r.take(ctx, "a", 1)
		if err != nil {
			t.Fatal(err)
		}
		p.leave()
		if waited := time.Since(begin); waited > 10*expectFor {
			t.Errorf("a small submit waited for %v", waited)
		}
		time.Sleep(2 * expectFor)
		open(streams, func(p *roomPlace) {
			p.arrived(most)
			time.Sleep(time.Minute)
		})
		if held := r.held(); held > r.size/2 {
			t.Errorf("%d MiB of large messages are held, want at most %d", held>>20, r.size>>21)
		}
		time.Sleep(time.Minute)
		if held := r.held(); held > r.size/2 {
			t.Errorf("%d MiB of the next messages are held, want at most %d", held>>20, r.size>>21)
		}
		cancel()
		time.Sleep(2 * time.Minute)
		if r.held() != 0 || r.waits() != 0 || len(r.tenants) != 0 {
			t.Errorf("at the end %d bytes are held by %d tenants, and %d wait", r.held(), len(r.tenants), r.waits())
		}
	})
}

// X5: whatever submits do, and whenever they give up, the room that each tenant has adds up to what is not free, and at the end all of it is free. Nobody waits
// for ever.
func TestRoomAddsUp(t *testing.T) {
	t.Attr("rules", "X5")
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			stopping := make(chan struct{})
			r := newSubmitRoom(4<<20, stopping)
			r.size, r.free = 1<<20, 1<<20
			adds := func() {
				r.mu.Lock()
				defer r.mu.Unlock()
				sum := 0
				for _, of := range r.tenants {
					sum += of.bytes
				}
				if sum != r.size-r.free {
					t.Errorf("seed %d: the tenants have %d bytes, and %d of %d are free", seed, sum, r.free, r.size)
				}
			}
			var all sync.WaitGroup
			for n := range uint64(30) {
				random := rand.New(rand.NewPCG(seed, n))
				upTo := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
				all.Go(func() {
					for range 20 {
						ctx, cancel := context.WithTimeout(t.Context(), upTo(3*time.Second))
						p, err := r.take(ctx, fmt.Sprint(random.IntN(4)), random.IntN(3)*random.IntN(r.size/2))
						cancel()
						if err != nil {
							continue
						}
						time.Sleep(upTo(3 * expectFor))
						if random.IntN(3) > 0 {
							p.arrived(random.IntN(r.size))
							time.Sleep(upTo(expectFor))
						}
						adds()
						p.leave()
						adds()
					}
				})
			}
			if seed%4 == 0 {
				time.Sleep(3 * time.Second)
				close(stopping)
			}
			all.Wait()
			if r.free != r.size || r.waiting != 0 || len(r.tenants) != 0 {
				t.Errorf("seed %d: at the end %d of %d bytes are free, %d submits wait, and %d tenants have room; want all, and none", seed, r.free, r.size, r.waiting, len(r.tenants))
			}
			time.Sleep(expectFor) // the last look
		})
	}
}
