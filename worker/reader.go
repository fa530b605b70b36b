package worker

import (
	"errors"
	"fmt"
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// read processes frames until the stream ends, and sets readErr to the reason.
func (s *session) read() {
	defer close(s.ended)
	s.readErr = errReaderGone // stays if a hook ends this goroutine
	s.readErr = s.receiveAll()
}

func (s *session) receiveAll() error {
	for {
		f, err := s.stream.Recv()
		if err != nil {
			return s.streamError(err)
		}
		if err := s.receive(f); err != nil {
			return err
		}
	}
}

// receive processes one frame. An error ends the session.
func (s *session) receive(f *lessorv1.SessionResponse) error {
	if err := s.checkEnvelope(f); err != nil {
		return err
	}
	// the last frame of the stream, so processed even if frames before it are missing
	if reset := f.GetReset_(); reset != nil {
		return s.w.handleReset(reset)
	}
	if !s.handleEnvelope(f, time.Now()) {
		return nil
	}
	return s.handlePayload(f)
}

// handleEnvelope processes the envelope, and reports whether the payload must be processed.
func (s *session) handleEnvelope(f *lessorv1.SessionResponse, now time.Time) (take bool) {
	w := s.w
	w.lock()
	defer w.unlock()
	s.lastReceived, s.established = now, true
	if sent := s.sent[f.GetCorr()]; sent != nil {
		s.transit.observe(sent.at, now, f.GetTs())
	}
	wake := s.link.acknowledged(f.GetAck().GetFor())
	// processed even if it is not in order, because it is about frames that this side sent
	if e := f.GetError(); e.GetCode() == codeSeqGap {
		s.link.resendRequested(e.GetExpectedSeq())
		wake = true
	} else if s.link.acknowledged(f.GetCorr()) { // an answer also acknowledges
		wake = true
	}
	s.eventsAcknowledgedLocked()
	if s.link.classify(f, now) == inOrder {
		if take = w.mu.state.expects(f); !take {
			s.unknownLocked(f)
		}
	}
	if wake || s.link.gap.unreported {
		w.wakeWriter()
	} else if s.link.ackRequested {
		w.wakeWriterSoonLocked(now)
	}
	return take
}

// handlePayload processes the payload of a frame.
func (s *session) handlePayload(f *lessorv1.SessionResponse) error {
	switch p := f.GetPayload().(type) {
	case *lessorv1.SessionResponse_Error:
		return s.handleError(f.GetCorr(), p.Error)
	case *lessorv1.SessionResponse_Dispatch:
		s.dispatch(p.Dispatch.GetAssignments(), f.GetTs())
	case *lessorv1.SessionResponse_Verdicts:
		s.handleVerdicts(f.GetCorr(), p.Verdicts.GetVerdicts())
	case *lessorv1.SessionResponse_HeartbeatAck:
		s.w.handleNoNewWork(p.HeartbeatAck.GetNoNewWork())
		s.handleHeartbeatAck(f.GetCorr(), p.HeartbeatAck.GetLeases())
	case *lessorv1.SessionResponse_Cancel:
		s.w.handleCancel(p.Cancel)
	case *lessorv1.SessionResponse_Drain:
		s.handleDrain(p.Drain, f.GetTs().AsTime())
	case *lessorv1.SessionResponse_PkgInstall:
		s.w.handlePackageRequest(installRequest(p.PkgInstall))
	case *lessorv1.SessionResponse_PkgUninstall:
		s.w.handlePackageRequest(uninstallRequest(p.PkgUninstall))
	}
	return nil
}

// checkEnvelope checks the tenant and the sender of a frame before anything else. If they do not
// match the session, the session ends. The first frame that names a sender binds the session to it.
// If a frame before that one names another tenant, the worker's credentials belong to that tenant:
// trying again would not help, unless the worker may take over that tenant.
func (s *session) checkEnvelope(f *lessorv1.SessionResponse) error {
	if t := f.GetTenant(); t != "" && t != s.tenant {
		switch {
		case s.peer != nil:
			return fmt.Errorf("%w: tenant %q", errDeniedFrame, t)
		case s.w.takeTenant(t):
			return errTenantTaken
		}
		return &RefusedError{
			Code: codeDenied, Message: fmt.Sprintf("the credentials belong to tenant %q, but the worker is configured for tenant %q", t, s.tenant),
			Remediation: "set the worker's tenant (--tenant, Config.Tenant) to that of its credentials",
		}
	}
	sender := f.GetSender()
	if sender == nil {
		return nil
	}
	if sender.GetRole() != "coordinator" {
		return fmt.Errorf("%w: sender %q", errDeniedFrame, sender.GetRole())
	}
	if s.peer == nil {
		s.peer = sender
	}
	if s.peer.GetId() != sender.GetId() {
		return fmt.Errorf("%w: sender %q instead of %q", errDeniedFrame, sender.GetId(), s.peer.GetId())
	}
	return nil
}

// replyLocked queues an answer to a frame that this version does not know. If too many wait because
// the stream is slow, the oldest is dropped: it only tells the coordinator that its frame changed
// nothing.
func (s *session) replyLocked(f *lessorv1.SessionRequest) {
	if len(s.control) >= maxControl {
		s.control = s.control[1:]
	}
	s.control = append(s.control, f)
	s.w.wakeWriter()
}

// unknownLocked answers a frame that this version does not know or this state does not allow. The
// frame changes nothing (W1).
func (s *session) unknownLocked(f *lessorv1.SessionResponse) {
	what := "a payload that this version does not know"
	if f.GetPayload() != nil {
		what = strings.TrimPrefix(fmt.Sprintf("%T", f.GetPayload()), "*lessorv1.SessionResponse_")
	}
	state := s.w.mu.state
	s.w.deferLocked(func() {
		s.w.log.Warn("frame refused", "code", codeUnknown, "type", what, "id", f.GetId(), "state", state.String())
	})
	s.replyLocked(&lessorv1.SessionRequest{Corr: f.GetId(), Payload: &lessorv1.SessionRequest_Error{Error: &lessorv1.Error{
		Code:    codeUnknown,
		Message: fmt.Sprintf("the worker does not expect %s in state %v", what, state),
	}}})
}

// handleError processes an error frame: a frame of the worker was wrong, or could not be processed.
// It is no verdict on the content of that frame.
func (s *session) handleError(corr string, e *lessorv1.Error) error {
	err := &frameError{e}
	switch {
	case e.GetCode() == codeSeqGap:
		return nil // handleEnvelope has processed it
	case e.GetCode() == codeQuotaFrames:
		s.pauseFeedback(e)
		return nil
	case corr == s.registration:
		return err
	}
	s.w.log.Error("the coordinator reports an error", "code", e.GetCode(), "message", e.GetMessage(), "frame", corr)
	s.w.callOnError(err)
	s.w.lock()
	defer s.w.unlock()
	f, delay := s.takeSentLocked(corr), s.w.retryAfter(e.GetRetryAfter())
	if refusalOfFrame(e) != nil {
		f.suspect()
	}
	s.w.retryFrameLocked(f, err.Error(), delay)
	s.w.retryBeatsLocked(f, delay)
	return nil
}

// pauseFeedback stops feedback for as long as the coordinator asks, because the quota of frames is
// used up (X5). Meanwhile each attempt keeps its newest feedback.
func (s *session) pauseFeedback(e *lessorv1.Error) {
	w, wait := s.w, e.GetRetryAfter().AsDuration()
	w.log.Warn("feedback is paused", "code", e.GetCode(), "message", e.GetMessage(), "wait", wait)
	w.lock()
	defer w.unlock()
	s.feedbackPausedUntil = time.Now().Add(wait)
	w.afterDelayLocked(wait, w.wakeWriter)
}

// handleVerdicts processes the verdicts on the reports of an answered frame, which have the order
// of the reports (W3).
func (s *session) handleVerdicts(corr string, verdicts []*lessorv1.ReportVerdict) {
	w := s.w
	w.lock()
	defer w.unlock()
	sent := s.takeSentLocked(corr)
	for i, r := range sent.reports {
		switch {
		case i >= len(verdicts) || verdicts[i].GetLeaseId() != r.a.leaseID:
			w.retryLocked(r, "the coordinator's answer did not include the report", w.retryAfter(nil))
		case verdicts[i].GetError() != nil || verdicts[i].GetVerdict() == lessorv1.Verdict_VERDICT_UNSPECIFIED:
			e := verdicts[i].GetError()
			w.retryLocked(r, e.GetCode()+" "+e.GetMessage(), w.retryAfter(e.GetRetryAfter()))
		default:
			w.handleVerdictLocked(r, sent.at, verdicts[i])
		}
	}
}

// handleNoNewWork logs why the coordinator gives no new work, once per change, and calls the hook.
// Otherwise such a worker would look like one for which there is no work. The reason stays known
// beyond the session. A worker that drains has itself asked for no new work, so nothing is
// reported.
func (w *Worker) handleNoNewWork(reason string) {
	w.lock()
	draining := w.mu.drain.requested
	w.unlock()
	noNewWork := reason != ""
	if draining || noNewWork == w.noNewWork {
		return
	}
	w.noNewWork = noNewWork
	if noNewWork {
		w.log.Warn("the coordinator gives no new work", "why", reason)
	} else {
		w.log.Info("the coordinator gives new work again")
	}
	if hook := w.cfg.Hooks.OnNoNewWork; hook != nil {
		hook(reason)
	}
}

// handleHeartbeatAck processes the answers to the heartbeats of an answered frame.
func (s *session) handleHeartbeatAck(corr string, acks []*lessorv1.LeaseAck) {
	w := s.w
	w.lock()
	defer w.unlock()
	sent := s.takeSentLocked(corr)
	for i, b := range sent.beats {
		switch {
		case i >= len(acks) || acks[i].GetLeaseId() != b.a.leaseID:
			w.retryBeatLocked(b.a, b.renewal, w.retryAfter(nil))
		case acks[i].GetError() != nil || acks[i].GetVerdict() == lessorv1.Verdict_VERDICT_UNSPECIFIED:
			w.retryBeatLocked(b.a, b.renewal, w.retryAfter(acks[i].GetError().GetRetryAfter()))
		default:
			w.answeredLocked(b.a, b.renewal)
			err := w.handleAnswerLocked(b.a, sent.at, acks[i])
			if err == nil {
				b.a.renewals.saved = max(b.a.renewals.saved, b.number)
			}
			if _, rejected := errors.AsType[*RejectedError](err); rejected && !b.bare {
				w.bareBeatLocked(b.a)
			}
			b.answerWaiters(err)
		}
	}
}

// takeSentLocked removes the frame that was answered from the sent frames and returns it; if there
// is none it returns an empty one.
func (s *session) takeSentLocked(corr string) *sentFrame {
	if f := s.sent[corr]; f != nil {
		delete(s.sent, corr)
		return f
	}
	return &sentFrame{}
}

// handleCancel processes a cancel frame: with a grace the task is cancelled, without one the lease
// is lost.
func (w *Worker) handleCancel(c *lessorv1.Cancel) {
	w.lock()
	defer w.unlock()
	a := w.mu.attempts[c.GetLeaseId()]
	if a == nil {
		return
	}
	if grace := c.GetGrace().AsDuration(); grace > 0 {
		now := time.Now()
		w.cancelLocked(a, c.GetDetail(), now.Add(grace))
		// the answer tells how long the lease lives without attempt_timeout and deadline (T7)
		if a.phase == executing && a.lease.left(now) < grace {
			w.queueBeatLocked(a)
		}
		return
	}
	w.loseLocked(a, &StopError{Err: ErrLeaseLost, Reason: c.GetReason(), Detail: c.GetDetail()})
}

// handleReset processes the end of a session, and returns it as an error. If the leases have ended,
// handlers stop now: until the worker has connected again, nothing else would tell them. An attempt
// that has reported waits for its verdict, which may have been lost with the session.
func (w *Worker) handleReset(r *lessorv1.Reset) error {
	if r.GetLeasesEnded() {
		w.lock()
		defer w.unlock()
		for _, a := range w.mu.attempts {
			if a.held() {
				w.loseLocked(a, &StopError{
					Err: ErrLeaseLost, Reason: lessorv1.Reason_REASON_REVOKED,
					Detail: r.GetReason(),
				})
			}
		}
	}
	return &resetError{r}
}

// handleDrain processes the coordinator's request to drain. The deadline is measured from the time
// in the frame itself, so that the clock of this machine does not matter. The last part of the
// time, at most StopTimeout, is reserved for handlers to return and for reports to get their
// verdicts.
func (s *session) handleDrain(d *lessorv1.Drain, now time.Time) {
	timeout := s.w.cfg.DrainTimeout
	if d.GetDeadline() != nil {
		span := max(d.GetDeadline().AsTime().Sub(now), 0)
		timeout = min(timeout, span-min(s.w.cfg.StopTimeout, span/2))
	}
	reason := strings.TrimSuffix("the coordinator asked: "+d.GetReason(), ": ") // the reason may be empty
	s.w.beginDrain(reason, timeout)
}
