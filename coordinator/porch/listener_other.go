//go:build !unix

package porch

import "net"

// lean is for systems where a read wants its buffer before there is something to read.
func (c *countedConn) lean() net.Conn { return c }
