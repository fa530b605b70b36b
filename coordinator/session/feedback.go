package session

import (
	"fmt"
	"sync"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// maxFeedback is how many bytes of a session's feedback may wait for the engine; one item may be larger. If more waits, the oldest items are
// dropped (W11).
const maxFeedback = 1 << 20

// maxLost is for how many leases the queue counts the dropped items, so that it can tell their watchers.
const maxLost = 1024

// feedbackQueue holds a session's feedback while the engine handles an earlier part of it. The engine has only one part of each session at a
// time, plus the feedback that comes right before an outcome. So a flood of feedback costs only its own session memory and lost items.
type feedbackQueue struct {
	handing sync.Mutex // held while a part goes from the queue to the engine, so that no later part overtakes it; locked before mu

	mu      sync.Mutex // guards the rest
	waiting []engine.ResolvedFeed
	bytes   int
	lost    map[string]engine.ResolvedFeed // the rest of dropped items (see engine.ResolvedFeed.Dropped), by lease id; nil: none was dropped
	busy    bool                           // the engine has a part
}

// feedback passes progress and output of running attempts to the engine. They are volatile.
func (ss *Session) feedback(corr string, m *lessorv1.Feedback) {
	if !ss.mayPass(corr) {
		ss.srv.Registry.dropped.Add(float64(len(m.GetItems())))
		return
	}
	if !ss.fits(corr, "feedback.items", len(m.GetItems())) {
		return
	}
	var feeds []engine.Feed
	for i, item := range m.GetItems() {
		feed, err := convert.ParseFeedback(item, ss.srv.Limits)
		if err != nil {
			ss.fail(corr, refusal.CodeInvalid, err.Under(fmt.Sprintf("feedback.items[%d]", i)).Error(), "")
			continue
		}
		feeds = append(feeds, feed)
	}
	dropped := ss.waitingFeedback.add(ss.srv.Engine.ResolveFeeds(ss.who.Tenant, feeds))
	ss.srv.Registry.dropped.Add(float64(dropped))
	ss.passOn()
}

// passOn gives the waiting feedback to the engine, unless the engine has a part. When the engine is done with that part, it calls passOn again.
func (ss *Session) passOn() {
	ss.waitingFeedback.handing.Lock()
	defer ss.waitingFeedback.handing.Unlock()
	if part := ss.waitingFeedback.take(); part != nil {
		ss.handToEngine(part)
	}
}

// passAll gives the waiting feedback to the engine, so that the outcome that comes next does not overtake it.
func (ss *Session) passAll() {
	ss.waitingFeedback.handing.Lock()
	defer ss.waitingFeedback.handing.Unlock()
	if part := ss.waitingFeedback.takeAll(); part != nil {
		ss.handToEngine(part)
	}
}

// handToEngine gives a part to the engine. The caller holds handing.
func (ss *Session) handToEngine(part []engine.ResolvedFeed) {
	ss.srv.Engine.FeedAll(ss.who.Tenant, part, func(taken bool) {
		if taken {
			ss.waitingFeedback.partDone(nil)
			ss.passOn()
			return
		}
		ss.srv.Registry.dropped.Add(float64(len(part)))
		ss.waitingFeedback.partDone(part) // the next item of each lease tells the watchers
	})
}

// add adds items to the queue, and returns how many items it dropped for them.
func (q *feedbackQueue) add(news []engine.ResolvedFeed) (dropped int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range news {
		q.waiting = append(q.waiting, news[i])
		q.bytes += news[i].Size()
	}
	for q.bytes > maxFeedback && len(q.waiting) > 1 {
		q.drop(q.waiting[0])
		q.bytes -= q.waiting[0].Size()
		q.waiting = q.waiting[1:]
		dropped++
	}
	return dropped
}

// drop counts a lost item of a lease. The next item of the lease carries the count.
func (q *feedbackQueue) drop(n engine.ResolvedFeed) {
	if q.lost == nil {
		q.lost = map[string]engine.ResolvedFeed{}
	}
	if before, ok := q.lost[n.Lease()]; ok {
		n = n.After(before)
	} else if len(q.lost) == maxLost {
		return
	}
	q.lost[n.Lease()] = n.Dropped()
}

// take returns the next part for the engine; nil if nothing waits, or if the engine still has a part.
func (q *feedbackQueue) take() []engine.ResolvedFeed {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		return nil
	}
	return q.takeLocked()
}

// takeAll returns everything that waits, even if the engine has a part.
func (q *feedbackQueue) takeAll() []engine.ResolvedFeed {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.takeLocked()
}

// takeLocked empties the queue and returns what it held. The caller holds mu.
func (q *feedbackQueue) takeLocked() []engine.ResolvedFeed {
	if len(q.waiting) == 0 && len(q.lost) == 0 {
		return nil
	}
	part := q.waiting
	for i := range part {
		if l, ok := q.lost[part[i].Lease()]; ok {
			part[i] = part[i].After(l)
			delete(q.lost, part[i].Lease())
		}
	}
	for _, l := range q.lost { // leases for which no newer item waits
		part = append(part, l)
	}
	q.busy, q.waiting, q.bytes, q.lost = true, nil, 0, nil
	return part
}

// partDone says that the engine is done with a part. dropped are the items that it did not take.
func (q *feedbackQueue) partDone(dropped []engine.ResolvedFeed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	for _, n := range dropped {
		q.drop(n)
	}
}
