// Package workertest helps to test handlers against a real coordinator. The coordinator runs in the
// test's own process and keeps its tasks in memory: leases, retries and verdicts are real, and no
// port is needed.
//
//	func TestResize(t *testing.T) {
//		c := workertest.Start(t)
//		w := c.Worker("images", worker.Config{})
//		w.Handle("resize", resize)
//		c.Run(w)
//		task := c.Do(&lessorv1.TaskSpec{Queue: "images", Type: "resize", Payload: png})
//		if task.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED { ... }
//	}
//
// In a bubble of testing/synctest everything runs on fake time: an hour takes about 0.1 s, or 0.2 s
// while a handler runs, whose lease is renewed; with the race detector four to six times as much. A
// worker's own heartbeats, which renew no lease, come once a minute. Outside of a bubble, a task
// that fails each time becomes FAILED after the 15 seconds or so that its retries wait by default;
// RetryAtOnce shortens them.
//
// The most important path of a handler is the one on which it loses its lease, and must stop:
// LoseLease takes it there at once, and ExpireLease by a lost network, which counts as a loss of
// the task.
//
// A call that waits for a task that does not end fails, and says what the task waits for: in a
// bubble after WaitLimit, outside of one shortly before "go test -timeout" ends the test. So a type
// that is spelt in two ways, or a queue without a worker, does not go without a word.
package workertest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/bubble"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/worker"
	"github.com/lessor-dev/lessor/worker/producer"
)

// WaitLimit is how long a call waits for a task in a bubble of testing/synctest, on its fake time.
// That takes 3 to 5 s, or 6 to 10 while a handler hangs; with the race detector up to 20 and 50.
// Before a task that is to run later, sleep.
const WaitLimit = 48 * time.Hour

// bubbleHeartbeat is how often workers send a heartbeat in a bubble. Each one measures the test's
// machine, which takes most of the real time of an idle hour. Leases are renewed by heartbeats of
// their own.
const bubbleHeartbeat = time.Minute

// pipeBuffer is the size of the buffer of the in-memory connection in each direction, in bytes.
const pipeBuffer = 1 << 20

// TB is the part of testing.TB that this package needs; other test frameworks have these methods as
// well. If it also has the method Deadline of testing.T, calls that wait for a task fail shortly
// before that time.
type TB interface {
	Helper()
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
	Cleanup(func())
	Context() context.Context
	Output() io.Writer
}

// Coordinator is a coordinator for one test. It stops when the test ends.
type Coordinator struct {
	tb   TB
	conn *grpc.ClientConn // of the test and its workers
	link link             // which conn has to pass
	// inside is the connection of this package, which link does not cut.
	inside *grpc.ClientConn
	tasks  lessorv1.TaskServiceClient
	// producer watches tasks.
	producer *producer.Client
	log      *slog.Logger
	// waitCtx is the context of calls that wait for a task. endWaiting ends it, with the error of
	// the worker that ended.
	waitCtx    context.Context //nolint:containedctx // the context of the test, which endWaiting can end earlier
	endWaiting context.CancelCauseFunc
	// waitLimit is how long a call waits for a task in a bubble of testing/synctest; 0: the test is
	// in none.
	waitLimit time.Duration

	// turn has room for one call that starts or stops the server. It guards store, stop, served and
	// over. It is no mutex, because the time of a bubble stands still while a goroutine waits for a
	// mutex.
	turn  chan struct{}
	store *memstore.Store
	// over: the test has ended.
	over bool
	// listener is the listener of the present server, to which conn and inside connect.
	listener atomic.Pointer[bufconn.Listener]
	stop     context.CancelFunc
	served   chan error
}

// Start starts a coordinator with an empty store. If that fails, it ends the test with Fatalf.
func Start(tb TB) *Coordinator {
	tb.Helper()
	c := &Coordinator{
		tb:    tb,
		turn:  make(chan struct{}, 1),
		store: memstore.New(),
		log:   slog.New(slog.NewTextHandler(tb.Output(), &slog.HandlerOptions{Level: slog.LevelWarn})),
	}
	c.waitCtx, c.endWaiting = context.WithCancelCause(tb.Context())
	stopTimer := c.limitWaiting()
	c.conn = c.dial(func(conn net.Conn) net.Conn { return c.link.wrap(conn) })
	c.inside = c.dial(func(conn net.Conn) net.Conn { return conn })
	c.tasks = lessorv1.NewTaskServiceClient(c.inside)
	// a restart is no news to the test
	c.producer = producer.NewWithConfig(c.inside, producer.Config{Logger: slog.New(slog.DiscardHandler)})
	c.serve()
	tb.Cleanup(func() {
		stopTimer()
		c.endWaiting(nil)
		_ = c.producer.Close()
		c.end()
		_ = c.conn.Close()
		_ = c.inside.Close()
	})
	return c
}

