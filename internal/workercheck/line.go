package workercheck

import (
	"net"
	"sync"
)

// line is a listener on the loopback that can be taken down: its connections break, and new ones
// are closed at once.
type line struct {
	net.Listener

	mu    sync.Mutex
	isUp  bool
	conns map[net.Conn]struct{}
	tries int // connections that came while it was down
}

func listen() (*line, error) {
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	return &line{Listener: lis, isUp: true, conns: map[net.Conn]struct{}{}}, nil
}

// Accept returns the next connection while the line is up.
func (l *line) Accept() (net.Conn, error) {
	for {
		raw, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if c := l.take(raw); c != nil {
			return c, nil
		}
	}
}

// take returns raw as a connection that ends with the line, or nil if the line is down.
func (l *line) take(raw net.Conn) net.Conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.isUp {
		l.tries++
		_ = raw.Close()
		return nil
	}
	l.conns[raw] = struct{}{}
	return &conn{raw, l}
}

// cut breaks all connections. New ones are taken.
func (l *line) cut() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		_ = c.Close() // it breaks
	}
}

// down breaks all connections, and refuses new ones until up.
func (l *line) down() {
	l.mu.Lock()
	l.isUp, l.tries = false, 0
	l.mu.Unlock()
	l.cut()
}

// up takes connections again. It returns how many came meanwhile.
func (l *line) up() (tries int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.isUp = true
	return l.tries
}

type conn struct {
	net.Conn
	of *line
}

func (c *conn) Close() error {
	c.of.mu.Lock()
	delete(c.of.conns, c.Conn)
	c.of.mu.Unlock()
	return c.Conn.Close()
}
