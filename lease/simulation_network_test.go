package lease_test

import (
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// claim is what a worker knows of its lease.
type claim struct {
	tenant, task, lease string
	attempt             uint32

	id    lease.TaskID
	epoch uint32
	nonce uint64
	ttl   time.Duration
}

// notice is a message to a worker, sent when what it says is durable: a grant (claim), or the
// verdict on a report (report and answer).
type notice struct {
	to     *worker // nil: a stranger, who does not receive it
	claim  *claim
	report *lease.Report
	answer lease.Answer

	at     lease.Instant // when it was decided, in uptime
	until  lease.Instant // the end of the lease that the message names, in uptime; 0 if it names none
	starts int           // how often the coordinator had started when it was decided
}

// request is a message to the coordinator.
type request struct {
	from  *worker // nil: a stranger
	judge lease.Judge
}

// network holds the messages that were sent and not yet received: up to the coordinator, down to
// the workers. It delivers them in any order and after any delay.
type network struct {
	up   []request
	down []notice
}

// maxQueued is the largest number of messages that wait in each direction. If there is one more,
// the oldest is lost.
const maxQueued = 48

// send gives a message to the network, which may lose or double it.
func send[T any](w *world, way *[]T, m T) {
	if w.faultChance(6) {
		return
	}
	*way = appendBounded(*way, m, maxQueued)
	if w.faultChance(6) {
		*way = appendBounded(*way, m, maxQueued)
	}
}

// receive takes a random message out of the network, mostly a recent one. When the faults are over,
// it takes the oldest.
func receive[T any](w *world, way *[]T) (m T, ok bool) {
	n := len(*way)
	if n == 0 {
		return m, false
	}
	i := w.rng.IntN(n)
	if w.chance(70) {
		i = max(i, w.rng.IntN(n), w.rng.IntN(n))
	}
	if w.faultsOver {
		i = 0
	}
	m = (*way)[i]
	*way = append((*way)[:i], (*way)[i+1:]...)
	return m, true
}

// appendBounded appends to a list of at most size entries. If the list is full, it removes the
// oldest entry.
func appendBounded[T any](list []T, x T, size int) []T {
	if len(list) == size {
		list = append(list[:0], list[1:]...)
	}
	return append(list, x)
}
