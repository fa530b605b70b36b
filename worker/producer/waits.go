package producer

import (
	"context"
	"math"
	"runtime"
	"slices"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// maxAdded is how many ids a request adds or forgets. Every coordinator accepts as many.
const maxAdded = 1000

// waits are the Waits of a client in progress. They share a stream on which the coordinator tells
// the ends of their tasks. Its goroutine runs from the first Wait until Close, or until the last
// Wait after that.
type waits struct {
	tasks   lessorv1.TaskServiceClient
	trouble *trouble
	wake    chan struct{} // holds a token while changed has something new

	mu      sync.Mutex
	of      map[string][]*wait  // by task id
	changed map[string]struct{} // ids of which the coordinator has to be told whether somebody waits for them
	sent    uint64              // requests of this stream
	err     error               // why the last stream was lost or could not be opened; nil while there is one
	stop    context.CancelFunc  // ends the goroutine; nil if none runs
	done    chan struct{}       // closed when it has ended
	closed  bool                // Close was called
}

// wait is one Wait in progress.
type wait struct {
	added  uint64 // number of the request that has added its task to the stream, or unsent
	answer chan answer
}

// unsent is the number of a request that was not sent on this stream yet.
const unsent = math.MaxUint64

// answer is the answer to a Wait. The zero answer says that there is none.
type answer struct {
	task  *lessorv1.Task
	large bool // it has ended, and is too large for the stream
	err   error
}

func newWaits(tasks lessorv1.TaskServiceClient, trouble *trouble) *waits {
	return &waits{
		tasks:   tasks,
		trouble: trouble,
		wake:    make(chan struct{}, 1),
		of:      map[string][]*wait{},
		changed: map[string]struct{}{},
	}
}

// wait returns the answer about a task; the zero answer if ctx ends before.
func (s *waits) wait(ctx context.Context, id string) answer {
	w := &wait{added: unsent, answer: make(chan answer, 1)}
	s.mu.Lock()
	s.of[id] = append(s.of[id], w)
	s.changeLocked(id)
	s.runLocked()
	s.mu.Unlock()
	select {
	case a := <-w.answer:
		return a
	case <-ctx.Done():
		s.leave(id, w)
		return answer{}
	}
}

// lastErr returns why there is no stream; nil if there is one.
func (s *waits) lastErr() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *waits) leave(id string, w *wait) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := slices.DeleteFunc(s.of[id], func(other *wait) bool { return other == w })
	if s.keepLocked(id, left) == 0 {
		s.changeLocked(id)
	}
}

// keepLocked stores who still waits for a task, and returns how many.
func (s *waits) keepLocked(id string, left []*wait) int {
	if s.of[id] = left; len(left) == 0 {
		delete(s.of, id)
		s.stopLocked()
	}
	return len(left)
}

