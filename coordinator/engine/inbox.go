package engine

import (
	"math"
	"sync"
)

// maxWaiting bounds the operations in the inbox. Each stands for a caller that waits, so that it is reached only by a flood.
const maxWaiting = 100_000

// op is one call on its way through the engine.
type op struct {
	// run steps on the loop, at the present time of the loop.
	run func()
	// after runs once what run did is durable, or with the reason why that is not known. May be nil.
	after func(error)
}

// inbox takes operations from any goroutine and gives them to the loop, all at once.
type inbox struct {
	mu     sync.Mutex
	ops    []op
	closed error // why nothing is taken any more

	wake chan struct{} // holds one token while ops is not empty
}

func newInbox() *inbox { return &inbox{wake: make(chan struct{}, 1)} }

// put refuses an operation where too many wait.
func (b *inbox) put(o op) error { return b.add(o, maxWaiting) }

// insist is put for what its caller could not say again: the end of a call or of a session, a change of its capacity.
func (b *inbox) insist(o op) error { return b.add(o, math.MaxInt) }

func (b *inbox) add(o op, room int) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed != nil {
		return b.closed
	}
	if len(b.ops) >= room {
		return ErrOverloaded
	}
	b.ops = append(b.ops, o)
	select {
	case b.wake <- struct{}{}:
	default:
	}
	return nil
}

// take moves what waits to the end of ops, at most n, in its order.
func (b *inbox) take(ops []op, n int) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	n = min(n, len(b.ops))
	ops = append(ops, b.ops[:n]...)
	left := copy(b.ops, b.ops[n:])
	clear(b.ops[left:])
	b.ops = b.ops[:left]
	if left > 0 {
		select {
		case b.wake <- struct{}{}:
		default:
		}
	}
	return ops
}

// close refuses everything from now on and returns what still waited.
func (b *inbox) close(why error) []op {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = why
	ops := b.ops
	b.ops = nil
	return ops
}
