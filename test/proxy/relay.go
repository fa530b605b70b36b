package proxy

import (
	"context"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay carries bytes between the workers that connect to it and wherever the coordinator is at
// that moment. Its own address stays while the coordinator is restarted. It can be told to carry
// bytes slowly, or not at all.
type Relay struct {
	addr   string
	target func() string
	delay  atomic.Int64    // the longest time that bytes are held up, in nanoseconds
	atOnce atomic.Int64    // how many bytes are held up together at most
	held   [2]atomic.Int64 // bytes that had to wait, by direction
	slowed atomic.Int64    // bytes that were held up

	mu    sync.Mutex
	links map[*link]struct{}
	open  [2]chan struct{} // closed while bytes may pass, by direction
}

// link is a worker's connection and the one to the coordinator that belongs to it.
type link struct {
	near, far net.Conn
	ctx       context.Context // ends when either connection is gone; if it was forgotten, when both are
	end       func()          // ends ctx
	forgotten atomic.Bool     // what is sent is lost
}

// largest is how many bytes are carried at once.
const largest = 32 << 10

// NewRelay starts a relay that ends with the test. While target returns an empty address,
// connections are closed at once.
func NewRelay(t testing.TB, target func() string) *Relay {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{addr: lis.Addr().String(), target: target, links: map[*link]struct{}{}}
	r.Slow(0)
	for _, d := range []Direction{ToCoordinator, ToWorker} {
		r.open[d] = make(chan struct{})
		close(r.open[d])
	}
	go r.serve(lis)
	t.Cleanup(func() {
		lis.Close()
		r.closeAll()
	})
	return r
}

// Addr returns the address for workers.
func (r *Relay) Addr() string { return r.addr }

func (r *Relay) serve(lis net.Listener) {
	for {
		near, err := lis.Accept()
		if err != nil {
			return
		}
		go r.carry(near)
	}
}

func (r *Relay) carry(near net.Conn) {
	defer near.Close()
	far, err := net.Dial("tcp", r.target())
	if err != nil {
		return
	}
	defer far.Close()
	ctx, gone := context.WithCancel(context.Background())
	defer gone()
	l := &link{near: near, far: far, ctx: ctx, end: gone}
	r.add(l)
	defer r.remove(l)
	ended := make(chan struct{}, 2)
	go r.copy(l, ToCoordinator, ended)
	go r.copy(l, ToWorker, ended)
	<-ended // when one direction has ended, the link ends
	if l.forgotten.Load() {
		<-ended // the other side is not told
	}
}

// copy carries one direction until either side is gone.
func (r *Relay) copy(l *link, d Direction, ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	from, to := l.near, l.far
	if d == ToWorker {
		from, to = to, from
	}
	buf := make([]byte, largest)
	for {
		n, err := from.Read(buf[:r.atOnce.Load()])
		if n > 0 && !r.pass(l, d, n) {
			return
		}
		if l.forgotten.Load() {
			n = 0
		}
		if _, failed := to.Write(buf[:n]); failed != nil || err != nil {
			return
		}
	}
}

// pass waits until n bytes may pass; it returns false if the link ends first.
func (r *Relay) pass(l *link, d Direction, n int) bool {
	if most := time.Duration(r.delay.Load()); most > 0 {
		time.Sleep(rand.N(most))
		r.slowed.Add(int64(n))
	}
	r.mu.Lock()
	open := r.open[d]
	r.mu.Unlock()
	select {
	case <-open:
		return true
	default:
		r.held[d].Add(int64(n))
	}
	select {
	case <-open:
		return true
	case <-l.ctx.Done():
		return false
	}
}

// Block lets no more bytes pass in a direction. The connections stay open, and nobody is told.
func (r *Relay) Block(d Direction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.open[d] = make(chan struct{})
}

// Unblock lets the bytes pass that waited in a blocked direction.
func (r *Relay) Unblock(d Direction) {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.open[d])
}

// Held returns how many bytes had to wait because their direction was blocked.
func (r *Relay) Held(d Direction) int64 { return r.held[d].Load() }

// Slow delays bytes by a random time up to most; 0 ends that.
func (r *Relay) Slow(most time.Duration) { r.Trickle(largest, most) }

// Trickle is like Slow, but lets only so many bytes pass at once. Slow ends it.
func (r *Relay) Trickle(atOnce int, most time.Duration) {
	r.atOnce.Store(int64(atOnce))
	r.delay.Store(int64(most))
}

// Slowed returns how many bytes were delayed.
func (r *Relay) Slowed() int64 { return r.slowed.Load() }

// Reset resets all connections, as a router does that has forgotten them, and returns how many
// there were.
func (r *Relay) Reset() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		for _, conn := range []net.Conn{l.near, l.far} {
			_ = conn.(*net.TCPConn).SetLinger(0) // so that the close sends a reset
			conn.Close()
		}
		l.end()
	}
	return len(r.links)
}

// Forget loses what is sent over the present connections from now on, as a router does that has
// forgotten them and says nothing: neither side is told, not even when the other one closes its
// connection. It returns how many there were. Later connections are not concerned.
func (r *Relay) Forget() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.forgotten.Store(true)
	}
	return len(r.links)
}

// Links returns the number of present connections. One that was forgotten is present until both
// sides have closed it.
func (r *Relay) Links() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.links)
}

func (r *Relay) add(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.links[l] = struct{}{}
}

func (r *Relay) remove(l *link) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.links, l)
}

func (r *Relay) closeAll() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for l := range r.links {
		l.near.Close()
		l.far.Close()
		l.end()
	}
}
