package producer_test

import (
	"context"
	"errors"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker/producer"
	"github.com/lessor-dev/lessor/worker/workertest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// counting counts the frames that a client sends.
type counting struct {
	grpc.ClientConnInterface
	mu     sync.Mutex
	frames int
}

func (c *counting) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return &countingStream{s, c}, err
}

type countingStream struct {
	grpc.ClientStream
	c *counting
}

func (s *countingStream) SendMsg(m any) error {
	s.c.mu.Lock()
	s.c.frames++
	s.c.mu.Unlock()
	return s.ClientStream.SendMsg(m)
}

// S1: calls of many goroutines share frames, and each gets the result of its own spec. More calls
// than a frame may have specs take several frames. All wait while the stream for the first call
// opens: otherwise how many share a frame would depend on how fast they are.
func TestConcurrentSubmitsShareFrames(t *testing.T) {
	t.Attr("rules", "S1")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		held := &slow{c.Conn(), make(chan struct{})}
		conn := &counting{ClientConnInterface: held}
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		const n = 1201
		ids := make([]string, n)
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				r, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", TaskKey: strconv.Itoa(i)})
				if err != nil {
					t.Error(err)
				}
				ids[i] = r.GetTaskId()
			})
			if i == 0 {
				synctest.Wait()
			}
		}
		synctest.Wait()
		close(held.open)
		wg.Wait()
		seen := map[string]bool{}
		for i, id := range ids {
			if seen[id] {
				t.Fatalf("two calls got task %s, want one task for each call", id)
			}
			seen[id] = true
			if key := c.Task(id).GetSpec().GetTaskKey(); i%100 == 0 && key != strconv.Itoa(i) {
				t.Errorf("call %d got the task of call %s", i, key)
			}
		}
		if want := 1 + 3; conn.frames != want { // the first call, and 500, 500 and 200 others
			t.Errorf("%d calls took %d frames, want %d", n, conn.frames, want)
		}
	})
}

// S4: if the coordinator refuses a spec, its call fails with the status that SubmitTask returns,
// with all of its details, and calls that share its frame do not; a spec that cannot be sent gets a
// status of the same kind. No stream opens before all of them wait, so that they share frames. T1:
// a repeat with the same idempotency key gets the first task.
func TestRefusalFailsOnlyItsCall(t *testing.T) {
	t.Attr("rules", "S4 T1")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		conn := &slow{c.Conn(), make(chan struct{})}
		shared := producer.New(conn)
		p := producer.New(c.Conn())
		defer func() { _ = errors.Join(p.Close(), shared.Close()) }()
		first, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
		if err != nil || !first.GetCreated() {
			t.Fatalf("Submit = %v, %v; want a task that was created", first, err)
		}
		again, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
		if err != nil || again.GetCreated() || again.GetTaskId() != first.GetTaskId() {
			t.Errorf("Submit with the same key = %v, %v; want the first task, not created", again, err)
		}
		var wg sync.WaitGroup
		for name, test := range map[string]struct {
			spec  *lessorv1.TaskSpec
			local bool // it is not sent
			field string
		}{
			"no queue":          {&lessorv1.TaskSpec{}, false, "task.queue"},
			"bad label":         {&lessorv1.TaskSpec{Queue: "q", Labels: map[string]string{"": "x"}}, false, "task.labels"},
			"bad workspace":     {&lessorv1.TaskSpec{Queue: "q", WorkspaceId: "\n"}, false, "task.workspace_id"},
			"another spec":      {&lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k", Type: "x"}, false, "task.idempotency_key"},
			"too large":         {&lessorv1.TaskSpec{Queue: "q", Payload: make([]byte, 2<<20)}, false, "task.payload"},
			"far too large":     {&lessorv1.TaskSpec{Queue: "q", Payload: make([]byte, 5<<20)}, true, "task"},
			"no UTF-8":          {&lessorv1.TaskSpec{Queue: "\xff"}, true, "task.queue"},
			"no UTF-8 in lists": {&lessorv1.TaskSpec{Queue: "q", ResourceRefs: []*lessorv1.ResourceRef{{}, {Type: "\xff"}}}, true, "task.resource_refs[1].type"},
			"no UTF-8 in a key": {&lessorv1.TaskSpec{Queue: "q", Labels: map[string]string{"\xff": ""}}, true, "task.labels"},
			"no UTF-8 in maps":  {&lessorv1.TaskSpec{Queue: "q", Labels: map[string]string{"[\"": "\xff"}}, true, "task.labels"},
		} {
			wg.Go(func() {
				_, err := shared.Submit(t.Context(), test.spec)
				st := status.Convert(err)
				if field, _ := detail.Field(st); field != test.field {
					t.Errorf("%s: %v of field %q, want %q", name, err, field, test.field)
				}
				if test.local {
					code := detail.Of[*errdetails.ErrorInfo](st).GetMetadata()["code"]
					if st.Code() != codes.InvalidArgument || code != "E.REQUEST.INVALID" || !strings.HasPrefix(st.Message(), test.field+": ") {
						t.Errorf("%s: %v with the code %s, want INVALID_ARGUMENT, E.REQUEST.INVALID and the field at the beginning", name, err, code)
					}
					return
				}
				_, err = lessorv1.NewTaskServiceClient(c.Conn()).SubmitTask(t.Context(),
					&lessorv1.SubmitTaskRequest{Task: test.spec})
				if want := status.Convert(err); st.Code() != want.Code() || st.Message() != want.Message() || !slices.EqualFunc(st.Details(), want.Details(), equal) {
					t.Errorf("%s: Submit = %v %v, want what SubmitTask returns: %v %v",
						name, st, st.Details(), want, want.Details())
				}
			})
			wg.Go(func() {
				if _, err := shared.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
					t.Errorf("Submit of a good spec in the same frame = %v", err)
				}
			})
		}
		synctest.Wait()
		close(conn.open)
		wg.Wait()
	})
}

