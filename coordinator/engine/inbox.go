package engine

import (
	"context"
	"sync"
	"sync/atomic"
)

// maxWaiting bounds the submits of one tenant in the inbox, and its other operations. Those that
// settle have as much room again, which is left when calls for work, queries and feedback have
// filled the rest. A caller waits for each operation, so only a flood of calls reaches this number.
var maxWaiting = 100_000

// op is one call on its way through the engine.
type op struct {
	tenant string // set by put
	// submits is the number of tasks that the call submits; 0: it is no submit.
	submits int
	// settles says that the call ends, renews or resumes leases, or makes a change for an operator.
	// A flood of other calls must not crowd it out.
	settles bool
	// must says that the caller could not repeat the call: the end of a call or of a session, a
	// change of its capacity. The inbox always has room for it.
	must bool
	// run runs on the loop, at e.now().
	run func()
	// after is called with nil when the changes of run are durable, or with an error if it is not
	// known whether they are. May be nil.
	after func(error)
}

// answerAll ends operations, in their order.
func answerAll(ops []op, err error) {
	for _, o := range ops {
		if o.after != nil {
			o.after(err)
		}
	}
}

// inbox takes operations from any goroutine and gives them to the loop, a few at once. A tenant
// with many operations does not delay the other tenants (T12), and its submits delay its other
// operations little: leases must not expire because heartbeats wait behind many submits.
type inbox struct {
	mu      sync.Mutex
	turns   *lanes[*mailbox]    // by tenant: its mailbox, once for each operation in it
	tenants map[string]*mailbox // those with operations
	spare   *mailbox            // the mailbox that became empty last, to use its memory again
	closed  error               // why the inbox refuses operations; nil while it is open

	wake chan struct{} // holds one token while operations wait
}

// mailbox holds the operations of a tenant. The submits keep their order among each other, and so
// do all other operations.
type mailbox struct {
	tenant          string
	submits, others lane[op]
	owed            int // number of other operations that come before the next submit, if so many wait
}

// take takes out the next operation; there must be one. After a submit of n tasks come n other
// operations, if they wait.
func (m *mailbox) take() op {
	if m.others.len() > 0 && (m.owed > 0 || m.submits.len() == 0) {
		m.owed = max(m.owed-1, 0)
		return m.others.shift()
	}
	o := m.submits.shift()
	m.owed = o.submits
	return o
}

func newInbox() *inbox {
	return &inbox{turns: newLanes[*mailbox](nil), tenants: map[string]*mailbox{}, wake: make(chan struct{}, 1)}
}

// put adds an operation. It returns ErrOverloaded if too many operations of the tenant wait, and
// ErrStopped or ErrStore once the inbox is closed.
func (b *inbox) put(tenant string, o op) error {
	room := maxWaiting
	if o.settles {
		room *= 2
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return b.closed
	}
	m := b.mailbox(tenant)
	to := &m.others
	if o.submits > 0 {
		to = &m.submits
	}
	if to.len() >= room && !o.must {
		return ErrOverloaded
	}
	o.tenant = tenant
	to.items = append(to.items, o)
	b.turns.push(tenant, m)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return nil
}

func (b *inbox) mailbox(tenant string) *mailbox {
	m := b.tenants[tenant]
	if m == nil {
		if m = b.spare; m == nil {
			m = &mailbox{}
		}
		b.spare, m.tenant, m.owed = nil, tenant, 0
		b.tenants[tenant] = m
	}
	return m
}

// next takes out the next operation; ok is false if none waits.
func (b *inbox) next() (o op, ok bool) {
	m, ok := b.turns.pop()
	if !ok {
		return o, false
	}
	o = m.take()
	if m.submits.len()+m.others.len() == 0 {
		delete(b.tenants, m.tenant)
		b.spare = m
	}
	return o, true
}

// waiting returns how many operations wait.
func (b *inbox) waiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.turns.len
}

// take appends at most n waiting operations to ops, one tenant after the other in turn.
func (b *inbox) take(ops []op, n int) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range min(n, b.turns.len) {
		o, _ := b.next()
		ops = append(ops, o)
	}
	if b.turns.len > 0 {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return ops
}

// close makes the inbox refuse all further operations, and returns the operations that still
// waited.
func (b *inbox) close(why error) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = why
	var ops []op
	for o, ok := b.next(); ok; o, ok = b.next() {
		ops = append(ops, o)
	}
	return ops
}

// await puts an operation without after into the inbox, and returns when the changes of its run are
// durable, or with an error.
func (b *inbox) await(tenant string, o op) error {
	done := make(chan error, 1)
	o.after = func(err error) { done <- err }
	if err := b.put(tenant, o); err != nil {
		return err
	}
	return <-done
}

// later makes the loop run something that the caller could not repeat, without waiting for it. An
// engine that has stopped does not run it, and need not.
func (b *inbox) later(tenant string, run func()) { _ = b.put(tenant, op{must: true, run: run}) }

// settle is later for an operation that settles. It returns when the changes of run are durable, so
// that a stream cannot flood the loop with such changes.
func (b *inbox) settle(tenant string, run func()) {
	_ = b.await(tenant, op{settles: true, must: true, run: run})
}

// ask runs fn on the loop, when it is the tenant's turn, and returns the answer of fn once the
// changes of fn are durable. If ctx ends first, the caller does not learn the outcome. Then fn does
// not run if its turn has not come yet: a caller that gives up and repeats its call must not fill
// the memory with what waits, nor the disk with what nobody waits for. Otherwise the changes of fn
// may still be committed later. Therefore fn must report only through its answer.
func ask[T any](ctx context.Context, e *Engine, tenant string, fn func() (T, error)) (T, error) {
	return askAs(ctx, e, tenant, op{}, fn)
}

// askAs is ask for a call that is more than a query: o says what it is, and has neither run nor
// after. If o settles, fn runs also after its caller has given up: a heartbeat that came in during
// a stall renews its lease (A8).
func askAs[T any](ctx context.Context, e *Engine, tenant string, o op, fn func() (T, error)) (T, error) {
	var none T
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	q := &question[T]{fn: fn, done: make(chan error, 1)}
	o.run, o.after = q.run, q.after
	if err := e.inbox.put(tenant, o); err != nil {
		return none, err
	}
	select {
	case err := <-q.done:
		if err != nil {
			return none, err
		}
		return q.answer, q.refusal
	case <-ctx.Done():
		if !o.settles {
			q.abandon()
		}
		return none, context.Cause(ctx)
	}
}

// question is a call of ask.
type question[T any] struct {
	fn      func() (T, error) // belongs to whoever sets taken
	taken   atomic.Bool       // fn has its turn, or its caller has left before
	answer  T
	refusal error
	done    chan error
}

// run runs fn, unless its caller has left.
func (q *question[T]) run() {
	if q.taken.CompareAndSwap(false, true) {
		q.answer, q.refusal = q.fn()
	}
}

func (q *question[T]) after(err error) { q.done <- err }

// abandon drops fn, with all that it holds, if it has not had its turn. It reports whether it has
// done so.
func (q *question[T]) abandon() bool {
	if !q.taken.CompareAndSwap(false, true) {
		return false
	}
	q.fn = nil
	return true
}
