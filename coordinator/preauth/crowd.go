package preauth

import (
	"container/heap"
	"container/list"
	"time"
)

// introduction is how long a connection has to show a valid credential, unless it is one of a
// flood.
const introduction = 2 * time.Second

// crowd is a set of open connections on which no valid credential was shown yet: all of them, those
// from a network, or those from an address. All of them are a crowd of networks, and a network is a
// crowd of addresses. So whoever opens many connections is known by the size of a crowd, even with
// many addresses of a network, and its neighbors are told from it. A crowd is not safe for
// concurrent use.
type crowd struct {
	in    *crowd // what this is a part of; nil for all connections
	name  string // of the network or the address
	index int    // in in.parts
	size  int    // connections
	parts parts  // none for an address
	named map[string]*crowd
	conns list.List // the connections from an address, the oldest first
}

// add adds a connection.
func (c *crowd) add(conn *countedConn) {
	for _, name := range conn.from {
		part := c.named[name]
		if part == nil {
			part = c.newPart(name)
		}
		c = part
	}
	conn.crowd, conn.place = c, c.conns.PushBack(conn)
	c.grow(1)
}

func (c *crowd) newPart(name string) *crowd {
	if c.named == nil {
		c.named = map[string]*crowd{}
	}
	part := &crowd{in: c, name: name}
	c.named[name] = part
	heap.Push(&c.parts, part)
	return part
}

// remove removes a connection from the crowd that it is in, if any.
func remove(conn *countedConn) {
	if c := conn.crowd; c != nil {
		c.conns.Remove(conn.place)
		c.grow(-1)
		conn.crowd, conn.place = nil, nil
	}
}

// grow changes the size of a crowd, and of those that it is part of. It removes parts that are
// empty then.
func (c *crowd) grow(by int) {
	for c.size += by; c.in != nil; c.size += by {
		if c.size == 0 {
			heap.Remove(&c.in.parts, c.index)
			delete(c.in.named, c.name)
		} else {
			heap.Fix(&c.in.parts, c.index)
		}
		c = c.in
	}
}

// yields returns the connection that makes room for a newcomer from anywhere, or nil if none has
// to: the first, if its introduction is over; else one of a crowd that outnumbers the newcomer's,
// because a flood that replaces its connections fast must not keep others out.
func (c *crowd) yields(to origin) *countedConn {
	if first := c.overdue(); first != nil {
		return first
	}
	return c.outnumbering(to)
}

// overdue returns the first connection if its introduction is over, or nil.
func (c *crowd) overdue() *countedConn {
	if first := c.first(); first != nil && time.Since(first.began) >= introduction {
		return first
	}
	return nil
}

// part returns the connections from an address, or nil if there are none.
func (c *crowd) part(address origin) *crowd {
	for _, name := range address {
		if c = c.named[name]; c == nil {
			return nil
		}
	}
	return c
}

// first returns the oldest connection of the largest address of the largest network, or nil if
// there are no connections.
func (c *crowd) first() *countedConn {
	if c == nil || c.size == 0 {
		return nil
	}
	for len(c.parts) > 0 {
		c = c.parts[0]
	}
	return c.conns.Front().Value.(*countedConn)
}

// outnumbering returns the first connection of the largest network, if that is larger than the
// network of a newcomer and would not be smaller if the newcomer took the place of the connection;
// otherwise newcomers could throw each other out again and again. If it is not, the same is asked
// of the addresses in the newcomer's network. It returns nil if no crowd outnumbers the newcomer's.
func (c *crowd) outnumbering(newcomer origin) *countedConn {
	for _, name := range newcomer {
		if c.size == 0 {
			return nil
		}
		largest, own := c.parts[0], c.named[name]
		switch {
		case own == nil && largest.size > 1, own != nil && largest.size > own.size+1:
			return largest.first()
		case own == nil:
			return nil
		}
		c = own
	}
	return nil
}

// parts is a heap: the largest part first, and of those of equal size the one whose first
// connection is the oldest.
type parts []*crowd

func (h parts) Len() int { return len(h) }

func (h parts) Less(i, j int) bool {
	a, b := h[i], h[j]
	return a.size > b.size || a.size == b.size && a.first().began.Before(b.first().began)
}

func (h parts) Swap(i, j int) {
	h[i], h[j] = h[j], h[i]
	h[i].index, h[j].index = i, j
}

// Push adds a part at the end; see heap.Interface.
func (h *parts) Push(part any) {
	part.(*crowd).index = len(*h)
	*h = append(*h, part.(*crowd))
}

// Pop removes the part at the end; see heap.Interface.
func (h *parts) Pop() any {
	last := len(*h) - 1
	part := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return part
}
