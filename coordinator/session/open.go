package session

import (
	"cmp"
	"crypto/rand"
	"fmt"
	"log/slog"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// handshake opens a new session, or resumes an earlier one.
func (ss *Session) handshake(m *lessorv1.SessionRequest, h *lessorv1.Handshake) bool {
	if h.GetProtocol() != Protocol {
		return ss.deny(m.GetId(), fmt.Sprintf("handshake.protocol: is %d; this coordinator speaks version %d only", h.GetProtocol(), Protocol), "use that version")
	}
	w := h.GetWorker()
	f := convert.Fields{Limits: ss.srv.Limits}
	f.Required("handshake.worker.name", w.GetName())
	f.ID("handshake.worker.instance_id", w.GetInstanceId())
	f.ID("handshake.worker.version", w.GetVersion())
	f.ID("handshake.worker.hostname", w.GetHostname())
	f.ID("handshake.replaces_instance_id", h.GetReplacesInstanceId())
	if mode := h.GetAuth().GetMode(); lessorv1.AuthMode_name[int32(mode)] == "" {
		f.Fail("handshake.auth.mode", "is %d, which this coordinator does not know", mode)
	}
	if f.Err != nil {
		return ss.refuse(m.GetId(), refusal.CodeInvalid, f.Err.Error(),
			"correct the field and send the handshake again")
	}
	convert.DropUnknown(w)
	if ss.sender != w.GetName() {
		return ss.deny(m.GetId(), "sender.id: differs from handshake.worker.name", "use the same worker name in both")
	}
	if !ss.checkCredential(m.GetId(), h.GetAuth()) {
		return false
	}
	a, goOn := ss.admit(m.GetId(), h)
	return goOn && ss.accept(m, a, w)
}

// admit resumes the session that a handshake names, or makes a new one. If it refuses the handshake
// (ok is false), nothing has changed.
func (ss *Session) admit(corr string, h *lessorv1.Handshake) (a admission, ok bool) {
	w, now, tenant := h.GetWorker(), ss.srv.Engine.Now().Wall, ss.who.Tenant
	k, resumes := ticket{}, h.GetResume() != nil
	if !resumes {
		k.session = engine.NewSessionID(tenant, w.GetName(), cmp.Or(w.GetInstanceId(), rand.Text()))
	} else if k, ok = ss.ticket(h, now); !ok {
		return admission{}, ss.invalidToken(corr)
	}
	old := h.GetReplacesInstanceId()
	if !ss.checkPlace(corr, lease.InstanceOf(k.session), engine.Instance(tenant, w.GetName(), old)) {
		return admission{}, false
	}
	if !resumes {
		a = ss.srv.resumes.begin(ss, k.session, ss.logFor(w, k.session), now)
	} else {
		var err error
		a, err = ss.srv.resumes.resume(ss, k, h.GetResume().GetLastSeenSeq(), ss.logFor(w, k.session), now)
		if err != nil {
			ss.reset(refusal.CodeStaleBinding, err.Error(), 0)
			return admission{}, false
		}
	}
	if old != "" {
		ss.srv.replace(tenant, w.GetName(), old)
	}
	a.resumed = resumes
	return a, true
}

// ticket decodes the session token. ok is false unless the token is genuine, unexpired, and issued
// for this session of this worker.
func (ss *Session) ticket(h *lessorv1.Handshake, now lease.Wall) (k ticket, ok bool) {
	w := h.GetWorker()
	k, genuine := ss.srv.sessionTokens.open(ss.who.Tenant, w.GetName(), h.GetResume().GetSessionToken())
	if !genuine || now >= k.until || k.session != h.GetResume().GetSessionId() {
		return ticket{}, false
	}
	instance := w.GetInstanceId()
	return k, instance == "" || engine.Instance(ss.who.Tenant, w.GetName(), instance) == lease.InstanceOf(k.session)
}

func (ss *Session) invalidToken(corr string) bool {
	const why = "handshake.resume.session_token: is not valid for this session of this worker, or has expired"
	ss.refuse(corr, refusal.CodeToken, why, "discard the token and open a new session")
	ss.end(refusal.New(codes.Unauthenticated, refusal.CodeToken, why, nil))
	return false
}

// replace ends the sessions and leases of an instance that a new instance replaces (W8).
func (s *Server) replace(tenant, worker, instance string) {
	id := engine.Instance(tenant, worker, instance)
	s.resumes.replaced(id)
	s.Engine.Replace(tenant, id)
}

// accept sends the accept frame. From then on, writers send the frames of the session.
func (ss *Session) accept(m *lessorv1.SessionRequest, a admission, w *lessorv1.WorkerInfo) bool {
	if !ss.adopt(a, w) {
		return false
	}
	defer ss.out.allowWriters(&ss.writer)
	now, cfg := ss.srv.Engine.Now().Wall, &ss.srv.Config
	until := now.Add(tokenLife)
	accepted := &lessorv1.SessionResponse{
		Id: "c1", Seq: a.lastSeen, Corr: m.GetId(), Ack: ackOf(m),
		Payload: &lessorv1.SessionResponse_Accept{Accept: &lessorv1.Accept{
			SessionId:          ss.id,
			HeartbeatInterval:  durationpb.New(cfg.HeartbeatInterval),
			IdleTimeout:        durationpb.New(cfg.IdleTimeout),
			ServerTime:         convert.Stamp(now),
			CoordinatorVersion: ss.srv.Version,
			Resumed:            a.resumed,
			NextSeq:            a.nextSeq,
			ExpiresAt:          convert.Stamp(until),
			SessionToken: ss.srv.sessionTokens.issue(ss.who.Tenant, w.GetName(),
				ticket{session: ss.id, gen: a.gen, until: until}),
			MaxMessageBytes: uint64(ss.srv.MaxMessage),
		}},
	}
	if a.intact {
		accepted.Id = "a" + strconv.FormatUint(a.gen, 36)
	}
	if err := ss.send(accepted); err != nil {
		ss.end(refusal.Status(err))
	}
	return true
}

func (ss *Session) logFor(w *lessorv1.WorkerInfo, id string) *slog.Logger {
	return ss.srv.Logger.With("tenant", ss.who.Tenant, "sender", w.GetName(), "session", id)
}

// adopt connects the session with this stream. It returns false if the stream is ending.
func (ss *Session) adopt(a admission, w *lessorv1.WorkerInfo) bool {
	ss.mu.Lock()
	defer ss.mu.Unlock()
	if ss.left {
		ss.srv.resumes.leave(a.state, ss, false)
		return false
	}
	ss.id, ss.in, ss.out, ss.packages, ss.feeds, ss.admission = a.state.id, &a.state.in, a.state.out,
		&a.state.packages, a.state.feeds, a
	ss.info, ss.log, ss.state = w, ss.out.log, handshaking
	ss.health.selfReport = a.said
	ss.drainAsked = ss.srv.Registry.add(ss)
	ss.log.Info("session opened", "instance", w.GetInstanceId(), "version", w.GetVersion(), "hostname",
		w.GetHostname(), "resumed", a.resumed)
	return true
}
