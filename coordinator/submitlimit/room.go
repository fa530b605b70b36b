// Package submitlimit bounds the bytes of submits under way (X5).
//
// A submit is in memory from the time when its message comes in until its tasks are durable. If many callers submit faster than the disk writes, that is
// more and more. So all submits share a room. While it is full, the coordinator reads no further message of a submit: flow control then stops the callers,
// and nobody gets an error. Everything else needs no room: a heartbeat or a report that waited would cost a worker its lease.
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
	// leastRoom is kept at least for a message of which more is expected: gRPC buffers that much of a stream even if nobody reads it.
	leastRoom = recvlimit.Window
	// expectFor is how long room is kept for a message that is expected: a stream may have nothing to send, and a slow caller must not keep room from others.
	expectFor = 500 * time.Millisecond
)

// Room is the room for submits. Tenants that wait for room take turns: the one that has the least room is first. It is safe for concurrent use.
type Room struct {
	size     int             // bytes
	guess    int             // bytes that are kept for a message if there is nothing to go by
	stopping <-chan struct{} // closed when the coordinator begins to stop

	mu       sync.Mutex
	free     int // below zero if messages were larger than expected
	tenants  map[string]*share
	waiting  int
	expected []*Place // places whose message has not come, and maybe places whose message has come, the oldest first
	looking  bool     // look will run

	// After a restart a thousand streams may be opened at once, and most may have nothing to send yet. If room for a large message were kept for each of
	// them, others would wait for a minute. So as long as some wait and what is expected does not come, less and less is kept: expectations are halved
	// doubts times.
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
	room   *Room
	tenant string
	bytes  int // while it waits, what is expected
	waits  bool
	since  time.Time     // when it got its room; zero once its message has come
	got    chan struct{} // closed when it has its room; nil if it did not have to wait
}

// New returns a room of size bytes for messages of at most maxMessage bytes. Nobody waits for room once stopping is closed.
func New(size, maxMessage int, stopping <-chan struct{}) *Room {
	return &Room{size: size, guess: min(maxMessage, size/8), stopping: stopping, free: size, tenants: map[string]*share{}}
}

// Take waits until there is room for a message of about that many bytes. If ctx ends before, it returns the cause; if the coordinator stops,
// engine.ErrStopped: the caller then knows that nothing was done. The caller must call Leave at the end, and Arrived before, if the message comes.
func (r *Room) Take(ctx context.Context, tenant string, bytes int) (*Place, error) {
	p := &Place{room: r, tenant: tenant, bytes: bytes}
	r.mu.Lock()
	r.forgetLate(time.Now())
	if r.waiting == 0 && r.fits(p) {
		r.enter(p)
		r.mu.Unlock()
		return p, nil
	}
	p.waits, p.got = true, make(chan struct{})
	t := r.of(tenant)
	t.waiting = append(t.waiting, p)
	r.waiting++
	r.admit()
	r.mu.Unlock()
	select {
	case <-p.got:
		return p, nil
	case <-ctx.Done():
		p.Leave()
		return nil, context.Cause(ctx)
	case <-r.stopping:
		p.Leave()
		return nil, engine.ErrStopped
	}
}

// Arrived says how many bytes the message has.
func (p *Place) Arrived(bytes int) {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if bytes > max(p.bytes, leastRoom) {
		r.doubts = 0 // large messages do come
	}
	p.since = time.Time{}
	p.resize(bytes)
	r.admit()
}

// Leave gives the room back, or ends the wait for it.
func (p *Place) Leave() {
	r := p.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.waits {
		t, is := r.of(p.tenant), func(other *Place) bool { return other == p }
		t.waiting = slices.DeleteFunc(t.waiting, is)
		r.waiting--
	} else {
		p.since = time.Time{}
		p.resize(0)
	}
	r.prune(p.tenant)
	r.admit()
}

// Usage returns how many bytes of the room are taken, and how many submits wait for room.
func (r *Room) Usage() (bytes, waiting int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.size - r.free, r.waiting
}

// Guess is how many bytes to take for a message if there is nothing to go by.
func (r *Room) Guess() int { return r.guess }

// look lets in what fits by now.
func (r *Room) look() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.looking = false
	r.forgetLate(time.Now())
	r.admit()
}

// The methods below need mu.

func (r *Room) of(tenant string) *share {
	t := r.tenants[tenant]
	if t == nil {
		t = &share{}
		r.tenants[tenant] = t
	}
	return t
}

func (r *Room) prune(tenant string) {
	if t := r.tenants[tenant]; t.bytes == 0 && len(t.waiting) == 0 {
		delete(r.tenants, tenant)
	}
}

// fits reports whether there is room for a message. A tenant gets at most half of the room, so that its slow callers leave some for others. The first
// message of a tenant always fits: a tenant that submits one task at a time does not wait for the others (T12).
func (r *Room) fits(p *Place) bool {
	t, bytes := r.tenants[p.tenant], r.need(p)
	return t == nil || t.bytes == 0 || bytes <= r.free && t.bytes+bytes <= r.size/2
}

// need returns how much room is kept for a message that waits.
func (r *Room) need(p *Place) int { return max(p.bytes>>r.doubts, min(p.bytes, leastRoom)) }

// enter gives a message its room.
func (r *Room) enter(p *Place) {
	bytes := r.need(p)
	p.bytes, p.since = 0, time.Now()
	p.resize(bytes)
	r.expected = append(r.expected, p)
}

func (p *Place) resize(bytes int) {
	p.room.free += p.bytes - bytes
	p.room.of(p.tenant).bytes += bytes - p.bytes
	p.bytes = bytes
}

// forgetLate takes the room away from messages that are expected for too long. When they come, they take their room nevertheless.
func (r *Room) forgetLate(now time.Time) {
	gone := 0
	for _, p := range r.expected {
		if expected := !p.since.IsZero(); expected {
			if now.Sub(p.since) < expectFor {
				break
			}
			r.forget(p, now)
		}
		gone++
	}
	r.expected = slices.Delete(r.expected, 0, gone)
}

// forget takes the room away from a message that has not come in time.
func (r *Room) forget(p *Place, now time.Time) {
	if r.waiting > 0 && p.bytes > leastRoom && !p.since.Before(r.doubted) { // not again for those that were let in with fewer doubts
		r.doubts++
		r.doubted = now
	}
	p.resize(0)
	r.prune(p.tenant)
}

// admit lets messages in for which there is room now. While some wait, it looks again when the room of an expected message may be free.
func (r *Room) admit() {
	for r.waiting > 0 {
		t := r.next()
		p := t.waiting[0]
		if !r.fits(p) {
			break
		}
		t.waiting[0] = nil
		t.waiting = t.waiting[1:]
		r.waiting--
		p.waits = false
		r.enter(p)
		close(p.got)
	}
	switch {
	case r.waiting == 0:
		r.doubts = 0
	case !r.looking:
		r.looking = true
		time.AfterFunc(expectFor/10, r.look)
	}
}

// next returns the tenant that has the least room of those that wait.
func (r *Room) next() (least *share) {
	for _, t := range r.tenants {
		if len(t.waiting) > 0 && (least == nil || t.bytes < least.bytes) {
			least = t
		}
	}
	return least
}
