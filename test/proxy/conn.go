package proxy

import (
	"encoding/binary"
	"net"
	"sync"
)

// What is needed of HTTP/2 to tear a message (RFC 9113, sections 3.4 and 4.1).
const (
	preface     = 24 // length of the preface, which a client sends before its first HTTP/2 frame
	nothing     = 0  // a server sends no preface
	headerBytes = 9
	dataFrame   = 0 // type of the HTTP/2 frames that carry messages
)

// conn follows the HTTP/2 frames that are written to it, and can break off within one that carries
// a message.
type conn struct {
	net.Conn

	mu     sync.Mutex
	skip   int    // bytes until the next header of an HTTP/2 frame
	header []byte // what was written of that header
	torn   chan struct{}
	where  float64 // the part of the payload that still goes on; used while torn is not nil
	left   int     // bytes until the tear; -1 if its frame has not come yet
}

func newConn(raw net.Conn, first int) *conn { return &conn{Conn: raw, skip: first, left: -1} }

// tear breaks off in the next HTTP/2 frame with data, after the given part of it, 0 to 1. The
// channel is closed when that has happened.
func (c *conn) tear(where float64) <-chan struct{} {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.torn, c.where = make(chan struct{}), where
	return c.torn
}

func (c *conn) Write(b []byte) (int, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	whole := c.follow(b)
	n, err := c.Conn.Write(b[:whole])
	if err == nil && whole < len(b) {
		close(c.torn)
		c.torn, c.left = nil, -1
		c.Close()
		err = net.ErrClosed
	}
	return n, err
}

// follow returns how many of the bytes may be written: all of them, unless the tear is among them.
func (c *conn) follow(b []byte) int {
	for at := 0; at < len(b); {
		if c.skip == 0 {
			at += c.readHeader(b[at:])
			continue
		}
		n := min(c.skip, len(b)-at)
		if c.left >= 0 && c.left < n {
			return at + c.left
		}
		if c.left >= 0 {
			c.left -= n
		}
		c.skip -= n
		at += n
	}
	return len(b)
}

// readHeader consumes the bytes of b that belong to the header of an HTTP/2 frame.
func (c *conn) readHeader(b []byte) int {
	n := min(headerBytes-len(c.header), len(b))
	c.header = append(c.header, b[:n]...)
	if len(c.header) < headerBytes {
		return n
	}
	length, kind := int(binary.BigEndian.Uint32(c.header)>>8), c.header[3]
	c.header, c.skip = c.header[:0], length
	if c.torn != nil && c.left < 0 && kind == dataFrame && length > 1 {
		c.left = 1 + int(c.where*float64(length-1)) // at least one byte goes on, and at least one does not
	}
	return n
}
