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

// telling is something that a worker is told once it is durable: a grant (claim), or the verdict on a report (report and answer).
type telling struct {
	to     *worker // nil: a stranger, who hears nothing
	claim  *claim
	report *lease.Report
	answer lease.Answer

	at     lease.Instant // when it was decided, in uptime
	until  lease.Instant // until when the lease is live according to it, in uptime; 0: it does not say
	starts int           // of the coordinator until it was decided
}

// request is what somebody says to the coordinator.
type request struct {
	from *worker // nil: a stranger
	say  lease.Judge
}

// network holds the messages that were sent and not yet received: up to the coordinator, down to the workers. It delivers them in any order, with any
// delay.
type network struct {
	up   []request
	down []telling
}

// mayWait bounds the messages that wait in each direction. When there is one more, the oldest is lost.
const mayWait = 48

// send gives a message to the network, which may lose or double it.
func send[T any](w *world, way *[]T, m T) {
	if w.lossy(6) {
		return
	}
	*way = keep(*way, m, mayWait)
	if w.lossy(6) {
		*way = keep(*way, m, mayWait)
	}
}

// receive takes a random message out of the network, mostly a recent one; once the faults are over, the oldest.
func receive[T any](w *world, way *[]T) (m T, ok bool) {
	n := len(*way)
	if n == 0 {
		return m, false
	}
	i := w.rng.IntN(n)
	if w.chance(70) {
		i = max(i, w.rng.IntN(n), w.rng.IntN(n))
	}
	if w.calm {
		i = 0
	}
	m = (*way)[i]
	*way = append((*way)[:i], (*way)[i+1:]...)
	return m, true
}

// keep appends to a list of at most size entries. If the list is full, its oldest entry goes.
func keep[T any](list []T, x T, size int) []T {
	if len(list) == size {
		list = append(list[:0], list[1:]...)
	}
	return append(list, x)
}
