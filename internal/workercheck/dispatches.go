package workercheck

import (
	"slices"
	"sync"
)

// dispatches are those of one stream that the worker has not acknowledged by a frame yet.
type dispatches struct {
	mu    sync.Mutex
	sent  map[string]int // the place of each frame in the order of the stream, by its id
	unack []dispatched   // in the same order
}

// dispatched is an attempt, and the place of the frame with it.
type dispatched struct {
	attempt *attempt
	at      int
}

// add adds a frame to the worker, with the attempts of which it tells.
func (d *dispatches) add(id string, granted []*attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.sent == nil {
		d.sent = map[string]int{}
	}
	if _, again := d.sent[id]; again {
		return
	}
	at := len(d.sent)
	d.sent[id] = at
	for _, a := range granted {
		d.unack = append(d.unack, dispatched{a, at})
	}
}

// upTo returns the attempts that an acknowledgement of the frame acknowledges: it is also about all
// frames before.
func (d *dispatches) upTo(id string) (acked []*attempt) {
	d.mu.Lock()
	defer d.mu.Unlock()
	at, known := d.sent[id]
	if !known {
		return nil
	}
	d.unack = slices.DeleteFunc(d.unack, func(of dispatched) bool {
		if of.at <= at {
			acked = append(acked, of.attempt)
		}
		return of.at <= at
	})
	return acked
}
