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

// maxBeatsJudged is how much the heartbeats of a session that are judged at the same time may cost,
// unless one alone costs more. It is what a heartbeat with 1,000 leases costs, or some fifty with
// one each: fewer would not do on a slow disk, where the judgement of each takes two commits, and a
// worker whose leases need more would lose them all. Work of other sessions waits for all that are
// judged.
const maxBeatsJudged = 50 * time.Millisecond

// pace makes sure that the heartbeats of a session keep to both bounds.
type pace struct {
	judged time.Duration // what the heartbeats cost that are being judged, or are judged and ahead
	due    quota.Debt
}

// costOfBeat returns what a heartbeat with so many leases costs.
func costOfBeat(leases int) time.Duration { return beatCost + time.Duration(leases)*leaseCost }

// beatTurn waits until a heartbeat of this cost may be judged, and begins its turn. It returns
// false if the stream ends. Only the reader calls it. beatJudged or beatOver ends the turn.
func (o *outbox) beatTurn(cost time.Duration) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	for !o.closed && o.pace.judged > 0 && o.pace.judged+cost > maxBeatsJudged {
		o.changed.Wait()
	}
	if o.closed {
		return false
	}
	o.pace.judged += cost
	return true
}

// beatJudged adds the cost of a heartbeat to those that add up, and ends its turn: at once, or when
// at most maxBeatsAhead is left.
func (o *outbox) beatJudged(cost time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	p, now := &o.pace, time.Now()
	p.due = p.due.Plus(cost, now)
	if ahead := p.due.Owed(now); ahead > maxBeatsAhead {
		time.AfterFunc(ahead-maxBeatsAhead, func() { o.beatOver(cost) })
		return
	}
	o.beatOverLocked(cost)
}

func (o *outbox) beatOver(cost time.Duration) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.beatOverLocked(cost)
}

func (o *outbox) beatOverLocked(cost time.Duration) {
	o.pace.judged -= cost
	o.changed.Broadcast()
}
