package engine

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// takeAtOnce is how many operations the loop takes from the inbox at most at once: few, because
// what comes in later waits for all of them, even if it is of another tenant. After one that ran
// for longer than longOp, such as one that made a thousand tasks, it takes a single one, and then
// twice as many each time.
var takeAtOnce = 16

const longOp = 200 * time.Microsecond

// sharedFor is for how long it is expected that several tenants have operations, after an operation
// of another tenant than the one before.
const sharedFor = 10 * time.Second

// intake takes operations out of the inbox, and keeps them until they have run. It belongs to the
// loop.
type intake struct {
	inbox  *inbox
	taken  []op // those that have not run yet
	spare  []op // memory for taken
	atOnce int  // how many to take next

	tenant      string        // of the last operation that was of a tenant
	sharedUntil lease.Instant // see sharedFor
}

func newIntake(b *inbox) *intake { return &intake{inbox: b, atOnce: 1} }

// wake returns the channel that wakes the loop when an operation comes in; nil while some that were
// taken before come first.
func (i *intake) wake() <-chan struct{} {
	if i.begun() {
		return nil
	}
	return i.inbox.wake
}

// begun reports whether operations were taken that have not run yet.
func (i *intake) begun() bool { return len(i.taken) > 0 }

// waiting returns how many operations wait.
func (i *intake) waiting() int { return len(i.taken) + i.inbox.waiting() }

// first returns the operation to run next; one must wait. If it takes operations out of the inbox
// for that, it takes at most `most`.
func (i *intake) first(most int) *op {
	if len(i.taken) == 0 {
		i.spare = i.inbox.take(i.spare[:0], min(most, i.atOnce))
		i.taken = i.spare
		i.atOnce = min(2*i.atOnce, takeAtOnce)
	}
	return &i.taken[0]
}

// shift removes the first operation, which has run: until then, close returns it.
func (i *intake) shift(now lease.Instant) {
	if next := i.taken[0].tenant; next != i.tenant && next != "" { // those of nobody are metrics, and reads for all
		if i.tenant != "" {
			i.sharedUntil = now.Add(sharedFor)
		}
		i.tenant = next
	}
	i.taken[0] = op{}
	i.taken = i.taken[1:]
}

// mostChanges returns how many changes make a batch full.
func (i *intake) mostChanges(now lease.Instant) int {
	if now < i.sharedUntil {
		return min(maxSharedChanges, maxBatchChanges)
	}
	return maxBatchChanges
}

// slowDown is called after an operation that ran for longer than longOp.
func (i *intake) slowDown() { i.atOnce = 1 }

// close closes the inbox, and returns the operations that have not run.
func (i *intake) close(why error) []op { return append(i.taken, i.inbox.close(why)...) }