// dial makes a connection to the coordinator; wrap is around its bytes.
func (c *Coordinator) dial(wrap func(net.Conn) net.Conn) *grpc.ClientConn {
	c.tb.Helper()
	conn, err := worker.Dial("passthrough:///workertest",
		grpc.WithDefaultCallOptions(grpc.WaitForReady(true)), // so that calls right after Restart wait too
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
			conn, err := c.listener.Load().DialContext(ctx)
			if err != nil {
				return nil, err
			}
			return wrap(conn), nil
		}))
	if err != nil {
		c.tb.Fatalf("workertest: %v", err)
	}
	return conn
}

// Why a call stops waiting for a task.
var (
	errTimeUp  = errors.New("the time of the test is almost over")
	errTooLong = errors.New("it has waited for very long")
)

// limitWaiting ends calls that wait early enough before the deadline of the test to say what they
// wait for. Their context has no deadline, because the coordinator would learn of it, and its own
// end of the call, which says nothing, often comes first.
func (c *Coordinator) limitWaiting() (stop func()) {
	if inBubble() {
		c.waitLimit = WaitLimit
	}
	at, ok := deadline(c.tb)
	if !ok {
		return func() {}
	}
	left := time.Until(at)
	timer := time.AfterFunc(left-min(left/10, 5*time.Second), func() { c.endWaiting(errTimeUp) })
	return func() { timer.Stop() }
}

// bubbleTime is a time that no clock shows outside of a bubble, because there were no bubbles yet,
// and no bubble reaches: each begins with the year 2000.
var bubbleTime = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

// inBubble reports whether the test is in a bubble of testing/synctest. The start of fake time is
// the only documented sign of one that does no harm: synctest.Wait panics outside of a bubble, but
// in one it waits for all goroutines, and fails if another one waits already.
func inBubble() bool { return time.Now().Before(bubbleTime) }

// deadline returns the deadline of the test, if it has one. In a bubble of synctest that of
// testing.T has none: its method panics there.
func deadline(tb TB) (at time.Time, ok bool) {
	limited, ok := tb.(interface{ Deadline() (time.Time, bool) })
	if !ok {
		return time.Time{}, false
	}
	defer func() {
		if recover() != nil {
			at, ok = time.Time{}, false
		}
	}()
	return limited.Deadline()
}

// serve starts a server on the store.
func (c *Coordinator) serve() {
	c.tb.Helper()
	cfg := coordinator.Config{
		Logger: c.log,
		// the memory and disk of the test's machine must not matter
		Sessions: session.Config{Health: session.NeverFull},
	}
	if c.waitLimit > 0 { // in a bubble
		bubble.FakeTime(&cfg)
		cfg.Sessions.HeartbeatInterval = bubbleHeartbeat
	}
	server, err := coordinator.New(c.store, cfg)
	if err != nil {
		c.tb.Fatalf("workertest: start the coordinator: %v", err)
	}
	listener := bufconn.Listen(pipeBuffer)
	c.listener.Store(listener)
	ctx, stop := context.WithCancel(context.WithoutCancel(c.tb.Context()))
	served := make(chan error, 1)
	go func() { served <- server.Serve(ctx, listener, nil) }()
	c.stop, c.served = stop, served
}

// shutdown stops the server.
func (c *Coordinator) shutdown() {
	c.stop()
	if err := <-c.served; err != nil {
		c.tb.Errorf("workertest: coordinator: %v", err)
	}
}

// end stops the server for good.
func (c *Coordinator) end() {
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	c.over = true
	c.shutdown()
}

// Restart stops the coordinator and starts it again with everything that was durable. Leases stay
// live (A9), and workers reconnect by themselves. It fails the test if the test has ended.
func (c *Coordinator) Restart() {
	c.tb.Helper()
	c.turn <- struct{}{}
	defer func() { <-c.turn }()
	if c.over {
		c.tb.Fatalf("workertest: Restart was called after the end of the test")
		return
	}
	c.shutdown()
	c.store = c.store.Reopen()
	c.serve()
}

// Conn returns a connection to the coordinator, for any of its services. It is closed when the test
// ends.
func (c *Coordinator) Conn() *grpc.ClientConn { return c.conn }

// drainTimeout is how long handlers may go on in real time when their worker is stopped, unless the
// test sets its own time.
const drainTimeout = time.Second

