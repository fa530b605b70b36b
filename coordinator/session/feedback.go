package session

import (
	"fmt"
	"sync"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// maxFeedback is how many bytes of a session's feedback may wait for the engine, unless the newest item alone is larger. Beyond that, items are
// dropped, the oldest first (W11).
const maxFeedback = 1 << 20

// maxLost is for how many leases the number of dropped items is remembered, so that their watchers learn of it.
const maxLost = 1024

// feedbackQueue holds a session's feedback while an earlier part of it is with the engine. Each session has only one part with the engine at a time
// (and what comes right before an outcome). So a flood of feedback costs memory and news only in its own session.
type feedbackQueue struct {
	handing sync.Mutex // held while a part is taken and given to the engine, so that nothing said later overtakes it; taken before mu

	mu      sync.Mutex // guards the rest
	waiting []engine.ResolvedFeed
	bytes   int
	lost    map[string]engine.ResolvedFeed // what remains of dropped items (see engine.ResolvedFeed.Dropped), by lease id; nil until the first is dropped
	busy    bool                           // a part is with the engine
}

// feedback passes volatile news of running attempts on.
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
	dropped := ss.news.add(ss.srv.Engine.ResolveFeeds(ss.who.Tenant, feeds))
	ss.srv.Registry.dropped.Add(float64(dropped))
	ss.passOn()
}

// passOn gives the engine what waits, unless the engine has a part already. It is called again when the engine is done with that part.
func (ss *Session) passOn() {
	ss.news.handing.Lock()
	defer ss.news.handing.Unlock()
	if part := ss.news.take(); part != nil {
		ss.hand(part)
	}
}

// passAll gives the engine what waits, so that an outcome that comes next does not overtake it.
func (ss *Session) passAll() {
	ss.news.handing.Lock()
	defer ss.news.handing.Unlock()
	if part := ss.news.takeAll(); part != nil {
		ss.hand(part)
	}
}

// hand gives the engine a part. The caller holds handing.
func (ss *Session) hand(part []engine.ResolvedFeed) {
	ss.srv.Engine.FeedAll(ss.who.Tenant, part, func(taken bool) {
		if taken {
			ss.news.through(nil)
			ss.passOn()
			return
		}
		ss.srv.Registry.dropped.Add(float64(len(part)))
		ss.news.through(part) // the next item of each lease will tell the watchers
	})
}

// add takes news in and returns how many items had to go.
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

// drop remembers that an item is lost, for the news of its lease that come next.
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

// take returns the part to give to the engine next; nil if there is none, or the engine still has one.
func (q *feedbackQueue) take() []engine.ResolvedFeed {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.busy {
		return nil
	}
	return q.all()
}

// takeAll returns what waits, whatever is under way.
func (q *feedbackQueue) takeAll() []engine.ResolvedFeed {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.all()
}

// all empties the queue. The caller holds mu.
func (q *feedbackQueue) all() []engine.ResolvedFeed {
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
	for _, l := range q.lost { // of leases without a newer item
		part = append(part, l)
	}
	q.busy, q.waiting, q.bytes, q.lost = true, nil, 0, nil
	return part
}

// through is called when the engine is done with a part; dropped are the items that it did not take.
func (q *feedbackQueue) through(dropped []engine.ResolvedFeed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.busy = false
	for _, n := range dropped {
		q.drop(n)
	}
}
