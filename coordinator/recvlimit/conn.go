package recvlimit

import (
	"encoding/binary"
	"maps"
	"net"
	"sync"
	"time"

	"google.golang.org/grpc/mem"
)

// messageHead is the size of what is before a message in a stream of gRPC: a flag and the length.
const messageHead = 5

// message is how far a stream is with the message that comes on it.
type message struct {
	begun int // bytes of head that have come
	head  [messageHead]byte
	left  int // bytes of the message that have not come
	have  int // bytes that have come
	since time.Time
}

// conn is a connection of a client. The goroutine that reads it follows the client's frames, and
// the one that writes to it the server's.
type conn struct {
	net.Conn
	limiter *Limiter

	mu       sync.Mutex
	in, out  frames
	messages map[uint32]*message // by stream; a stream between two messages has none; nil until there is one
	// ended has the streams that the server has ended in the middle of a message: what still comes
	// is thrown away. It is nil until there is one.
	ended  map[uint32]bool
	bytes  int // how many count
	closed bool
}

// Read implements net.Conn.
func (c *conn) Read(p []byte) (n int, err error) {
	n, err = c.Conn.Read(p)
	c.received(p[:n])
	return n, err
}

// Write implements net.Conn.
func (c *conn) Write(p []byte) (n int, err error) {
	n, err = c.Conn.Write(p)
	c.sent(p[:n])
	return n, err
}

// Close implements net.Conn.
func (c *conn) Close() error {
	c.drop()
	return c.Conn.Close()
}

// drop ends the counting, and returns how many bytes the connection had.
func (c *conn) drop() (had int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	had = c.bytes
	c.closed, c.messages = true, nil
	c.countLocked(-had)
	return had
}

// received follows what the client has sent.
func (c *conn) received(p []byte) {
	c.mu.Lock()
	if c.closed {
		p = nil
	}
	grown := 0
	for len(p) > 0 {
		var content []byte
		var ended bool
		content, p, ended = c.in.next(p)
		if len(content) > 0 {
			grown += c.contentLocked(c.in.stream(), content)
		}
		if ended && c.in.endsStream() {
			grown += c.forgetLocked(c.in.stream())
			delete(c.ended, c.in.stream())
		}
	}
	over := c.countLocked(grown)
	c.mu.Unlock()
	if over {
		c.limiter.relieve()
	}
}

// sent follows what the server has sent: a stream that it has ended holds no message any more.
func (c *conn) sent(p []byte) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(p) > 0 {
		var ended bool
		if _, p, ended = c.out.next(p); ended && c.out.endsStream() {
			if id := c.out.stream(); c.messages[id] != nil {
				c.countLocked(c.forgetLocked(id))
				if len(c.ended) >= mostStreams { // the clients of most do not say that they have ended as well
					clear(c.ended)
				}
				if c.ended == nil {
					c.ended = map[uint32]bool{}
				}
				c.ended[id] = true
			}
		}
	}
}

// contentLocked follows the messages in the content of a stream. It returns by how many the bytes
// that count have grown.
func (c *conn) contentLocked(id uint32, p []byte) (grown int) {
	if c.ended[id] {
		return 0
	}
	m := c.messages[id]
	known := m != nil
	if !known {
		m = &message{}
	}
	grown = -counts(m.have)
	for len(p) > 0 {
		if m.begun < messageHead {
			n := copy(m.head[m.begun:], p)
			m.begun += n
			p = p[n:]
			if m.begun == messageHead {
				m.left = int(binary.BigEndian.Uint32(m.head[1:]))
			}
		} else {
			n := min(m.left, len(p))
			m.left -= n
			m.have += n
			p = p[n:]
		}
		if m.begun == messageHead && m.left == 0 {
			*m = message{}
		}
	}
	switch {
	case m.begun == 0:
		if known {
			delete(c.messages, id)
		}
	case !known:
		if len(c.messages) >= mostStreams {
			maps.DeleteFunc(c.messages, func(_ uint32, m *message) bool { return counts(m.have) == 0 })
		}
		if c.messages == nil {
			c.messages = map[uint32]*message{}
		}
		c.messages[id] = m
	}
	if m.begun > 0 && m.since.IsZero() {
		m.since = time.Now()
	}
	return grown + counts(m.have)
}

// forgetLocked forgets the message of a stream. It returns by how many the bytes that count have
// grown: 0 or less.
func (c *conn) forgetLocked(id uint32) (grown int) {
	m := c.messages[id]
	if m == nil {
		return 0
	}
	delete(c.messages, id)
	return -counts(m.have)
}

// Window is how many bytes of a stream gRPC takes in although nobody reads it. Only what comes
// beyond counts: gRPC asks for that, because a handler waits for the message. Other messages may
// have to wait until it is their turn, for as long as it takes.
const Window = 64 << 10

// mostStreams is for how many streams of a connection something is remembered: more than it can
// have at a time. Beyond that they are streams on which something came after the server had ended
// them, and is thrown away.
const mostStreams = 2048

// counts returns how many bytes of a message count, given how many have come.
func counts(have int) int { return max(have-Window, 0) }

// countLocked changes how many bytes of the connection count. It reports whether all connections
// together have too many now.
func (c *conn) countLocked(grown int) (over bool) {
	if grown == 0 {
		return false
	}
	before := c.bytes
	c.bytes += grown
	return c.limiter.count(c, grown, before == 0, c.bytes == 0)
}

// oldest returns when the oldest message of which bytes count has begun; the zero time if there is
// none.
func (c *conn) oldest() (since time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, m := range c.messages {
		if counts(m.have) > 0 && (since.IsZero() || m.since.Before(since)) {
			since = m.since
		}
	}
	return since
}

// readOnReady is a connection from which gRPC reads into a buffer that it takes when data has come.
type readOnReady interface {
	ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error)
}

// readyConn is a conn on top of one with ReadOnReady.
type readyConn struct {
	*conn
	from readOnReady
}

// ReadOnReady implements readOnReady.
func (c readyConn) ReadOnReady(size int, pool mem.BufferPool) (buf *[]byte, n int, err error) {
	if buf, n, err = c.from.ReadOnReady(size, pool); buf != nil {
		c.received((*buf)[:n])
	}
	return buf, n, err
}
