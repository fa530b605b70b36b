package worker

import (
	"errors"
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// resumption is what the next stream needs to resume the session of the last one (W8). It is
// guarded by Worker.mu.
type resumption struct {
	// id and token name the session; empty if there is none to resume.
	id, token string
	// expiresAt is when the token expires, on this process's clock; zero: not stated.
	expiresAt time.Time
	// lastSeen is the seq of the last frame of the coordinator that was processed in order.
	lastSeen uint64
	// frameCount counts the frames that were sent on all streams; the id of a frame is its number.
	frameCount uint64
	// unanswered are the frames with reports that had no answer when the stream broke.
	unanswered []*sentFrame
}

// resumeRequest returns the session to resume, for the handshake; nil asks for a new session.
func (r *resumption) resumeRequest(now time.Time) *lessorv1.Resume {
	if r.token == "" || (!r.expiresAt.IsZero() && !now.Before(r.expiresAt)) {
		return nil
	}
	return &lessorv1.Resume{SessionId: r.id, SessionToken: r.token, LastSeenSeq: r.lastSeen}
}

// remember stores the session of an accept that was received at the given time. The token's
// validity is computed as a duration from two times of the coordinator, so that the clock of this
// machine does not matter.
func (r *resumption) remember(a *lessorv1.Accept, received time.Time) {
	r.id, r.token, r.expiresAt = a.GetSessionId(), a.GetSessionToken(), time.Time{}
	if a.GetExpiresAt() != nil && a.GetServerTime() != nil {
		r.expiresAt = received.Add(a.GetExpiresAt().AsTime().Sub(a.GetServerTime().AsTime()))
	}
}

// forget makes the next stream begin a new session.
func (r *resumption) forget() { r.id, r.token, r.lastSeen = "", "", 0 }

// beginOrResumeLocked resumes the session, or begins a new one, as the accept says. Reports that
// the coordinator has received wait for their verdicts on this stream. The others are sent again;
// if the coordinator has received them after all, it recognizes them by their content (V4).
func (s *session) beginOrResumeLocked(f *lessorv1.SessionResponse, now time.Time) {
	a, r := f.GetAccept(), &s.w.mu.resume
	s.link = link{next: max(a.GetNextSeq(), 1), lastSeq: f.GetSeq()}
	if a.GetResumed() && a.GetNextSeq() > 1 { // with 1, both sides count from the beginning
		s.link.lastSeq = r.lastSeen
	}
	for _, frame := range r.unanswered {
		if a.GetResumed() && frame.seq < a.GetNextSeq() {
			frame.since = now
			s.sent[frame.id] = frame
			continue
		}
		s.w.retryFrameLocked(frame, "the stream broke", noDelay)
	}
	r.unanswered = nil
	r.remember(a, now)
	s.w.mu.maxMessage = s.w.cfg.MaxMessageBytes
	if most := a.GetMaxMessageBytes(); most > 0 && most < uint64(s.w.mu.maxMessage) {
		s.w.mu.maxMessage = max(int(most), minMessageBytes)
	}
}

// suspendLocked keeps what the next stream needs of this one, which ended with err.
func (s *session) suspendLocked(err error) {
	r := &s.w.mu.resume
	if s.link.next != 0 { // it was accepted
		r.lastSeen = s.link.lastSeq
	}
	s.markSuspects(err)
	for _, f := range s.sent {
		s.w.retryBeatsLocked(f, noDelay)
		if f.reports != nil {
			r.unanswered = append(r.unanswered, f)
		}
	}
	s.sent = nil
	for _, f := range s.link.unacked {
		// without a refusal the lease would count as acknowledged, and expire (W14)
		if e := f.frame.GetError(); e.GetCode() == codeConcurrencyViolation {
			s.w.mu.outbox.refusals = append(s.w.mu.outbox.refusals, e)
		}
	}
	s.suspendEventsLocked()
	if endsSession(err) {
		r.forget()
	}
	// If a verdict did not come in time, perhaps it was never made. Only sending the report again
	// can tell.
	if r.token == "" || errors.Is(err, errAnswerTimeout) {
		for _, f := range r.unanswered {
			s.w.retryFrameLocked(f, "the stream broke", noDelay)
		}
		r.unanswered = nil
	}
}

// markSuspects marks the reports that may be the reason why the stream ended with err.
func (s *session) markSuspects(err error) {
	st := status.Convert(err)
	// by the coordinator itself, and not only by gRPC, or something in between
	decided := detail.Of[*errdetails.ErrorInfo](st).GetDomain() == detail.Domain
	switch {
	case st.Code() == codes.ResourceExhausted && !decided:
		s.markOversize()
	case st.Code() == codes.Internal && decided:
		// the coordinator handles frames in order, and may have failed at this one
		if f := s.oldestReports(); f != nil {
			f.suspect()
		}
	}
}

// markOversize marks the large reports, or those of large frames, without an answer after a frame
// was refused, perhaps because it was too large, although it was within the limits that are known.
// If one is too large, the largest is. If that one has a single report, which was a suspect before,
// then the report is too large for any frame.
func (s *session) markOversize() {
	large := min(s.budget(), leastLimit/4)
	var largest *sentFrame
	for _, f := range s.sent {
		if size := f.size(); size >= large && (largest == nil || size > largest.size()) {
			largest = f
		}
	}
	if largest != nil && len(largest.reports) == 1 {
		r := largest.reports[0]
		r.oversize = r.suspect && r.isOutcome()
	}
	for _, f := range s.sent {
		if f.size() >= large {
			f.suspect()
		}
	}
}

// oldestReports returns the first frame with reports that has no answer; nil if there is none.
func (s *session) oldestReports() (oldest *sentFrame) {
	for _, f := range s.sent {
		if f.reports != nil && (oldest == nil || f.seq < oldest.seq) {
			oldest = f
		}
	}
	return oldest
}

// credentialRefused reports whether err refuses the session token of a resume, or the credential of
// the call.
func credentialRefused(err error) bool {
	if refused, ok := errors.AsType[*frameError](err); ok {
		return refused.frame.GetCode() == codeInvalidToken
	}
	return status.Code(err) == codes.Unauthenticated
}

// endsSession reports whether the coordinator has ended the session, so that the next stream must
// begin a new one.
func endsSession(err error) bool {
	if _, refused := errors.AsType[*frameError](err); refused {
		return true
	}
	if reset, ok := errors.AsType[*resetError](err); ok {
		return reset.frame.GetCode() == codeStaleBinding || reset.frame.GetCode() == codeInvalidToken
	}
	return status.Code(err) == codes.Unauthenticated
}
