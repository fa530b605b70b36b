package engine

import (
	"context"
	"sync"
	"sync/atomic"
)

// newsBytes is what is kept of a topic for slow readers: some thousand items of news, several
// commits. A single item may be larger.
var newsBytes = 4 << 20

// topic is a task or a run that somebody watches. All its watchers read the same news, each at its
// own pace. So an item of news costs the committer the same however many watch: with a copy for
// each of 10,000 watchers of a run, one tenant could hold up the commits of all.
type topic struct {
	mu       sync.RWMutex
	news     []*sharedNews // the newest, those first that came first
	bytes    int           // sum of their sizes
	count    int           // number of items so far, with those that are not kept any more
	gone     int           // how many of these were deletions of tasks
	watchers int
	more     chan struct{} // closed when more news arrives, or when closed is set
	touched  bool          // more news has arrived, and wake was not called yet
	closed   bool
}

type sharedNews struct {
	News
	number int          // how many came before it
	gone   int          // how many deletions of tasks came before it
	unread atomic.Int32 // number of watchers that have not passed it
}

func newTopic() *topic { return &topic{more: make(chan struct{})} }

// add adds an item of news, and forgets the oldest ones beyond newsBytes. It returns true if the
// watchers must be woken, and does so once until wake is called.
func (t *topic) add(n News) (first bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	shared := &sharedNews{News: n, number: t.count, gone: t.gone}
	shared.unread.Store(int32(t.watchers))
	size := n.size()
	for len(t.news) > 0 && t.bytes+size > newsBytes {
		t.dropFirst()
	}
	t.news = append(t.news, shared)
	t.bytes += size
	t.count++
	if n.Task == nil {
		t.gone++
	}
	first, t.touched = !t.touched, true
	return first
}

func (t *topic) dropFirst() {
	t.bytes -= t.news[0].size()
	t.news[0] = nil
	t.news = t.news[1:]
}

// wake wakes the watchers that have read all the news.
func (t *topic) wake() {
	t.mu.Lock()
	waiting := t.more
	t.more, t.touched = make(chan struct{}), false
	t.mu.Unlock()
	close(waiting)
}

// close ends the topic: its watchers get the news that is left, and no more.
func (t *topic) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	close(t.more)
}

// forgetRead forgets the oldest news as far as all watchers have passed it.
func (t *topic) forgetRead() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.news) > 0 && t.news[0].unread.Load() == 0 {
		t.dropFirst()
	}
}

// Subscription reads the news of a task or a run. It is for one goroutine.
type Subscription struct {
	hub   *hub
	of    Watching
	topic *topic
	next  int // number of the item to read next
	gone  int // how many deletions of tasks came before it
}

// Missed counts the items of news that a subscription has missed because it was slow: all, and how
// many of them said that a task was deleted. The store has what the other ones said, if it is
// durable.
type Missed struct{ All, Gone int }

// subscribe adds a watcher.
func (t *topic) subscribe(h *hub, w Watching) *Subscription {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.watchers++
	return &Subscription{hub: h, of: w, topic: t, next: t.count, gone: t.gone}
}

// Next waits for the next news. It returns the cause if ctx ends before, and ErrStopped when the
// engine has stopped and no news is left. A subscription that has fallen too far behind goes on
// with later news, but never misses the last item, because none may follow. The news must not be
// changed.
func (s *Subscription) Next(ctx context.Context) (*News, Missed, error) {
	for ctx.Err() == nil {
		n, missed, more, err := s.read()
		if n != nil || err != nil {
			return n, missed, err
		}
		select {
		case <-more:
		case <-ctx.Done():
		}
	}
	return nil, Missed{}, context.Cause(ctx)
}

// read returns the next news. If there is none yet, more is closed when that changes.
func (s *Subscription) read() (n *News, missed Missed, more <-chan struct{}, err error) {
	t := s.topic
	t.mu.RLock()
	first := t.count - len(t.news)
	if s.next == t.count {
		defer t.mu.RUnlock()
		if t.closed {
			err = ErrStopped
		}
		return nil, Missed{}, t.more, err
	}
	at := t.news[len(t.news)/2] // not the oldest, which would be gone next
	if s.next >= first {
		at = t.news[s.next-first]
	}
	missed = Missed{All: at.number - s.next, Gone: at.gone - s.gone}
	last := pass(t.news[max(s.next-first, 0) : at.number-first+1])
	t.mu.RUnlock()
	if last {
		t.forgetRead()
	}
	s.next, s.gone = at.number+1, at.gone
	if at.Task == nil {
		s.gone++
	}
	return &at.News, missed, nil, nil
}

// pass notes that a watcher has passed the news. It reports whether it was the last one to pass any
// of them.
func pass(news []*sharedNews) (last bool) {
	for _, n := range news {
		if n.unread.Add(-1) == 0 {
			last = true
		}
	}
	return last
}

// Close ends a subscription. It may be called twice.
func (s *Subscription) Close() {
	s.hub.mu.Lock()
	defer s.hub.mu.Unlock()
	t := s.topic
	if t == nil {
		return
	}
	s.topic = nil
	switch left := t.leave(s.next); {
	case left > 0:
	case s.of.Run != "":
		delete(s.hub.runs, runKey{s.of.Space, s.of.Run})
	default:
		delete(s.hub.tasks, s.of.Task)
	}
}

// leave removes a watcher that has read up to a number, and returns how many are left.
func (t *topic) leave(next int) (left int) {
	defer t.forgetRead()
	t.mu.Lock()
	defer t.mu.Unlock()
	pass(t.news[max(next-(t.count-len(t.news)), 0):])
	t.watchers--
	return t.watchers
}
