package proxy

import (
	"encoding/binary"
	"net"
	"sync"
)

// HTTP/2 as far as the tearing of a message needs it (RFC 9113, sections 3.4 and 4.1).
const (
	preface     = 24 // bytes that a client sends before its first HTTP/2 frame
	nothing     = 0  // what a server sends before
	headerBytes = 9
	dataFrame   = 0 // type of the frames that carry messages
)

// conn follows the HTTP/2 frames that are written to it, and can break off in the middle of one that carries messages.
type conn struct {
	net.Conn

	mu     sync.Mutex
	skip   int    // bytes to the next header of an HTTP/2 frame
	header []byte // what has come of it
	torn   chan struct{}
	where  float64 // part of the payload that goes on; armed while torn is not nil
	left   int     // bytes up to the tear; -1: it is not reached yet
}

func newConn(raw net.Conn, first int) *conn { return &conn{Conn: raw, skip: first, left: -1} }

// tear breaks off in the next HTTP/2 frame with data, after the given part of it, 0 to 1. The channel is closed when it has happened.
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

// follow is how many of the bytes may be written: all of them, unless the tear is among them.
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

// readHeader takes what belongs to the header of an HTTP/2 frame.
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
