package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// Fed is news of a running attempt on its way to those who watch.
type Fed struct {
	feed    *Feed
	id      lease.TaskID
	attempt uint32
	task    *lease.Task     // the version that was current
	sum     *lease.Feedback // with what the attempt had said before, but for the output
}

// Feed passes volatile news on; see Calls. It returns at once.
func (e *Engine) Feed(tenant string, f Feed, done func()) {
	e.FeedAll(tenant, e.Recognize(tenant, []Feed{f}), func(bool) { done() })
}

// Recognize finds what news are about; what nobody can have sent is left out.
func (e *Engine) Recognize(tenant string, feeds []Feed) (news []Fed) {
	for i := range feeds {
		f := &feeds[i]
		id, ok := lease.ParseTaskID(f.TaskID)
		ticket, known := e.rules.Authority.Open(tenant, f.LeaseID)
		if ok && known && ticket.Task == id {
			news = append(news, Fed{feed: f, id: id, attempt: ticket.Attempt})
		}
	}
	return news
}

// FeedAll is Feed for the news of a stream. done is called when nothing of it waits any more, with false where the engine has no ear for it; it
// must not block.
func (e *Engine) FeedAll(tenant string, news []Fed, done func(taken bool)) {
	if len(news) == 0 {
		done(true)
		return
	}
	err := e.inbox.put(tenant, op{
		run: func() {
			for _, n := range news {
				if n.task = e.set.leased(n.id); holds(n.task, n.attempt) {
					e.batch.feeds = append(e.batch.feeds, n)
				}
			}
		},
		after: func(error) { done(true) },
	})
	if err != nil { // an engine that has stopped has no watchers, and one that is flooded no ear for them
		done(false)
	}
}

// Size is about how many bytes the news has.
func (n *Fed) Size() int { return n.feed.Size() }

// Lease is the lease that the news is about.
func (n *Fed) Lease() string { return n.feed.LeaseID }

// Dropped is what remains of news that is dropped: that it is missing.
func (n *Fed) Dropped() Fed {
	rest := *n
	rest.feed = &Feed{TaskID: n.feed.TaskID, LeaseID: n.feed.LeaseID, Lost: n.feed.Lost}
	if n.feed.says() {
		rest.feed.Lost++
	}
	return rest
}

// After is the news with what was dropped right before it.
func (n *Fed) After(dropped Fed) Fed {
	next, told := *n, *n.feed
	told.Lost += dropped.feed.Lost
	next.feed = &told
	return next
}

// holds reports whether an attempt of a task is live.
func holds(t *lease.Task, attempt uint32) bool {
	return t != nil && t.Lease != nil && t.Lease.Attempt == attempt
}

// join is the sum of what was known and what is new; what was known is not changed, since readers may have it.
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
		sum.Chunks = lastChunks(append(sum.Chunks[:len(sum.Chunks):len(sum.Chunks)], next.Chunks...))
	}
	return &sum
}

// Bounds of the output that is kept of an attempt, and of what is kept of all live ones together.
const (
	recentChunks = 100
	recentBytes  = 64 << 10
	recentOfAll  = 64 << 20
)

// lastChunks is the end of the output: the last chunk, and those before it that fit.
func lastChunks(all []lease.Chunk) []lease.Chunk {
	first, bytes := len(all), 0
	for first > max(0, len(all)-recentChunks) {
		if bytes += all[first-1].Size(); bytes > recentBytes && first < len(all) {
			break
		}
		first--
	}
	return slices.Clone(all[first:]) // lets go of the others
}

// outputSize is the number of bytes of the output that is kept.
func outputSize(f *lease.Feedback) (n int) {
	for i := range f.Chunks {
		n += f.Chunks[i].Size()
	}
	return n
}

// lastWords is what an attempt had said when it ended.
type lastWords struct {
	task lease.TaskID
	said *lease.Feedback
}

// absorb takes the news of a batch into what is known of live attempts, and gives it the last words of those that it ends: they become durable
// with that end.
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
		told := *sum
		told.Chunks = nil
		n.sum = &told
	}
	if len(h.recent) == 0 {
		return
	}
	for _, c := range b.changes {
		// It ends with this batch, and not with one before that was not told yet.
		if said := h.recent[c.id]; said != nil && c.New != nil && holds(c.Old, said.Attempt) && !holds(c.New, said.Attempt) {
			b.last = append(b.last, lastWords{c.id, said})
		}
	}
}

// keep remembers what an attempt has said. Where all of them together have said too much, output of others is forgotten.
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

// forget lets go of what an attempt has said.
func (h *hub) forget(id lease.TaskID) {
	if known := h.recent[id]; known != nil {
		h.output -= outputSize(known)
		delete(h.recent, id)
	}
}

// Volatile returns what a live attempt has said of itself so far; see Calls.
func (e *Engine) Volatile(id lease.TaskID) *lease.Feedback {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	return e.hub.recent[id]
}
