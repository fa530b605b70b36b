package session

import (
	"time"

	"github.com/lessor-dev/lessor/coordinator/quota"
)

// The pace of a session's heartbeats. Each heartbeat costs a span of time, and the spans add up. If
// more than maxBeatsAhead is left, the next heartbeat waits. So a flood of heartbeats slows only
// its own stream. No real worker reaches the bound: to renew 10,000 leases each second costs half a
// second.
const (
	beatCost      = time.Millisecond      // of one heartbeat
	leaseCost     = 50 * time.Microsecond // of each lease that a heartbeat names, in addition
	maxBeatsAhead = 2 * time.Second       // how much may be left before a heartbeat waits
)

// pace makes sure that only one heartbeat of a session is judged at a time.
type pace struct {
	busy bool // a heartbeat has its turn
	due  quota.Debt
}

// beatTurn waits until a heartbeat may be judged, and begins its turn. It returns false if the
// stream ends. Only the reader calls it. beatJudged or beatOver ends the turn.
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

// beatJudged adds the cost of a heartbeat with the given number of leases, and ends its turn: at
// once, or when at most maxBeatsAhead is left.
func (o *outbox) beatJudged(leases int) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, now := &o.pace, time.Now()
	p.due = p.due.Plus(beatCost+time.Duration(leases)*leaseCost, now)
	if ahead := p.due.Owed(now); ahead > maxBeatsAhead {
		time.AfterFunc(ahead-maxBeatsAhead, o.beatOver)
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