// equal compares two details.
func equal(a, b any) bool { return proto.Equal(a.(proto.Message), b.(proto.Message)) }

// cutting is a connection whose streams break at every tenth answer: the coordinator has made the
// tasks, and the client does not learn it.
type cutting struct {
	grpc.ClientConnInterface
	answers atomic.Int32
}

func (c *cutting) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, err := c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
	return &cuttingStream{s, c}, err
}

type cuttingStream struct {
	grpc.ClientStream
	c *cutting
}

func (s *cuttingStream) RecvMsg(m any) error {
	if err := s.ClientStream.RecvMsg(m); err != nil {
		return err
	}
	if s.c.answers.Add(1)%10 == 0 {
		return status.Error(codes.Unavailable, "the connection was cut")
	}
	return nil
}

// T1, A6: streams break before their answers come, and the coordinator restarts. A spec with an
// idempotency key is made exactly once, and its call succeeds. A spec without a key is made at most
// once: its call gets the task or UNAVAILABLE. A task that a call has got is there afterwards.
func TestRestartsNeitherLoseNorRepeatTasks(t *testing.T) {
	t.Attr("rules", "A6 T1")
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		p := producer.New(&cutting{ClientConnInterface: c.Conn()})
		defer func() { _ = p.Close() }()
		var wg sync.WaitGroup
		var mu sync.Mutex
		keyOf := map[string]string{} // the number of the call, by the id of the task that it got
		for i := range 400 {
			wg.Go(func() {
				time.Sleep(time.Duration(i) * time.Millisecond)
				key := ""
				if i%2 == 0 {
					key = "k" + strconv.Itoa(i)
				}
				r, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: key, TaskKey: strconv.Itoa(i)})
				switch {
				case err == nil:
					mu.Lock()
					keyOf[r.GetTaskId()] = strconv.Itoa(i)
					mu.Unlock()
				case key != "" || status.Code(err) != codes.Unavailable:
					t.Errorf("call %d with idempotency key %q: Submit = %v, want success, or UNAVAILABLE without a key",
						i, key, err)
				}
			})
		}
		for range 5 {
			time.Sleep(60 * time.Millisecond)
			c.Restart()
		}
		wg.Wait()
		res, err := lessorv1.NewTaskServiceClient(c.Conn()).ListTasks(t.Context(), &lessorv1.ListTasksRequest{PageSize: 1000})
		if err != nil || res.GetNextPageToken() != "" {
			t.Fatalf("ListTasks = %d tasks, next page %q, %v; want one page", len(res.GetTasks()), res.GetNextPageToken(), err)
		}
		made, keys := map[string]int{}, map[string]string{}
		for _, task := range res.GetTasks() {
			made[task.GetSpec().GetTaskKey()]++
			keys[task.GetTaskId()] = task.GetSpec().GetTaskKey()
		}
		for i := range 400 {
			if n := made[strconv.Itoa(i)]; n > 1 || i%2 == 0 && n == 0 {
				t.Errorf("the spec of call %d was made %d times, want once, or never if it has no idempotency key", i, n)
			}
		}
		for id, key := range keyOf {
			if got := keys[id]; got != key {
				t.Errorf("task %s, which call %s got, has the task key %q, want %q", id, key, got, key)
			}
		}
		if len(keyOf) < 200 || len(keyOf) == 400 {
			t.Errorf("%d calls succeeded, want the 200 with an idempotency key, and not all without one", len(keyOf))
		}
	})
}

