package engine

import "github.com/lessor-dev/lessor/lease"

// lossesPerRound is how many tasks are given up before other operations have their turn.
var lossesPerRound = 200

// loseResources gives up the tasks that wait for a worker that has been gone for too long.
func (e *Engine) loseResources(k workerKey) {
	p := e.workers.awaiting(k)
	n := 0
	// p.end is still the alarm that has rung, so workers.update sets no other alarm when a line
	// becomes empty
	for l := range p.pinned {
		if n == lossesPerRound {
			break
		}
		for ; n < lossesPerRound && l.lineup != nil; n++ {
			e.loseFirst(l, k.worker)
		}
	}
	for l := range p.parked {
		if n == lossesPerRound {
			break
		}
		for ; n < lossesPerRound && !l.isDropped(); n++ {
			e.loseFirstParked(l, k.worker)
		}
	}
	e.workers.gaveUp(k, p)
}

func (e *Engine) loseFirst(l *line, worker string) {
	if l.head.dry() {
		e.lines.refill(l)
	}
	if p, ok := l.head.first(); ok {
		e.loseResource(l.queue.space, p, worker)
		l.head.remove(p) // even if the index entry has no task: such an entry must not block the line
	}
	if l.lineup != nil {
		e.lines.relist(l)
	}
}

// loseFirstParked is loseFirst for a line of parked tasks: they need not have the room of their key
// to fail.
func (e *Engine) loseFirstParked(l *parkedLine, worker string) {
	p, ok := e.parking.first(l)
	if !ok {
		e.parking.mayHaveRoom(l.key) // it may be needed no more
		return
	}
	e.loseResource(l.key.space, p, worker)
	e.parking.remove(l, p) // as in loseFirst
}

func (e *Engine) loseResource(s *space, p place, worker string) {
	e.step(lease.LoseResource{
		Task: lease.TaskID{Space: s.number, Seq: p.seq}, Worker: worker,
		After: e.cfg.ResourceWait,
	})
}