// Worker makes a worker for the queue. Give it handlers, then pass it to Run. Without cfg.Logger it
// logs to the output of the test. Outside of a bubble, cfg.DrainTimeout is 1 s by default, so that
// a test does not wait at its end for a handler that waits for its context.
func (c *Coordinator) Worker(queue string, cfg worker.Config) *worker.Worker {
	c.tb.Helper()
	if cfg.Logger == nil {
		cfg.Logger = c.log
	}
	if c.waitLimit == 0 { // not in a bubble
		cfg.DrainTimeout = cmp.Or(cfg.DrainTimeout, drainTimeout)
	}
	w, err := worker.New(c.conn, []string{queue}, cfg)
	if err != nil {
		c.tb.Fatalf("workertest: %v", err)
	}
	return w
}

// Run runs w in the background. stop drains w, and fails the test if w had to give something up;
// the end of the test does the same. It is no failure if somebody else has drained w before. If w
// ends by itself with an error, for example because it has no handler, every call that waits for a
// task fails.
func (c *Coordinator) Run(w *worker.Worker) (stop func()) {
	c.tb.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(c.tb.Context()))
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		err = w.Run(ctx)
		if ctx.Err() == nil && err != nil {
			c.endWaiting(fmt.Errorf("a worker has ended: %w", err))
		}
	}()
	stopped := false
	stop = func() {
		c.tb.Helper()
		cancel()
		<-ended
		if err != nil && !stopped {
			c.tb.Errorf("workertest: worker: %v", err)
		}
		stopped = true
	}
	c.tb.Cleanup(stop)
	return stop
}

// Submit submits a task and returns its id. The test fails if the coordinator refuses the spec.
func (c *Coordinator) Submit(spec *lessorv1.TaskSpec) (taskID string) {
	c.tb.Helper()
	res, err := c.tasks.SubmitTask(c.tb.Context(), &lessorv1.SubmitTaskRequest{Task: spec})
	if err != nil {
		c.tb.Fatalf("workertest: submit: %v", err)
	}
	return res.GetTask().GetTaskId()
}

// RetryAtOnce makes the retries of the queue's tasks wait only a millisecond, for tests in real
// time. It concerns tasks that are submitted afterwards, unless their retry_policy sets its own
// initial_backoff. It does not shorten what a handler asks for with worker.RetryAfter.
func (c *Coordinator) RetryAtOnce(queue string) {
	c.tb.Helper()
	policy := &lessorv1.RetryPolicy{
		InitialBackoff: durationpb.New(time.Millisecond),
		MaxBackoff:     durationpb.New(time.Millisecond),
	}
	_, err := lessorv1.NewAdminServiceClient(c.inside).UpdateQueue(c.tb.Context(),
		&lessorv1.UpdateQueueRequest{Name: queue, RetryPolicy: policy})
	if err != nil {
		c.tb.Fatalf("workertest: queue %s: %v", queue, err)
	}
}

// Wait returns the task once it is final: completed, failed for good, or cancelled.
func (c *Coordinator) Wait(taskID string) *lessorv1.Task {
	c.tb.Helper()
	err := c.watch(taskID, func(*lessorv1.WatchTaskResponse) bool { return false })
	if !errors.Is(err, io.EOF) {
		c.tb.Fatalf("workertest: wait for task %s: %v%s", taskID, err, c.explain(taskID, err))
	}
	return c.Task(taskID)
}

// WaitState waits until the task has reached the state; it may have left the state since. The test
// fails if the task ends without reaching it.
func (c *Coordinator) WaitState(taskID string, state lessorv1.TaskState) {
	c.tb.Helper()
	err := c.watch(taskID, func(event *lessorv1.WatchTaskResponse) bool { return event.GetTaskState() == state })
	switch {
	case errors.Is(err, io.EOF):
		c.tb.Fatalf("workertest: task %s did not come to %v: it is %v", taskID, state, c.Task(taskID).GetState())
	case err != nil:
		c.tb.Fatalf("workertest: task %s did not come to %v: %v%s", taskID, state, err, c.explain(taskID, err))
	}
}

// explain says where the task is, and why, if the time for it is up.
func (c *Coordinator) explain(taskID string, err error) string {
	if !errors.Is(err, errTimeUp) && !errors.Is(err, errTooLong) {
		return ""
	}
	res, err := c.tasks.ExplainTask(c.tb.Context(), &lessorv1.ExplainTaskRequest{TaskId: taskID})
	if err != nil {
		return fmt.Sprintf("; explain: %v", err)
	}
	return fmt.Sprintf("; it is %s", res.GetSummary())
}