// slow is a connection that opens no stream before open is closed.
type slow struct {
	grpc.ClientConnInterface
	open chan struct{}
}

func (c *slow) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	<-c.open
	return c.ClientConnInterface.NewStream(ctx, desc, method, opts...)
}

// The caller may change a spec after Submit has returned, even if the spec has not been sent yet:
// the task is made of what was submitted. Here the caller gives up before a stream opens, and
// changes the spec.
func TestSubmitCopiesTheSpec(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		conn := &slow{c.Conn(), make(chan struct{})}
		p := producer.New(conn)
		defer func() { _ = p.Close() }()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		spec := &lessorv1.TaskSpec{Queue: "q", TaskKey: "one", IdempotencyKey: "one"}
		if _, err := p.Submit(ctx, spec); status.Code(err) != codes.DeadlineExceeded {
			t.Fatalf("Submit = %v, want DEADLINE_EXCEEDED", err)
		}
		spec.TaskKey = "two"
		close(conn.open)
		result, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q", TaskKey: "one", IdempotencyKey: "one"})
		if err != nil || result.GetCreated() {
			t.Errorf("Submit with the same key = %v, %v, want the task of the first call", result, err)
		}
	})
}

// Submit with a context that has ended fails at once with CANCELLED and sends nothing, and later
// calls work. After Close, which may be called twice, Submit fails.
func TestSubmitAfterCancelAndClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		conn := &timed{ClientConnInterface: c.Conn()}
		p := producer.New(conn)
		gone, leave := context.WithCancel(t.Context())
		leave()
		if _, err := p.Submit(gone, &lessorv1.TaskSpec{Queue: "q"}); status.Code(err) != codes.Canceled {
			t.Errorf("Submit with a cancelled context = %v, want CANCELLED", err)
		}
		if synctest.Wait(); len(conn.opened) != 0 {
			t.Error("a stream was opened for a call whose context had ended")
		}
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); err != nil {
			t.Error(err)
		}
		if err := errors.Join(p.Close(), p.Close()); err != nil {
			t.Error(err)
		}
		if _, err := p.Submit(t.Context(), &lessorv1.TaskSpec{Queue: "q"}); status.Code(err) != codes.Canceled {
			t.Errorf("Submit after Close = %v, want CANCELLED", err)
		}
	})
}

// hanging is a connection whose source of credentials ignores its context and returns only when
// letGo is closed.
type hanging struct {
	grpc.ClientConnInterface
	letGo chan struct{}
}

func (h hanging) NewStream(
	ctx context.Context, desc *grpc.StreamDesc, method string, opts ...grpc.CallOption,
) (grpc.ClientStream, error) {
	return h.ClientConnInterface.NewStream(ctx, desc, method, append(opts, grpc.PerRPCCredentials(h))...)
}

func (h hanging) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	<-h.letGo
	return nil, nil
}

func (hanging) RequireTransportSecurity() bool { return false }

// A source of credentials that hangs delays neither Submit beyond its context nor Close. The client
// does not keep the specs of calls that have given up.
func TestCredentialsThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := workertest.Start(t)
		conn := hanging{c.Conn(), make(chan struct{})}
		p := producer.New(conn)
		spec := &lessorv1.TaskSpec{Queue: "q", Payload: make([]byte, 1<<20)}
		before := heap()
		for range 100 {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			_, err := p.Submit(ctx, spec)
			if status.Code(err) != codes.DeadlineExceeded || !strings.Contains(err.Error(), "no stream to the coordinator was opened") {
				t.Errorf("Submit = %v, want DEADLINE_EXCEEDED, since no stream has opened", err)
			}
			cancel()
		}
		if kept := heap() - before; kept > 50<<20 {
			t.Errorf("100 calls of 1 MiB that gave up keep %d MiB of the heap, want at most 50", kept>>20)
		}
		last := make(chan error, 1)
		go func() { _, err := p.Submit(t.Context(), spec); last <- err }()
		synctest.Wait()
		closed := make(chan struct{})
		go func() { defer close(closed); _ = p.Close() }()
		synctest.Wait()
		select {
		case <-closed:
			if err := <-last; status.Code(err) != codes.Canceled {
				t.Errorf("Submit = %v, want CANCELLED", err)
			}
		default:
			t.Error("Close waits for the source of credentials, want it to return at once")
		}
		close(conn.letGo)
		<-closed
	})
}

// heap returns how many bytes of the heap are in use.
func heap() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
