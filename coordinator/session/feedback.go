package session

import (
	"fmt"
	"strings"
	"sync"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// maxFeedback is how many bytes of a session's feedback may wait for the engine; one item may be
// larger. If more waits, the oldest items are dropped (W11).
var maxFeedback = 1 << 20

// maxLost is for how many leases the queue counts the dropped items, so that it can tell their
// watchers.
var maxLost = 1024

// feedbackQueue passes a session's feedback to the engine, and holds it while the engine handles an
// earlier part of it. While the engine has a part, it gets another one only right before a report
// or the progress of a heartbeat, and only as far as both together are within maxFeedback. So a
// flood of feedback costs only its own session memory and lost items, however long a commit takes.
type feedbackQueue struct {
	srv    *Server
	tenant string

	// mu guards the rest. It is also held while a part goes to the engine, so that no later part
	// overtakes it.
	mu      sync.Mutex
	waiting []engine.ResolvedFeed
	bytes   int // of waiting
	// lost is the rest of dropped items (see engine.ResolvedFeed.Dropped), by lease id; nil: none
	// was dropped.
	lost     map[string]engine.ResolvedFeed
	inEngine int // bytes of the parts that the engine has; 0: it has none
}

// maxNamed is how many wrong items of a feedback frame its error names.
const maxNamed = 10

// feedback passes progress and output of running attempts to the engine. They are volatile. The
// items are independent, since they may be about different tasks: those that are wrong are dropped,
// and one error names them.
func (ss *Session) feedback(corr string, m *lessorv1.Feedback) {
	if !ss.spendFeedback(corr) {
		ss.srv.Registry.dropped.Add(float64(len(m.GetItems())))
		refused := m.GetItems()[:min(len(m.GetItems()), ss.srv.Limits.MaxFrameItems())]
		ss.feeds.add(ss.srv.Engine.ResolveFeeds(ss.who.Tenant, countsOf(refused)))
		return
	}
	if ss.refuseTooMany(corr, "feedback.items", len(m.GetItems())) {
		return
	}
	var feeds []engine.Feed
	var problems []string
	for i, item := range m.GetItems() {
		feed, err := convert.ParseFeedback(item, ss.srv.Limits)
		switch {
		case err == nil:
			feeds = append(feeds, feed)
		case len(problems) < maxNamed:
			problems = append(problems, err.Under(fmt.Sprintf("feedback.items[%d]", i)).Error())
		}
	}
	if len(problems) > 0 {
		ss.refuseItems(corr, problems, len(m.GetItems())-len(feeds), len(feeds))
	}
	ss.feeds.add(ss.srv.Engine.ResolveFeeds(ss.who.Tenant, feeds))
}

// refuseItems tells the worker that items of a feedback frame are wrong. problems are those of the
// first ones. If no item is good, the frame changes nothing.
func (ss *Session) refuseItems(corr string, problems []string, wrong, good int) {
	message := strings.Join(problems, "; ")
	if more := wrong - len(problems); more > 0 {
		message += fmt.Sprintf("; and %d more", more)
	}
	if good == 0 {
		ss.refuse(corr, refusal.CodeInvalid, message, "correct the items and send them again")
		return
	}
	ss.answerError(corr, refusal.CodeInvalid, message,
		fmt.Sprintf("correct the items and send them in another frame; the other %d were taken", good))
}

// countsOf returns news that tells watchers how many items they miss, without their content: one
// for each lease, so that it takes little room.
func countsOf(items []*lessorv1.FeedbackItem) (counts []engine.Feed) {
	type about struct{ task, lease string }
	at := map[about]int{}
	for _, item := range items {
		of := about{item.GetTaskId(), item.GetLeaseId()}
		i, ok := at[of]
		if !ok {
			i, at[of] = len(counts), len(counts)
			counts = append(counts, engine.Feed{TaskID: of.task, LeaseID: of.lease})
		}
		counts[i].Lost++
	}
	return counts
}

// add queues items, and gives what waits to the engine, unless the engine has a part.
func (q *feedbackQueue) add(news []engine.ResolvedFeed) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for i := range news {
		q.waiting = append(q.waiting, news[i])
		q.bytes += news[i].Size()
	}
	q.shorten(maxFeedback, 1)
	if q.inEngine == 0 {
		q.passLocked()
	}
}

// shorten drops the oldest items until the others have at most the given bytes, or are no more than
// least. The caller holds mu.
func (q *feedbackQueue) shorten(bytes, least int) {
	for q.bytes > bytes && len(q.waiting) > least {
		q.drop(q.waiting[0])
		q.bytes -= q.waiting[0].Size()
		q.waiting[0] = engine.ResolvedFeed{} // so that its memory can be freed
		q.waiting = q.waiting[1:]
	}
}

// passAll gives the waiting feedback to the engine, even if the engine has a part, so that the
// report or heartbeat that comes next does not overtake it. What does not fit beside the parts that
// the engine has is dropped, the oldest first.
func (q *feedbackQueue) passAll() {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.passLocked()
}

// passLocked gives what waits to the engine. When the engine has nothing more of the session, it
// gets what waits then. The caller holds mu.
func (q *feedbackQueue) passLocked() {
	part, bytes := q.takeLocked()
	if len(part) == 0 {
		return
	}
	q.inEngine += bytes
	q.srv.Engine.FeedAll(q.tenant, part, func(taken bool) {
		if taken {
			q.partDone(bytes)
			return
		}
		// The engine refuses a part before FeedAll returns, so mu is still held. The next item of
		// each lease tells the watchers.
		q.inEngine -= bytes
		for _, n := range part {
			q.drop(n)
		}
	})
}

// partDone is called when the engine is done with a part of the given bytes.
func (q *feedbackQueue) partDone(bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.inEngine -= bytes; q.inEngine == 0 {
		q.passLocked()
	}
}

// drop counts a lost item of a lease. The next item of the lease carries the count. The caller
// holds mu.
func (q *feedbackQueue) drop(n engine.ResolvedFeed) {
	if n.Says() {
		q.srv.Registry.dropped.Inc()
	}
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

// takeLocked takes from the queue what the engine gets next, and returns it with its bytes. Counts
// of lost items have as much room again as the items, so that they need not wait for a commit;
// those that do not fit stay in the queue. The caller holds mu.
func (q *feedbackQueue) takeLocked() (part []engine.ResolvedFeed, bytes int) {
	least := 0
	if q.inEngine == 0 {
		least = 1
	}
	q.shorten(maxFeedback-q.inEngine, least)
	part, bytes = q.waiting, q.bytes
	q.waiting, q.bytes = nil, 0
	for i := range part {
		if l, ok := q.lost[part[i].Lease()]; ok {
			part[i] = part[i].After(l)
			delete(q.lost, part[i].Lease())
		}
	}
	for of, l := range q.lost { // leases for which no newer item waits
		if all := q.inEngine + bytes; all > 0 && all+l.Size() > 2*maxFeedback {
			break
		}
		part, bytes = append(part, l), bytes+l.Size()
		delete(q.lost, of)
	}
	return part, bytes
}

// lostSize returns how many bytes the counts of lost items have that wait for newer items of their
// leases, or for room in the engine.
func (q *feedbackQueue) lostSize() (bytes int) {
	q.mu.Lock()
	defer q.mu.Unlock()
	for _, l := range q.lost {
		bytes += l.Size()
	}
	return bytes
}
