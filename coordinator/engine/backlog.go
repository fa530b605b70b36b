package engine

import "sync/atomic"

// maxBacklog is how many bytes may wait to be sent to a member before it gets no further task (W11). The last task goes beyond it, and so does
// what a batch had granted already.
const maxBacklog = 4 << 20

// Backlog counts the bytes that wait to be sent to a member. The engine adds what it grants, the member takes away what it has sent; anything else
// that waits for the same reader may be added by the member.
type Backlog struct{ bytes atomic.Int64 }

// Add counts what waits from now on.
func (b *Backlog) Add(bytes int) { b.bytes.Add(int64(bytes)) }

// Sent counts what waits no more. It returns true where there is room again after there was none: then the engine has to hear of it, by Room.
func (b *Backlog) Sent(bytes int) (room bool) {
	left := b.bytes.Add(-int64(bytes))
	return left < maxBacklog && left+int64(bytes) >= maxBacklog
}

func (t *taker) backlogged() bool {
	return t.member != nil && t.member.Backlog != nil && t.member.Backlog.bytes.Load() >= maxBacklog
}

// Room tells that a session whose backlog was full has room again. It does not wait.
func (e *Engine) Room(tenant, session string) error {
	return e.inbox.insist(tenant, op{run: func() {
		if t := e.sessions[session]; t != nil {
			e.offer(t)
		}
	}})
}

// grant has the batch hand over a lease to a member.
func (b *batch) grant(m *Member, g Granted) {
	tell := b.to(m)
	tell.granted = append(tell.granted, g)
	if m.Backlog != nil {
		m.Backlog.Add(g.Bytes)
	}
}