// changeLocked notes that the coordinator has to be told of a task.
func (s *waits) changeLocked(id string) {
	s.changed[id] = struct{}{}
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// runLocked starts the goroutine if it does not run.
func (s *waits) runLocked() {
	if s.stop != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	before, done := s.done, make(chan struct{})
	s.stop, s.done, s.err = stop, done, nil
	go func() {
		defer close(done)
		if before != nil {
			<-before // was stopped, and must not take the answers of this one
		}
		s.run(ctx)
	}()
}

// stopLocked ends the goroutine if the client was closed and nobody waits any more.
func (s *waits) stopLocked() {
	if s.closed && len(s.of) == 0 && s.stop != nil {
		s.stop()
		s.stop = nil
	}
}

// close lets the goroutine end with the last Wait. If there is none, it waits until the goroutine
// has ended.
func (s *waits) close() {
	s.mu.Lock()
	s.closed = true
	s.stopLocked()
	done := s.done
	if s.stop != nil {
		done = nil
	}
	s.mu.Unlock()
	if done != nil {
		<-done
	}
}

// run opens a stream after the other.
func (s *waits) run(ctx context.Context) {
	for failures := 0; ; failures++ {
		began, err := s.stream(ctx)
		if began {
			failures = 0
		}
		pause, ok := waitAgain(ctx, err, began, failures)
		if !s.lost(ctx, err, !ok) {
			return
		}
		// without the lock: the handler of the log is the program's, and may block or Wait; but
		// Close waits for it
		s.trouble.tell(err)
		sleep(ctx, pause)
	}
}

// lost notes why a stream was lost, and answers all Waits with that if it is final. It returns
// false, and the goroutine must end, if nobody waits.
func (s *waits) lost(ctx context.Context, err error, final bool) (goOn bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ctx.Err() != nil { // stopLocked was here; who waits now, waits for the next goroutine
		return false
	}
	s.err = err
	if final {
		for _, all := range s.of {
			for _, w := range all {
				w.answer <- answer{err: err}
			}
		}
		clear(s.of)
	}
	if len(s.of) > 0 {
		return true
	}
	s.stop()
	s.stop = nil
	return false
}

// stream opens a stream, and serves the Waits until it ends. began says that the coordinator has
// accepted it.
func (s *waits) stream(ctx context.Context) (began bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := open(ctx, func() (awaitStream, error) { return s.tasks.AwaitTasks(ctx) })
	if err != nil {
		return false, err
	}
	s.renew()
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		began, err = s.receive(stream)
	}()
	for {
		select {
		case <-s.wake:
		case <-ended:
			return began, err
		}
		runtime.Gosched() // callers that were answered together come back together: see sender.run
		for req := s.request(); req != nil; req = s.request() {
			if stream.Send(req) != nil {
				break // receive gets the reason
			}
		}
	}
}

type awaitStream = grpc.BidiStreamingClient[lessorv1.AwaitTasksRequest, lessorv1.AwaitTasksResponse]

// renew begins anew, for a stream on which nothing was sent yet.
func (s *waits) renew() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.sent = 0
	clear(s.changed)
	for id, all := range s.of {
		for _, w := range all {
			w.added = unsent
		}
		s.changeLocked(id)
	}
}

// request returns what the coordinator has to be told next; nil: nothing.
func (s *waits) request() *lessorv1.AwaitTasksRequest {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.changed) == 0 {
		return nil
	}
	req := &lessorv1.AwaitTasksRequest{}
	s.sent++
	for id := range s.changed {
		if len(req.GetAdd()) == maxAdded || len(req.GetForget()) == maxAdded {
			break
		}
		delete(s.changed, id)
		if len(s.of[id]) == 0 {
			req.Forget = append(req.Forget, id)
			continue
		}
		req.Add = append(req.Add, id)
		for _, w := range s.of[id] {
			if w.added == unsent {
				w.added = s.sent
			}
		}
	}
	return req
}

// receive passes answers to the Waits until the stream ends.
func (s *waits) receive(stream awaitStream) (began bool, err error) {
	if began = accepted(stream); began {
		s.setErr(nil)
	}
	for {
		res, err := stream.Recv()
		if err != nil {
			return began, endOf(err)
		}
		began = true
		s.deliver(res)
	}
}

func (s *waits) setErr(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = err
}

// deliver answers the Waits, each with a task of its own, which its caller may change. A Wait that
// was added in a request that the coordinator had not taken when it looked gets another answer: its
// task may have been retried before the Wait began.
func (s *waits) deliver(res *lessorv1.AwaitTasksResponse) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.err = nil
	for _, m := range res.GetTasks() {
		id := m.GetTaskId()
		var last *wait // gets the message itself, once nobody copies it any more
		s.keepLocked(id, slices.DeleteFunc(s.of[id], func(w *wait) bool {
			if w.added > res.GetRequests() {
				return false
			}
			if last != nil {
				last.answer <- answerOf(proto.CloneOf(m))
			}
			last = w
			return true
		}))
		if last != nil {
			last.answer <- answerOf(m)
		}
	}
}

func answerOf(m *lessorv1.AwaitedTask) answer {
	if e := m.GetError(); e != nil {
		return answer{err: statusOf(e, e.GetMessage(), "", nil)}
	}
	return answer{task: m.GetTask(), large: m.GetTask() == nil}
}