// watch reads the events of the task until enough returns true for one. The error is io.EOF if the
// task ends before.
func (c *Coordinator) watch(taskID string, enough func(*lessorv1.WatchTaskResponse) bool) error {
	ctx, stop := context.WithCancelCause(c.waitCtx)
	defer stop(nil)
	if c.waitLimit > 0 {
		defer time.AfterFunc(c.waitLimit, func() { stop(errTooLong) }).Stop()
	}
	for event, err := range c.producer.Watch(ctx, taskID) {
		switch {
		case err != nil && ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return err
		case enough(event):
			return nil
		}
	}
	return io.EOF
}

// Do submits a task and waits until it is final.
func (c *Coordinator) Do(spec *lessorv1.TaskSpec) *lessorv1.Task {
	c.tb.Helper()
	return c.Wait(c.Submit(spec))
}

// Task returns the task as it is now, including its history.
func (c *Coordinator) Task(taskID string) *lessorv1.Task {
	c.tb.Helper()
	res, err := c.tasks.GetTask(c.tb.Context(), &lessorv1.GetTaskRequest{TaskId: taskID})
	if err != nil {
		c.tb.Fatalf("workertest: get task %s: %v", taskID, err)
	}
	return res.GetTask()
}

// Cancel asks the coordinator to cancel the task.
func (c *Coordinator) Cancel(taskID, reason string) {
	c.tb.Helper()
	if _, err := c.tasks.CancelTask(c.tb.Context(), &lessorv1.CancelTaskRequest{TaskId: taskID, Reason: reason}); err != nil {
		c.tb.Fatalf("workertest: cancel task %s: %v", taskID, err)
	}
}

// LoseLease ends the lease of the task, as an operator does who kicks the worker that holds it: the
// context of the handler ends with worker.ErrLeaseLost, what it returns is discarded (K2), and the
// task is READY for its next attempt. The other leases of that worker end as well. The test fails
// if no worker holds the task, so wait for the handler first, for example with WaitState.
func (c *Coordinator) LoseLease(taskID string) {
	c.tb.Helper()
	l := c.Task(taskID).GetLease()
	if l == nil {
		c.tb.Fatalf("workertest: task %s has no lease to lose: no worker holds it", taskID)
	}
	_, err := lessorv1.NewAdminServiceClient(c.inside).KickWorker(c.tb.Context(), &lessorv1.KickWorkerRequest{
		WorkerId:   l.GetWorkerId(),
		SessionId:  l.GetSessionId(),
		Requeue:    true,
		RetryAfter: durationpb.New(0),
		Reason:     "LoseLease was called",
	})
	if err != nil {
		c.tb.Fatalf("workertest: lose the lease of task %s: %v", taskID, err)
	}
}

// ExpireLease lets the lease of the task expire, as it does when a machine loses its network or
// dies: nothing passes between the coordinator and all that uses Conn, which includes the workers,
// until the lease has ended. The context of the handler ends with worker.ErrLeaseLost by the
// worker's own clock, and the coordinator counts a loss: the task is READY for its next attempt, or
// FAILED and quarantined after max_losses. Leases of other tasks expire as well if they are not
// longer. It takes the heartbeat_timeout of the task, 90 s by default, which costs nothing in a
// bubble. The test fails if no worker holds the task, so wait for the handler first, or if its
// lease ends in another way.
func (c *Coordinator) ExpireLease(taskID string) {
	c.tb.Helper()
	task := c.Task(taskID)
	if task.GetLease() == nil {
		c.tb.Fatalf("workertest: task %s has no lease to expire: no worker holds it", taskID)
	}
	// One that is not started yet would be unacknowledged, which is no loss.
	c.wantEvent(taskID, task.GetAttempt(), lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED)
	c.link.cut()
	defer c.link.mend()
	ended := c.wantEvent(taskID, task.GetAttempt(), lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED)
	if ended.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED {
		c.tb.Fatalf("workertest: the lease of task %s did not expire: it ended by %v", taskID, ended.GetReason())
	}
}

// wantEvent waits for an event in the history of an attempt, for ExpireLease.
func (c *Coordinator) wantEvent(
	taskID string, attempt uint32, want lessorv1.HistoryEventType,
) (found *lessorv1.HistoryEvent) {
	c.tb.Helper()
	err := c.watch(taskID, func(event *lessorv1.WatchTaskResponse) bool {
		if h := event.GetHistory(); h.GetType() == want && h.GetAttempt() == attempt {
			found = h
		}
		return found != nil
	})
	switch {
	case found != nil:
	case errors.Is(err, io.EOF):
		c.tb.Fatalf("workertest: the lease of task %s did not expire: its worker has reported", taskID)
	default:
		c.tb.Fatalf("workertest: the lease of task %s did not expire: %v%s", taskID, err, c.explain(taskID, err))
	}
	return found
}
