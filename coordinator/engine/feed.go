package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// ResolvedFeed is news of a running attempt, with its task and attempt, on its way to watchers.
type ResolvedFeed struct {
	feed    *Feed
	id      lease.TaskID
	attempt uint32
	nonce   uint64          // of the lease: after a restore, the same attempt may have been granted again
	task    *lease.Task     // the version of the task when the loop took the news
	sum     *lease.Feedback // everything that the attempt has reported so far, except its output
}

// ResolveFeeds finds the task and attempt of each piece of news. It leaves out news whose lease id
// was not issued for its task.
func (e *Engine) ResolveFeeds(tenant string, feeds []Feed) (news []ResolvedFeed) {
	for i := range feeds {
		if n, ok := e.resolve(tenant, &feeds[i]); ok {
			news = append(news, n)
		}
	}
	return news
}

func (e *Engine) resolve(tenant string, f *Feed) (n ResolvedFeed, ok bool) {
	id, ok := lease.ParseTaskID(f.TaskID)
	ticket, known := e.rules.Authority.Open(tenant, f.LeaseID)
	return ResolvedFeed{feed: f, id: id, attempt: ticket.Attempt, nonce: ticket.Nonce}, ok && known && ticket.Task == id
}

// ReportNews is news that comes with a report.
type ReportNews struct {
	Report int // its index among the reports of the call
	Feed
}

// resolvedReportNews is ReportNews with its task and attempt.
type resolvedReportNews struct {
	report int
	ResolvedFeed
}

func (e *Engine) resolveReportNews(tenant string, all []ReportNews) (news []resolvedReportNews) {
	for i := range all {
		if n, ok := e.resolve(tenant, &all[i].Feed); ok {
			news = append(news, resolvedReportNews{all[i].Report, n})
		}
	}
	return news
}

// FeedAll passes volatile news of running attempts to watchers, as far as their leases are live. It
// does not wait: done is called when watchers can read the news, or when it is certain that they
// never will. taken is false if the engine did not take the news, because it has stopped or is
// overloaded. done must not block.
func (e *Engine) FeedAll(tenant string, news []ResolvedFeed, done func(taken bool)) {
	if len(news) == 0 {
		done(true)
		return
	}
	err := e.inbox.put(tenant, op{
		run:   func() { e.addFeeds(news) },
		after: func(error) { done(true) },
	})
	if err != nil { // stopped or overloaded: news may be lost
		done(false)
	}
}

// addFeeds adds news to the batch, after whose commit watchers get it.
func (e *Engine) addFeeds(news []ResolvedFeed) {
	for _, n := range news {
		e.addFeed(n)
	}
}

func (e *Engine) addFeed(n ResolvedFeed) {
	if n.task = e.set.leased(n.id); leasedAs(n.task, n.attempt) && n.task.Lease.Nonce == n.nonce {
		e.batch().addFeed(n)
	}
}

// Size returns roughly how many bytes the news has.
func (n *ResolvedFeed) Size() int { return n.feed.Size() }

// Says reports whether the news has anything besides a count of lost news.
func (n *ResolvedFeed) Says() bool { return n.feed.says() }

// Lease returns the id of the lease that the news is about.
func (n *ResolvedFeed) Lease() string { return n.feed.LeaseID }

// Dropped returns news to send instead of this news, which is dropped. It has no content, only the
// count of lost news, including this one.
func (n *ResolvedFeed) Dropped() ResolvedFeed {
	rest := *n
	rest.feed = &Feed{TaskID: n.feed.TaskID, LeaseID: n.feed.LeaseID, Lost: n.feed.Lost}
	if n.feed.says() {
		rest.feed.Lost++
	}
	return rest
}

// After returns the news with the lost news of dropped added to its count. dropped is from Dropped,
// for the news right before this one.
func (n *ResolvedFeed) After(dropped ResolvedFeed) ResolvedFeed {
	next, feed := *n, *n.feed
	feed.Lost += dropped.feed.Lost
	next.feed = &feed
	return next
}

