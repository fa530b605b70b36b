package session

import "time"

// The pace of a session's heartbeats. Each takes some time that must pass before a later one has its turn, so that a flood of them stands still in
// its own stream and costs the others next to nothing. No worker needs as many: 10,000 leases, renewed each second, take half of the time.
const (
	beatTakes  = time.Millisecond
	leaseTakes = 50 * time.Microsecond // each that a heartbeat names
	beatsAhead = 2 * time.Second       // that heartbeats may take before later ones wait for it to pass
)

// pace lets one heartbeat after the other be judged.
type pace struct {
	busy  bool      // one has its turn
	taken time.Time // until when the time is taken
}

// beatTurn waits until a heartbeat may be judged; false means that the stream is ending. Only the reader waits here. Each turn ends with beatJudged.
func (o *outbox) beatTurn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.pace.busy {
		o.changed.Wait()
	}
	if o.closed {
		return false
	}
	o.pace.busy = true
	return true
}

// beatJudged ends the turn of a heartbeat that names so many leases, once its time has passed.
func (o *outbox) beatJudged(leases int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, now := &o.pace, time.Now()
	if p.taken.Before(now) {
		p.taken = now
	}
	p.taken = p.taken.Add(beatTakes + time.Duration(leases)*leaseTakes)
	if ahead := p.taken.Sub(now); ahead > beatsAhead {
		time.AfterFunc(ahead-beatsAhead, o.beatOver)
		return
	}
	o.beatOverLocked()
}

func (o *outbox) beatOver() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.beatOverLocked()
}

func (o *outbox) beatOverLocked() {
	o.pace.busy = false
	o.changed.Broadcast()
}
