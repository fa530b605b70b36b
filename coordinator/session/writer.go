package session

import (
	"strconv"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// coordinatorName is the id of the coordinator as a sender of frames.
const coordinatorName = "coordinator"

// write sends what waits, and returns when nothing does. The last writer of a stream also sends the last frame, the reset, if there is one.
func (ss *Session) write() {
	last := true
	defer func() {
		if last {
			close(ss.written)
		}
	}()
	defer ss.recoverPanic()
	for {
		p, then := ss.out.take(ss)
		switch then {
		case stepPause:
			last = false
			return
		case stepEnd:
			if m := ss.resetFrame(); m != nil {
				_ = ss.send(m) // the stream ends anyway
			}
			return
		}
		if err := ss.transmit(p); err != nil {
			ss.end(refusal.Status(err))
			return
		}
	}
}

// transmit sends a frame and gives back the room that it took.
func (ss *Session) transmit(p transmission) error {
	err := ss.sendNumbered(p)
	if p.again {
		ss.srv.Registry.resends.Inc()
	}
	if p.answer > 0 {
		ss.out.release(p.answer)
	}
	if ss.out.backlog.Sent(p.size()) {
		_ = ss.srv.Engine.BacklogHasRoom(ss.who.Tenant, ss.id) // a stopped engine pushes nothing
	}
	return err
}

func (ss *Session) sendNumbered(p transmission) error {
	m, err := ss.build(p)
	if err != nil {
		return err
	}
	m.Id, m.Seq = p.id(), p.seq
	if p.asks || p.ack != "" {
		if m.Ack == nil {
			m.Ack = &lessorv1.Ack{For: p.ack}
		}
		m.Ack.Request = p.asks
	}
	return ss.send(m)
}

func (ss *Session) build(p transmission) (*lessorv1.SessionResponse, error) {
	if p.leases == nil {
		return p.make(ss.srv.Engine.Now()), nil
	}
	granted := p.granted
	if granted == nil || p.stale || mayHaveEnded(granted, ss.srv.Engine.Now()) { // it is sent again, or goes out late
		var err error
		if granted, err = ss.srv.regrant(p.leases); err != nil {
			return nil, err
		}
	}
	return ss.srv.dispatchOf(granted)
}

// sendUnnumbered sends a frame of a stream that has no session yet. It has no place in a sequence.
func (ss *Session) sendUnnumbered(m *lessorv1.SessionResponse) bool {
	ss.unnumbered++
	m.Id = "e" + strconv.Itoa(ss.unnumbered)
	if err := ss.send(m); err != nil {
		ss.end(refusal.Status(err))
		return false
	}
	return true
}

// resetFrame returns the reset for a session that the coordinator ends; nil if the session ends in another way. A reset has no seq: the worker heeds it
// even if frames before it are missing.
func (ss *Session) resetFrame() *lessorv1.SessionResponse {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.last == nil {
		return nil
	}
	return &lessorv1.SessionResponse{Id: "reset", Payload: &lessorv1.SessionResponse_Reset_{Reset_: ss.last}}
}

// send puts the rest of the envelope around a frame. One sends at a time: the reader until there is a session, then the writer.
func (ss *Session) send(m *lessorv1.SessionResponse) error {
	ss.sending.Lock()
	defer ss.sending.Unlock()
	return ss.sendLocked(m)
}

func (ss *Session) sendLocked(m *lessorv1.SessionResponse) error {
	m.Ts, m.Tenant = convert.Stamp(ss.srv.Engine.Now().Wall), ss.who.Tenant
	m.Sender = &lessorv1.Sender{Role: "coordinator", Id: coordinatorName}
	ss.slow.Reset(ss.srv.Config.SendTimeout)
	defer ss.slow.Stop()
	return ss.stream.Send(m)
}