// leasedAs reports whether the task has a live lease for the attempt.
func leasedAs(t *lease.Task, attempt uint32) bool {
	return isLeased(t) && t.Lease.Attempt == attempt
}

// join returns a copy of known with the news added. It does not write to known, because readers may
// use known.
func join(known *lease.Feedback, next *Feed) *lease.Feedback {
	sum := *known
	if next.Fraction != nil {
		sum.Fraction = *next.Fraction
	}
	if next.Stage != "" {
		sum.Stage = next.Stage
	}
	if next.Message != "" {
		sum.Message = next.Message
	}
	if next.Metrics != nil {
		sum.Metrics = next.Metrics
	}
	if len(next.Chunks) > 0 {
		sum.Chunks = lastChunks(append(slices.Clip(sum.Chunks), next.Chunks...))
	}
	return &sum
}

// Bounds of the output that is kept in memory.
var (
	recentChunks = 100      // chunks of one attempt
	recentBytes  = 64 << 10 // bytes of one attempt, unless its last chunk alone is larger
	recentOfAll  = 64 << 20 // bytes of all live attempts together
)

// lastChunks returns the end of the output: the last chunk, and the chunks before it that fit into
// the bounds of an attempt.
func lastChunks(all []lease.Chunk) []lease.Chunk {
	first, bytes := len(all), 0
	for first > max(0, len(all)-recentChunks) {
		if bytes += all[first-1].Size(); bytes > recentBytes && first < len(all) {
			break
		}
		first--
	}
	return slices.Clone(all[first:]) // so that the memory of the other chunks can be freed
}

// outputSize returns the number of bytes of output in f.
func outputSize(f *lease.Feedback) (n int) {
	for i := range f.Chunks {
		n += f.Chunks[i].Size()
	}
	return n
}

// finalFeedback is everything that an attempt had reported when it ended.
type finalFeedback struct {
	task     lease.TaskID
	feedback *lease.Feedback
}

// absorb adds the news of a batch to the feedback of live attempts. For attempts that the batch
// ends, it adds their feedback to the batch, so that the feedback becomes durable with the end of
// the attempt.
func (h *hub) absorb(b *batch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for i := range b.feeds {
		n := &b.feeds[i]
		known := h.recent[n.id]
		if known == nil || known.Attempt != n.attempt {
			known = &lease.Feedback{Attempt: n.attempt}
		}
		sum := join(known, n.feed)
		h.keep(n.id, sum)
		progress := *sum
		progress.Chunks = nil
		n.sum = &progress
	}
	if len(h.recent) == 0 {
		return
	}
	for _, c := range b.changes {
		// The attempt ends with this batch, and not with an earlier batch that was not published
		// yet.
		if said := h.recent[c.id]; said != nil && c.New != nil && leasedAs(c.Old, said.Attempt) &&
			!leasedAs(c.New, said.Attempt) {
			b.feedback = append(b.feedback, finalFeedback{c.id, said})
		}
	}
}

// keep stores the feedback of an attempt. If the output of all attempts is more than recentOfAll,
// it drops the output of other attempts.
func (h *hub) keep(id lease.TaskID, sum *lease.Feedback) {
	h.forget(id)
	h.recent[id] = sum
	h.output += outputSize(sum)
	for other, known := range h.recent {
		if h.output <= recentOfAll {
			return
		}
		if other != id && len(known.Chunks) > 0 {
			h.output -= outputSize(known)
			short := *known
			short.Chunks = nil
			h.recent[other] = &short
		}
	}
}

// forget removes the feedback of an attempt.
func (h *hub) forget(id lease.TaskID) {
	if known := h.recent[id]; known != nil {
		h.output -= outputSize(known)
		delete(h.recent, id)
	}
}

// LiveFeedback returns what the attempt of a live lease has reported so far; nil if it has reported
// nothing.
func (e *Engine) LiveFeedback(id lease.TaskID) *lease.Feedback {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	return e.hub.recent[id]
}
