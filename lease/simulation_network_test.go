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

// telling is something that a worker is told once it is durable: a grant, or a verdict on its report.
type telling struct {
	to     *worker
	claim  *claim        // of a grant
	report *lease.Report // that is answered
	answer lease.Answer

	// In uptime: when it was decided, and until when the lease lives by it.
	at, until lease.Instant
	starts    int
}

// request is on its way to the coordinator.
type request struct {
	from *worker
	say  lease.Say
}

// network holds what is on its way, for as long as it likes and in no order.
type network struct {
	up   []request
	down []telling
}

// mayWait bounds what is on its way in each direction; what is above gets lost.
const mayWait = 48

// send hands something to the network, which may lose or double it.
func send[T any](w *world, way *[]T, m T) {
	if w.lossy(6) {
		return
	}
	*way = keep(*way, m, mayWait)
	if w.lossy(6) {
		*way = keep(*way, m, mayWait)
	}
}

// receive takes out anything that is on its way, mostly something recent.
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

// keep appends to a list of recent things and forgets the oldest.
func keep[T any](list []T, x T, size int) []T {
	if len(list) == size {
		list = append(list[:0], list[1:]...)
	}
	return append(list, x)
}
