package engine

import (
	"slices"

	"github.com/lessor-dev/lessor/lease"
)

// Feed passes volatile news on; see Calls. It returns at once.
func (e *Engine) Feed(tenant string, f Feed) { e.FeedAll(tenant, []Feed{f}, func() {}) }

// FeedAll is Feed for a frame of a stream. done is called when nothing of it waits any more; it must not block.
func (e *Engine) FeedAll(tenant string, feeds []Feed, done func()) {
	news := e.genuine(tenant, feeds)
	if len(news) == 0 {
		done()
		return
	}
	var b *batch
	err := e.inbox.put(tenant, op{
		run: func() {
			b = e.batch
			for i := range news {
				news[i].task = e.set.task(news[i].id)
			}
		},
		// After the batch under way, so that watchers see a start before what it printed.
		after: func(err error) {
			for _, n := range news {
				if err == nil && holds(n.task, n.attempt) && !b.ended(n.id, n.attempt) {
					e.hub.feed(n.task, n.feed)
				}
			}
			done()
		},
	})
	if err != nil { // an engine that has stopped has no watchers, and one that is flooded no ear for them
		done()
	}
}

// fed is a feed on its way, with the attempt that it is about.
type fed struct {
	feed    *Feed
	id      lease.TaskID
	attempt uint32
	task    *lease.Task
}

// genuine finds what the feeds are about; what nobody can have sent is dropped.
func (e *Engine) genuine(tenant string, feeds []Feed) (news []fed) {
	for i := range feeds {
		f := &feeds[i]
		id, ok := lease.ParseTaskID(f.TaskID)
		ticket, known := e.rules.Authority.Open(tenant, f.LeaseID)
		if ok && known && ticket.Task == id {
			news = append(news, fed{feed: f, id: id, attempt: ticket.Attempt})
		}
	}
	return news
}

// holds reports whether an attempt of a task is live.
func holds(t *lease.Task, attempt uint32) bool {
	return t != nil && t.Lease != nil && t.Lease.Attempt == attempt
}

// join is the sum of what was known and what is new; neither is changed, since readers may have them.
func (f *Feed) join(next *Feed) *Feed {
	if f == nil {
		f = &Feed{TaskID: next.TaskID, LeaseID: next.LeaseID}
	}
	sum := *f
	if next.Fraction > 0 {
		sum.Fraction = next.Fraction
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

// Bounds of the output that is kept of a live attempt.
const (
	recentChunks = 50
	recentBytes  = 64 << 10
)

// lastChunks is the end of the output: the last chunk, and those before it that fit.
func lastChunks(all []Chunk) []Chunk {
	first, bytes := len(all), 0
	for first > max(0, len(all)-recentChunks) {
		if bytes += all[first-1].size(); bytes > recentBytes && first < len(all) {
			break
		}
		first--
	}
	return slices.Clone(all[first:]) // lets go of the others
}

func (c *Chunk) size() int {
	n := len(c.Text) + len(c.Data)
	for k, v := range c.Metadata {
		n += len(k) + len(v)
	}
	return n
}

// Volatile returns the last volatile news of a live attempt; see Calls.
func (e *Engine) Volatile(id lease.TaskID) (Feed, bool) {
	e.hub.mu.Lock()
	defer e.hub.mu.Unlock()
	r, ok := e.hub.recent[id]
	if !ok {
		return Feed{}, false
	}
	return *r.feed, true
}
