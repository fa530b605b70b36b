// Package submitlimit bounds the bytes of submits under way (X5).
//
// A submit is in memory from the time when its message comes in until its tasks are durable. If
// many callers submit faster than the disk writes, that is more and more. So there is only so much
// room for all of them together, in bytes. While it is full, the coordinator reads no further
// message of a submit: flow control then stops the callers, and nobody gets an error. Everything
// else needs no room: a heartbeat or a report that waited would cost a worker its lease.
package submitlimit

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/recvlimit"
)

const (
	// leastRoom is kept at least for a message of which more is expected: gRPC buffers that much of
	// a stream even if nobody reads it.
	leastRoom = recvlimit.Window
	// expectFor is how long room is kept for a message that is expected: a stream may have nothing
	// to send, and a slow caller must not keep room from others.
	expectFor = 500 * time.Millisecond
)

// Limiter gives submits their room. Tenants that wait for room take turns: the one that has the
// least room is first. It is safe for concurrent use.
type Limiter struct {
	size     int             // bytes
	guess    int             // bytes that are kept for a message if there is nothing to go by
	stopping <-chan struct{} // closed when the coordinator begins to stop

	mu       sync.Mutex
	free     int // below zero if messages were larger than expected
	tenants  map[string]*share
	waiting  int
	expected []*Place // places whose message has not come, and maybe places whose message has come, the oldest first
	looking  bool     // look will run

	// After a restart a thousand streams may be opened at once, and most may have nothing to send
	// yet. If room for a large message were kept for each of them, others would wait for a minute.
	// So as long as some wait and what is expected does not come, less and less is kept:
	// expectations are halved doubts times.
	doubts  int
	doubted time.Time // when doubts was raised
}

// share is what a tenant has of the room. It is kept only while it is not empty.
type share struct {
	bytes   int
	waiting []*Place // the oldest first
}

// Place is the room of one message.
type Place struct {
	limiter *Limiter
	tenant  string
	bytes   int // while it waits, what is expected
	waits   bool
	since   time.Time     // when it got its room; zero once its message has come
	got     chan struct{} // closed when it has its room; nil if it did not have to wait
}

// New returns a limiter with room for size bytes, for messages of at most maxMessage bytes. Nobody
// waits for room once stopping is closed.
func New(size, maxMessage int, stopping <-chan struct{}) *Limiter {
	return &Limiter{
		size:     size,
		guess:    min(maxMessage, size/8),
		stopping: stopping,
		free:     size,
		tenants:  map[string]*share{},
	}
}

// Take waits until there is room for a message of about that many bytes. If ctx ends before, it
// returns the cause; if the coordinator stops, engine.ErrStopped: the caller then knows that
// nothing was done. The caller must call Leave at the end, and Arrived before, if the message
// comes.
func (l *Limiter) Take(ctx context.Context, tenant string, bytes int) (*Place, error) {
	p := &Place{limiter: l, tenant: tenant, bytes: bytes}
	l.mu.Lock()
	l.forgetLate(time.Now())
	if l.waiting == 0 && l.fits(p) {
		l.enter(p)
		l.mu.Unlock()
		return p, nil
	}
	p.waits, p.got = true, make(chan struct{})
	t := l.of(tenant)
	t.waiting = append(t.waiting, p)
	l.waiting++
	l.admit()
	l.mu.Unlock()
	select {
	case <-p.got:
		return p, nil
	case <-ctx.Done():
		p.Leave()
		return nil, context.Cause(ctx)
	case <-l.stopping:
		p.Leave()
		return nil, engine.ErrStopped
	}
}

// Arrived says how many bytes the message has.
func (p *Place) Arrived(bytes int) {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if bytes > max(p.bytes, leastRoom) {
		l.doubts = 0 // large messages do come
	}
	p.since = time.Time{}
	p.resize(bytes)
	l.admit()
}

