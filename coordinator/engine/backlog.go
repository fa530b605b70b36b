package engine

import "sync/atomic"

// maxBacklog is how many bytes may wait to be sent to a member before it gets no further task
// (W11). The last task granted before that may exceed it. Leases that a batch has granted already
// are delivered in any case.
var maxBacklog = 4 << 20

// Backlog counts the bytes that wait to be sent to a member. The engine adds the leases that it
// grants; the member subtracts what it has sent. The member may also add other frames that wait for
// the same reader.
type Backlog struct{ bytes atomic.Int64 }

// Add adds bytes that wait from now on.
func (b *Backlog) Add(bytes int) { b.bytes.Add(int64(bytes)) }

// Sent subtracts bytes that were sent. It returns true if there is room now and there was none
// before; the caller must then call Engine.BacklogHasRoom.
func (b *Backlog) Sent(bytes int) (room bool) {
	left := int(b.bytes.Add(-int64(bytes)))
	return left < maxBacklog && left+bytes >= maxBacklog
}

func (t *taker) backlogged() bool {
	return t.member != nil && t.member.Backlog != nil && int(t.member.Backlog.bytes.Load()) >= maxBacklog
}

// BacklogHasRoom tells the engine that the backlog of a session has room again; see Backlog.Sent.
// It does not wait.
func (e *Engine) BacklogHasRoom(tenant, session string) {
	e.inbox.later(tenant, func() {
		if t := e.sessions.find(session); t != nil {
			e.agenda.offer(t)
		}
	})
}
