package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// concurrencyKey is a concurrency key that some task holds or waits for (T11). It lists its live leases by task, instead of counting them, so that
// no count can leak. READY tasks for which the key had no room are parked under it, line by line, and come back one by one when it has room.
type concurrencyKey struct {
	space   *space
	key     string
	holders map[lease.TaskID]uint32 // concurrency_limit of each holder
	limits  btree.Map[uint32, int]  // number of holders that have each limit, in order: a producer may give each task another limit
	parked  map[lease.Line]*head[place]
	rota    rota

	mostParked int // see shrunk
}

func (k *concurrencyKey) state() lease.Holders {
	least, _, _ := k.limits.Min()
	return lease.Holders{Count: uint32(len(k.holders)), Limit: least}
}

func (k *concurrencyKey) hold(id lease.TaskID, limit uint32) {
	if _, held := k.holders[id]; !held {
		k.holders[id] = limit
		n, _ := k.limits.Get(limit)
		k.limits.Set(limit, n+1)
	}
}

func (k *concurrencyKey) release(id lease.TaskID) {
	limit, held := k.holders[id]
	if !held {
		return
	}
	delete(k.holders, id)
	if n, _ := k.limits.Get(limit); n > 1 {
		k.limits.Set(limit, n-1)
	} else {
		k.limits.Delete(limit)
	}
}