// Leave gives the room back, or ends the wait for it.
func (p *Place) Leave() {
	l := p.limiter
	l.mu.Lock()
	defer l.mu.Unlock()
	if p.waits {
		t, is := l.of(p.tenant), func(other *Place) bool { return other == p }
		t.waiting = slices.DeleteFunc(t.waiting, is)
		l.waiting--
	} else {
		p.since = time.Time{}
		p.resize(0)
	}
	l.prune(p.tenant)
	l.admit()
}

// Usage returns how many bytes of the room are taken, and how many submits wait for room.
func (l *Limiter) Usage() (bytes, waiting int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.size - l.free, l.waiting
}

// Guess is how many bytes to take for a message if there is nothing to go by.
func (l *Limiter) Guess() int { return l.guess }

// look lets in what fits by now.
func (l *Limiter) look() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.looking = false
	l.forgetLate(time.Now())
	l.admit()
}

// The methods below need mu.

func (l *Limiter) of(tenant string) *share {
	t := l.tenants[tenant]
	if t == nil {
		t = &share{}
		l.tenants[tenant] = t
	}
	return t
}

func (l *Limiter) prune(tenant string) {
	if t := l.tenants[tenant]; t.bytes == 0 && len(t.waiting) == 0 {
		delete(l.tenants, tenant)
	}
}

// fits reports whether there is room for a message. A tenant gets at most half of the room, so that
// its slow callers leave some for others. The first message of a tenant always fits: a tenant that
// submits one task at a time does not wait for the others (T12).
func (l *Limiter) fits(p *Place) bool {
	t, bytes := l.tenants[p.tenant], l.need(p)
	return t == nil || t.bytes == 0 || bytes <= l.free && t.bytes+bytes <= l.size/2
}

// need returns how much room is kept for a message that waits.
func (l *Limiter) need(p *Place) int { return max(p.bytes>>l.doubts, min(p.bytes, leastRoom)) }

// enter gives a message its room.
func (l *Limiter) enter(p *Place) {
	bytes := l.need(p)
	p.bytes, p.since = 0, time.Now()
	p.resize(bytes)
	l.expected = append(l.expected, p)
}

func (p *Place) resize(bytes int) {
	p.limiter.free += p.bytes - bytes
	p.limiter.of(p.tenant).bytes += bytes - p.bytes
	p.bytes = bytes
}

// forgetLate takes the room away from messages that are expected for too long. When they come, they
// take their room nevertheless.
func (l *Limiter) forgetLate(now time.Time) {
	gone := 0
	for _, p := range l.expected {
		if expected := !p.since.IsZero(); expected {
			if now.Sub(p.since) < expectFor {
				break
			}
			l.forget(p, now)
		}
		gone++
	}
	l.expected = slices.Delete(l.expected, 0, gone)
}

// forget takes the room away from a message that has not come in time.
func (l *Limiter) forget(p *Place, now time.Time) {
	// not again for those that were let in with fewer doubts
	if l.waiting > 0 && p.bytes > leastRoom && !p.since.Before(l.doubted) {
		l.doubts++
		l.doubted = now
	}
	p.resize(0)
	l.prune(p.tenant)
}

// admit lets messages in for which there is room now. While some wait, it looks again when the room
// of an expected message may be free.
func (l *Limiter) admit() {
	for l.waiting > 0 {
		t := l.next()
		p := t.waiting[0]
		if !l.fits(p) {
			break
		}
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
		l.waiting--
		p.waits = false
		l.enter(p)
		close(p.got)
	}
	switch {
	case l.waiting == 0:
		l.doubts = 0
	case !l.looking:
		l.looking = true
		time.AfterFunc(expectFor/10, l.look)
	}
}

// next returns the tenant that has the least room of those that wait.
func (l *Limiter) next() (least *share) {
	for _, t := range l.tenants {
		if len(t.waiting) > 0 && (least == nil || t.bytes < least.bytes) {
			least = t
		}
	}
	return least
}
