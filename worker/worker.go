package worker

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/internal/machine"
)

// Handler does the work of one attempt. What it returns becomes the one report of the attempt. The
// first case that applies decides:
//
//   - the coordinator has said that the lease is lost, or the grace of a cancel is over: no report;
//     the result is discarded (K2);
//   - an output and no error: Complete;
//   - Task.Lost is closed, here because the lease has expired by the worker's own clock: no report;
//   - an error of Release, also as the value of a panic: Release;
//   - a panic or runtime.Goexit: Fail with category USER_CODE and the stack;
//   - an error of WithCategory: Fail with that category;
//   - an error after ctx ended with ErrDraining: Release, so that another worker can start the task
//     at once; with Permanent or RetryAfter: Fail;
//   - an error after ctx ended with ErrCancelled: Fail with category CANCELLED;
//   - context.DeadlineExceeded, wrapped or not: Fail with category TIMEOUT;
//   - any other error: Fail with category USER_CODE.
//
// Each Fail is as Permanent, RetryAfter, WithStack and WithPartialProgress ask.
//
// An output may have at most what the coordinator takes, by default 1 MiB; what is larger belongs
// into a store of its own, and its name into an artifact. A Complete with more is REJECTED, and a
// Fail with category CONFIGURATION, which is not retried, follows: Hooks.OnVerdict is called for
// both.
//
// No error means that the work is done, whatever has ended ctx. A Complete that comes after the
// worker's own clock has ended the lease may still be COMMITTED, for example after a restart of the
// coordinator, where the lease lives on (A9). Otherwise it is CANCELLED and kept, and an operator
// can adopt it (V15). Hooks.OnVerdict tells.
//
// ctx has the values of the context of Run, and the trace of the attempt. Its Deadline is that of
// the task, if it has one, so that calls that get ctx do not take longer; ctx ends by then with
// ErrLeaseLost. So it does when attempt_timeout is over, but that is no Deadline of ctx: an outage
// of the coordinator does not count, so the end may come later.
//
// The coordinator alone decides whether there is another attempt. The worker may send the output
// several times: the handler must not change the bytes of the output after it has returned them.
//
// One goroutine may run several handlers, one after the other. A handler that changes its
// goroutine, for example by runtime.LockOSThread or with profiler labels, must undo the change.
type Handler func(ctx context.Context, t *Task) (output []byte, err error)

// Worker takes tasks from queues and runs their handlers. Make it with New, give it handlers, call
// Run once.
type Worker struct {
	cfg    Config
	queues []string
	conn   grpc.ClientConnInterface
	client lessorv1.WorkerServiceClient
	// instance distinguishes this process from other processes with the same worker name.
	instance string
	// outcomes counts the outcomes that were made; a report id contains the number.
	outcomes atomic.Uint64
	log      *slog.Logger
	meter    *machine.Meter
	tracer   trace.Tracer
	// startedAt is when Run began. Heartbeats fall due at fixed distances from it.
	startedAt time.Time

	// handlers and fallback do not change after Run was called.
	handlers map[string]Handler
	fallback Handler

	// baseCtx is the parent of all handler contexts. It has the values of Run's context, but does
	// not end with it.
	baseCtx context.Context
	// noNewWork: the coordinator has said that it gives this worker no new work. Only the reader
	// uses it, and there is one reader at a time.
	noNewWork bool
	// openingCall holds a token while a call opens a stream.
	openingCall chan struct{}
	// sentToken is what the last of these calls has sent; nil if the connection has no Token.
	sentToken atomic.Pointer[sentToken]
	// measured gets the gauges that are being measured; nil if none are. Only the writer uses it,
	// and there is one at a time.
	measured <-chan map[string]float64
	// wake tells the writer that there is something to send.
	wake chan struct{}
	// drained ends when the worker drains and nothing is left to do.
	drained    context.Context
	setDrained context.CancelFunc

	// mu guards everything that changes, attempts included. Lock it with lock and release it with
	// unlock, which then runs the deferred functions. So the mutex is never held while a callback
	// of the user runs or a log line is written.
	mu struct {
		sync.Mutex
		deferred []func()

		state     State
		runCalled bool
		// tenant is the tenant that the worker states. Empty: none is configured, and no
		// coordinator has named one yet.
		tenant string
		// acceptedBefore: a coordinator has accepted the worker before.
		acceptedBefore bool
		// attempts holds, by lease id, the attempts that hold a lease or whose outcome has no
		// verdict yet.
		attempts map[string]*attempt
		recent   recentLeases
		// ready are the attempts that wait for a goroutine. startingGoroutine: a goroutine was
		// started and has not taken an attempt yet.
		ready             []*attempt
		startingGoroutine bool
		// activeHandlers is the number of attempts that a goroutine serves or will serve. stuck
		// counts the handlers that still run without a lease, by type of task.
		activeHandlers int
		stuck          map[string]int
		// unleased are the attempts without a lease that a goroutine still serves; their handlers
		// have not returned.
		unleased map[*attempt]struct{}
		slots    slots
		flights  flights
		outbox   outbox
		packages packages
		resume   resumption
		drain    drainState
		// maxMessage is the size of the largest frame that is sent, in bytes:
		// Config.MaxMessageBytes, or what the coordinator reads if that is less.
		maxMessage int
	}
}

