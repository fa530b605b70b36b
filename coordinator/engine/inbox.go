package engine

import (
	"context"
	"math"
	"sync"
)

// maxWaiting bounds the operations of one tenant in the inbox. A caller waits for each operation, so only a flood of calls reaches this number.
const maxWaiting = 100_000

// op is one call on its way through the engine.
type op struct {
	// run runs on the loop, at e.now.
	run func()
	// after is called with nil when the changes of run are durable, or with an error if it is not known whether they are. May be nil.
	after func(error)
}

// inbox takes operations from any goroutine and gives them to the loop, many at once. A tenant with many operations does not delay the other
// tenants (T12).
type inbox struct {
	mu     sync.Mutex
	ops    *lanes[op] // by tenant, each in its order
	closed error      // why the inbox refuses operations; nil while it is open

	wake chan struct{} // holds one token while ops is not empty
}

func newInbox() *inbox { return &inbox{ops: newLanes[op](), wake: make(chan struct{}, 1)} }

// put adds an operation. It returns ErrOverloaded if too many operations of the tenant wait, and ErrStopped or ErrStore once the inbox is closed.
func (b *inbox) put(tenant string, o op) error { return b.add(tenant, o, maxWaiting) }

// putAlways is put without a limit, for operations that the caller could not repeat: the end of a call or of a session, a change of its capacity.
func (b *inbox) putAlways(tenant string, o op) error { return b.add(tenant, o, math.MaxInt) }

func (b *inbox) add(tenant string, o op, room int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return b.closed
	}
	if b.ops.waiting(tenant) >= room {
		return ErrOverloaded
	}
	b.ops.push(tenant, o)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return nil
}

// take appends at most n waiting operations to ops, one tenant after the other in turn.
func (b *inbox) take(ops []op, n int) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	for range min(n, b.ops.len) {
		o, _ := b.ops.pop()
		ops = append(ops, o)
	}
	if b.ops.len > 0 {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return ops
}

// close makes the inbox refuse all further operations, and returns the operations that still waited.
func (b *inbox) close(why error) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = why
	var ops []op
	for b.ops.len > 0 {
		o, _ := b.ops.pop()
		ops = append(ops, o)
	}
	return ops
}

// await puts an operation into the inbox with put or putAlways, and returns when the changes of run are durable, or with an error.
func await(put func(tenant string, o op) error, tenant string, run func()) error {
	done := make(chan error, 1)
	if err := put(tenant, op{run: run, after: func(err error) { done <- err }}); err != nil {
		return err
	}
	return <-done
}

// ask runs fn on the loop, when it is the tenant's turn, and returns the answer of fn once the changes of fn are durable. If ctx ends first,
// the caller does not learn the outcome, and fn may still run later. Therefore fn must report only through its answer. If ctx has ended
// before the call, fn does not run.
func ask[T any](ctx context.Context, e *Engine, tenant string, fn func() (T, error)) (T, error) {
	var none, answer T
	var refusal error
	if ctx.Err() != nil {
		return none, context.Cause(ctx)
	}
	done := make(chan error, 1)
	err := e.inbox.put(tenant, op{run: func() { answer, refusal = fn() }, after: func(err error) { done <- err }})
	if err != nil {
		return none, err
	}
	select {
	case err = <-done:
	case <-ctx.Done():
		return none, context.Cause(ctx)
	}
	if err != nil {
		return none, err
	}
	return answer, refusal
}
