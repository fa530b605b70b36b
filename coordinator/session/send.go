package session

import (
	"strconv"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// coordinatorName is the id of the coordinator as a sender of frames.
const coordinatorName = "coordinator"

// write sends the frames that wait, and returns when none is left. The last writer of a stream also
// sends the reset frame, if there is one.
func (ss *Session) write() {
	last := true
	defer func() {
		if last {
			close(ss.written)
		}
	}()
	defer ss.recoverPanic()
	for {
		p, then := ss.out.nextTransmission(&ss.writer)
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

// transmit sends a frame.
func (ss *Session) transmit(p transmission) error {
	err := ss.sendNumbered(p)
	if p.resent {
		ss.srv.Registry.resends.Inc()
	}
	if ss.out.backlog.Sent(p.size()) {
		ss.srv.Engine.BacklogHasRoom(ss.who.Tenant, ss.id)
	}
	return err
}

func (ss *Session) sendNumbered(p transmission) error {
	m, err := ss.build(p)
	if err != nil {
		return err
	}
	m.Id, m.Seq = p.id(), p.seq
	if p.wantsAck || p.ack != "" {
		if m.Ack == nil {
			m.Ack = &lessorv1.Ack{For: p.ack}
		}
		m.Ack.Request = p.wantsAck
	}
	return ss.send(m)
}

func (ss *Session) build(p transmission) (*lessorv1.SessionResponse, error) {
	if p.leases == nil {
		return p.make(ss.srv.Engine.Now(), ss.srv.Tokens.For(ss.who.Credential)), nil
	}
	granted := p.granted
	if granted == nil || p.stale || mayHaveEnded(granted, ss.srv.Engine.Now()) { // the dispatch is sent again, or late
		var err error
		if granted, err = ss.srv.regrant(p.leases); err != nil {
			return nil, err
		}
	}
	return ss.srv.dispatchOf(ss.who.Credential, granted)
}

// sendUnnumbered sends a frame on a stream that has no session yet. The frame has no seq.
func (ss *Session) sendUnnumbered(m *lessorv1.SessionResponse) bool {
	ss.unnumbered++
	m.Id = "e" + strconv.Itoa(ss.unnumbered)
	if err := ss.send(m); err != nil {
		ss.end(refusal.Status(err))
		return false
	}
	return true
}

// resetFrame returns the reset frame if the coordinator ends the session; nil if the session ends
// in another way. The frame has no seq, so that the worker handles it even if frames before it are
// missing.
func (ss *Session) resetFrame() *lessorv1.SessionResponse {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.finalReset == nil {
		return nil
	}
	return &lessorv1.SessionResponse{Id: "reset", Payload: &lessorv1.SessionResponse_Reset_{Reset_: ss.finalReset}}
}

// send completes the envelope of a frame and sends it. Only one goroutine sends at a time: the
// reader until there is a session, then the writer.
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