// New makes a worker that takes tasks from the queues, 1 to 100, in turn, over conn. The caller
// closes conn. Make conn with Dial: with the defaults of gRPC a connection may wait for two minutes
// after an outage, which is longer than leases live. The worker connects when Run is called. The
// error says which field of cfg, or which queue, is wrong, or that conn is nil.
func New(conn grpc.ClientConnInterface, queues []string, cfg Config) (*Worker, error) {
	if made, ok := conn.(*grpc.ClientConn); conn == nil || ok && made == nil {
		return nil, errors.New("worker: the connection is nil; make one with Dial")
	}
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := validateQueues(queues); err != nil {
		return nil, err
	}
	// These are sent with each new stream, and the caller may change its own copies meanwhile.
	cfg.Runtimes, cfg.Features = slices.Clone(cfg.Runtimes), slices.Clone(cfg.Features)
	cfg.Labels, cfg.Resources = maps.Clone(cfg.Labels), maps.Clone(cfg.Resources)
	w := &Worker{
		cfg:         cfg,
		queues:      slices.Clone(queues),
		conn:        conn,
		client:      lessorv1.NewWorkerServiceClient(conn),
		instance:    rand.Text(),
		log:         cfg.Logger.With("worker", cfg.Name),
		meter:       machine.New(cfg.Disk),
		tracer:      cfg.TracerProvider.Tracer("github.com/lessor-dev/lessor/worker"),
		handlers:    make(map[string]Handler),
		openingCall: make(chan struct{}, 1),
		wake:        make(chan struct{}, 1),
	}
	w.mu.attempts = make(map[string]*attempt)
	w.mu.stuck, w.mu.flights, w.mu.slots.ofType = make(map[string]int), make(flights), make(map[string]int)
	w.mu.tenant, w.mu.maxMessage = cfg.Tenant, cfg.MaxMessageBytes
	w.mu.packages.inventory = newInventory(cfg.Packages)
	w.mu.slots.limit, w.mu.slots.typeLimits = cfg.Concurrency, maps.Clone(cfg.PerTypeLimits)
	return w, nil
}

// Handle registers h as the handler for tasks of the given type; tasks without a type have the
// empty one. It panics if the type already has a handler, or if Run was called: both are mistakes
// in the program. Run returns an error if the type has more than 256 bytes, control characters, or
// bytes that are not valid UTF-8.
func (w *Worker) Handle(taskType string, h Handler) {
	w.lock()
	defer w.unlock()
	w.checkHandlerLocked(h)
	if _, taken := w.handlers[taskType]; taken {
		panic(fmt.Sprintf("worker: type %q has a handler already", taskType))
	}
	w.handlers[taskType] = h
}

// HandleDefault registers h as the handler for tasks of all types that have no handler of their
// own. It panics in the same cases as Handle.
func (w *Worker) HandleDefault(h Handler) {
	w.lock()
	defer w.unlock()
	w.checkHandlerLocked(h)
	if w.fallback != nil {
		panic("worker: there is a default handler already")
	}
	w.fallback = h
}

func (w *Worker) checkHandlerLocked(h Handler) {
	if h == nil {
		panic("worker: nil handler")
	}
	if w.mu.runCalled {
		panic("worker: handler registered after Run")
	}
}

// handlerFor returns the handler of a type; nil if there is none.
func (w *Worker) handlerFor(taskType string) Handler {
	if h, ok := w.handlers[taskType]; ok {
		return h
	}
	return w.fallback
}

// types returns the task types that the worker registers. An empty list stands for all types.
func (w *Worker) types() []string {
	if w.fallback != nil {
		return nil
	}
	return slices.Sorted(maps.Keys(w.handlers))
}

func (w *Worker) lock() { w.mu.Lock() }

// unlock releases the mutex and then runs the functions that were deferred while it was held.
func (w *Worker) unlock() {
	deferred := w.mu.deferred
	w.mu.deferred = nil
	w.mu.Unlock()
	for _, f := range deferred {
		f()
	}
}

// deferLocked makes unlock call f after it has released the mutex.
func (w *Worker) deferLocked(f func()) { w.mu.deferred = append(w.mu.deferred, f) }

// wakeWriter wakes the writer.
func (w *Worker) wakeWriter() {
	select {
	case w.wake <- struct{}{}:
	default: // a wake-up is already pending
	}
}

// callOnError passes err to Hooks.OnError, if the hook is set.
func (w *Worker) callOnError(err error) {
	if hook := w.cfg.Hooks.OnError; hook != nil {
		hook(err)
	}
}
