package proxy

import (
	"io"
	"net"
	"sync"
	"testing"
)

// Relay carries bytes between the workers that connect to it and wherever the coordinator is at that moment: an address
// that stays while the coordinator is restarted.
type Relay struct {
	addr   string
	target func() string

	mu    sync.Mutex
	links map[*link]struct{}
}

// link is one connection and its other half.
type link struct{ near, far net.Conn }

// NewRelay starts a relay that ends with the test. Where target is empty, connections are closed at once.
func NewRelay(t testing.TB, target func() string) *Relay {
	t.Helper()
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &Relay{addr: lis.Addr().String(), target: target, links: map[*link]struct{}{}}
	go r.serve(lis)
	t.Cleanup(func() {
		lis.Close()
		r.closeAll()
	})
	return r
}

// Addr is where workers find the relay.
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
	l := &link{near: near, far: far}
	r.add(l)
	defer r.remove(l)
	ended := make(chan struct{}, 2)
	go l.copy(far, near, ended)
	go l.copy(near, far, ended)
	<-ended // one side is gone; so is the other
}

// copy carries one direction.
func (l *link) copy(to io.Writer, from io.Reader, ended chan<- struct{}) {
	defer func() { ended <- struct{}{} }()
	_, _ = io.Copy(to, from) // either side may be gone
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
	}
}
