package worker

import (
	"context"
	"crypto/rand"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/internal/machine"
)

// Handler does the work of one attempt. What it returns is the attempt's one report:
//
//   - an output and no error: Complete;
//   - an error: Fail with category USER_CODE, or as Permanent, RetryAfter, WithCategory and Release ask;
//   - context.DeadlineExceeded, wrapped or not: Fail with category TIMEOUT;
//   - any other error after ctx ended with ErrCancelled: Fail with category CANCELLED;
//   - any other error after ctx ended with ErrDraining: Release, so that another worker starts it at once;
//   - a panic or runtime.Goexit: Fail with its stack;
//   - anything after ErrLeaseLost: nothing, it is discarded.
//
// The coordinator alone decides whether there is another attempt. The output may be sent several times: the handler must not
// change its bytes after it has returned them.
//
// One goroutine may run several handlers, one after the other. A handler that changes something about its goroutine, such as by
// runtime.LockOSThread or with profiler labels, must change it back.
type Handler func(ctx context.Context, t *Task) (output []byte, err error)

// Worker takes tasks from queues and runs their handlers. Make it with New, give it handlers, call Run once.
type Worker struct {
	cfg    Config
	queues []string
	client lessorv1.WorkerServiceClient
	// instance names this process among those of the same name.
	instance string
	// outcomes counts them, for their ids.
	outcomes atomic.Uint64
	log      *slog.Logger
	meter    *machine.Meter
	// startedAt is what the instants of heartbeats are counted from.
	startedAt time.Time

	// handlers and fallback do not change once Run was called.
	handlers map[string]Handler
	fallback Handler

	// base is the parent of all handler contexts: Run's context without its end.
	base context.Context
	// noNewWork: the coordinator has said that it gives no new work. The reader's, of which there is one at a time.
	noNewWork bool
	// openingCall holds a token while a call opens a stream.
	openingCall chan struct{}
	// wake tells the writer that there is something to send.
	wake chan struct{}
	// drained ends when the worker was asked to drain and nothing is left to do.
	drained    context.Context
	setDrained context.CancelFunc

	// mu guards all that changes, attempts included. It is taken by lock and given back by unlock, which then runs the
	// deferred: nothing of the caller's is called, and nothing is logged, with the mutex held.
	mu struct {
		sync.Mutex
		deferred []func()

		state State
		begun bool
		// tenant is the one that the worker states; empty: it was not configured, and no coordinator has named it yet.
		tenant string
		// acceptedBefore: a coordinator has accepted the worker before.
		acceptedBefore bool
		// attempts holds, by lease id, what is held or reporting.
		attempts map[string]*attempt
		recent   recentLeases
		// ready are the attempts that no goroutine has taken up yet; recruited: one is on its way to them.
		ready             []*attempt
		startingGoroutine bool
		// activeHandlers is the number of goroutines that serve an attempt, stuck that of handlers without a lease, by the type of their tasks.
		activeHandlers int
		stuck          map[string]int
		slots          slots
		flights        flights
		outbox         outbox
		resume         resumption
		drain          drainState
	}
}

// New makes a worker that takes tasks from the queues, 1 to 100, in turn, over conn. The caller closes conn. Make conn with Dial: with
// the defaults of gRPC a connection may wait for two minutes after an outage, which is longer than leases live. The worker
// connects when Run is called. An error says which field of cfg is wrong.
func New(conn grpc.ClientConnInterface, queues []string, cfg Config) (*Worker, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	if err := validateQueues(queues); err != nil {
		return nil, err
	}
	// They are sent with each new stream: what the caller does with its own meanwhile is not meant.
	cfg.Runtimes, cfg.Features = slices.Clone(cfg.Runtimes), slices.Clone(cfg.Features)
	cfg.Labels, cfg.Resources = maps.Clone(cfg.Labels), maps.Clone(cfg.Resources)
	w := &Worker{
		cfg:         cfg,
		queues:      slices.Clone(queues),
		client:      lessorv1.NewWorkerServiceClient(conn),
		instance:    rand.Text(),
		log:         cfg.Logger.With("worker", cfg.Name),
		meter:       machine.New(cfg.Disk),
		handlers:    make(map[string]Handler),
		openingCall: make(chan struct{}, 1),
		wake:        make(chan struct{}, 1),
	}
	w.mu.attempts = make(map[string]*attempt)
	w.mu.tenant = cfg.Tenant
	w.mu.slots.limit, w.mu.slots.typeLimits = cfg.Concurrency, maps.Clone(cfg.PerTypeLimits)
	return w, nil
}

// Handle registers h as the handler for tasks of the given type. It panics if the type has a handler already, or Run was called:
// both are mistakes in the program.
func (w *Worker) Handle(taskType string, h Handler) {
	w.lock()
	defer w.unlock()
	w.checkHandlerLocked(h)
	if _, taken := w.handlers[taskType]; taken {
		panic(fmt.Sprintf("worker: type %q has a handler already", taskType))
	}
	w.handlers[taskType] = h
}

// HandleDefault registers h as the handler for tasks of all types that have no handler of their own. It panics as Handle does.
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
	if w.mu.begun {
		panic("worker: handler registered after Run")
	}
}

// handlerFor returns the handler of a type; nil where there is none.
func (w *Worker) handlerFor(taskType string) Handler {
	if h, ok := w.handlers[taskType]; ok {
		return h
	}
	return w.fallback
}

// types are what the worker registers; none means every type.
func (w *Worker) types() []string {
	if w.fallback != nil {
		return nil
	}
	types := make([]string, 0, len(w.handlers))
	for t := range w.handlers {
		types = append(types, t)
	}
	slices.Sort(types)
	return types
}

func (w *Worker) lock() { w.mu.Lock() }

// unlock gives the mutex back and runs what was noted while it was held.
func (w *Worker) unlock() {
	deferred := w.mu.deferred
	w.mu.deferred = nil
	w.mu.Unlock()
	for _, f := range deferred {
		f()
	}
}

// deferLocked lets unlock call f.
func (w *Worker) deferLocked(f func()) { w.mu.deferred = append(w.mu.deferred, f) }

// wakeWriter wakes the writer.
func (w *Worker) wakeWriter() {
	select {
	case w.wake <- struct{}{}:
	default: // it is awake, or about to be
	}
}

// callOnError tells the operator of an error.
func (w *Worker) callOnError(err error) {
	if hook := w.cfg.Hooks.OnError; hook != nil {
		hook(err)
	}
}
