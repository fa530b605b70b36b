package worker

import (
	"slices"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// collected is what the writer sends next.
type collected struct {
	frames []*lessorv1.SessionRequest
	// last: the frames include the goodbye, the last frame of the session.
	last bool
	// due is when the link next has to send something; valid if waits.
	due   time.Time
	waits bool
}

// collect takes what waits in the outbox and makes frames of it: of each kind at most one, or as
// many bytes as one may have, so that a lot of one kind does not hold up the others. If gauges is
// not nil the frames include a heartbeat, otherwise only if a lease needs one. The error means that
// the stream is broken.
//
// There is no queue of frames. The outbox keeps what has to be said, and merges it while the stream
// is slow: a worker with n attempts never holds more than n heartbeats, 2n reports and n limited
// buffers of output, and a few events for each operation on a package.
func (s *session) collect(now time.Time, gauges map[string]float64) (out collected, err error) {
	w := s.w
	w.lock()
	defer w.unlock()
	frames, err := s.resendsLocked(now)
	if err != nil {
		return collected{}, err
	}
	for _, f := range s.control {
		frames = append(frames, s.sequencedLocked(f, now))
	}
	s.control = nil
	for _, refusal := range w.mu.outbox.refusals {
		frames = append(frames, s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Error{Error: refusal}}, now))
	}
	w.mu.outbox.refusals = nil
	for _, e := range w.takeEventsLocked() {
		frames = append(frames, s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_PkgEvent{PkgEvent: e}}, now))
	}
	frames = append(frames, s.capacityAndDrainLocked(now)...)
	urgent := s.endLullLocked(now) || gauges != nil
	// Reports come first, because the Start of an attempt must come before the heartbeats and the
	// feedback of its handler.
	frames = append(frames, s.reportsLocked(now)...)
	frames = append(frames, s.heartbeatLocked(now, gauges)...)
	startWaits := slices.ContainsFunc(w.mu.outbox.reports, func(r *report) bool { return !r.isOutcome() })
	if !startWaits && !now.Before(s.feedbackPausedUntil) {
		frames = append(frames, s.feedbackLocked()...)
	}
	out.last = w.drained.Err() != nil
	if out.last {
		frames = append(frames, s.goodbyeLocked(now))
	}
	out.frames = s.acknowledgeLocked(frames, now, urgent)
	out.due, out.waits = s.link.due()
	return out, nil
}

// resendsLocked returns the frames that have waited too long for their acknowledgement. If a frame
// of the coordinator is missing, it also queues a request for that frame.
func (s *session) resendsLocked(now time.Time) ([]*lessorv1.SessionRequest, error) {
	frames, err := s.link.resends(now)
	if err != nil {
		return nil, err
	}
	ask, err := s.link.gapRequest(now)
	if ask != nil {
		s.control = append(s.control, ask)
	}
	return frames, err
}

// acknowledgeLocked adds the pending acknowledgement to the frames. It is sent alone only if it is
// urgent. Then it has no seq, because nobody would acknowledge it.
//
// While tasks wait for a goroutine, the acknowledgement of their dispatch waits too. It covers all
// of them, and the coordinator has to record it for each task that has no report in the same frame
// or an earlier one.
func (s *session) acknowledgeLocked(
	frames []*lessorv1.SessionRequest, now time.Time, urgent bool,
) []*lessorv1.SessionRequest {
	alone := len(frames) == 0
	if hold := len(s.w.mu.ready) > 0 && s.link.ackMayWait(now); hold || alone && !urgent {
		if s.link.ackRequested {
			s.w.wakeWriterSoonLocked(now)
		}
		return frames
	}
	frames = s.link.acknowledge(frames)
	if alone && len(frames) > 0 {
		s.frameLocked(frames[0])
	}
	return frames
}

// capacityAndDrainLocked returns the frames that tell the coordinator of a changed capacity and of
// a drain.
func (s *session) capacityAndDrainLocked(now time.Time) (frames []*lessorv1.SessionRequest) {
	if c := s.w.capacityLocked(); !c.equal(s.declaredCapacity) {
		frames = append(frames, s.sequencedLocked(c.changeFrame(s.declaredCapacity), now))
		s.declaredCapacity = c
	}
	if d := s.w.mu.drain; d.requested && !s.drainSent {
		s.drainSent = true
		frames = append(frames, s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Drain{
			Drain: &lessorv1.Drain{Reason: clip(d.reason, maxReason), Deadline: s.w.drainDeadlineLocked()},
		}}, now))
	}
	return frames
}

// heartbeatLocked returns a heartbeat that renews the leases that wait for it. If no lease waits,
// there is a heartbeat only if gauges is not nil: it says that the worker lives, and its health and
// gauges. A heartbeat without gauges leaves the last gauges valid.
func (s *session) heartbeatLocked(now time.Time, gauges map[string]float64) []*lessorv1.SessionRequest {
	var leases []*lessorv1.HeartbeatRequest
	var beats []sentBeat
	size := func(a *attempt) int { return len(a.renewals.next.checkpoint) + a.feedback.newestSize() + itemOverhead }
	takeUntilFull(&s.w.mu.outbox.beats, s.budget(), size, func(a *attempt) {
		a.renewals.queued = false
		if a.held() {
			r := a.renewals.take()
			leases = append(leases, a.heartbeat(r))
			beats = append(beats, sentBeat{a: a, renewal: r})
		}
	})
	if len(leases) == 0 && gauges == nil {
		return nil
	}
	f := s.frameLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{
		Healthy: !s.w.mu.drain.requested,
		Metrics: gauges,
		Leases:  leases,
	}}})
	if len(leases) > 0 {
		s.sent[f.GetId()] = &sentFrame{id: f.GetId(), at: now, since: now, beats: beats}
	}
	return []*lessorv1.SessionRequest{f}
}

// reportsLocked merges the waiting reports into one frame. The last output of the attempts that
// these reports end is sent before them, because the coordinator drops feedback of a lease that has
// ended.
func (s *session) reportsLocked(now time.Time) (frames []*lessorv1.SessionRequest) {
	var reports []*report
	var items []*lessorv1.Report
	var lastFeedback []*lessorv1.FeedbackItem
	waiting := &s.w.mu.outbox.reports
	*waiting = slices.DeleteFunc(*waiting, (*report).obsolete)
	size := func(r *report) int {
		if r.suspect {
			return s.budget() + 1 // fills a frame
		}
		return r.size + r.a.feedback.pendingSize()
	}
	takeUntilFull(waiting, s.budget(), size, func(r *report) {
		if r.isOutcome() {
			lastFeedback = appendFeedback(lastFeedback, r.a, true)
		}
		r.tries++
		reports, items = append(reports, r), append(items, r.item)
	})
	frames = s.feedbackFramesLocked(lastFeedback)
	if len(items) > 0 {
		f := s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Reports{
			Reports: &lessorv1.Reports{Reports: items},
		}}, now)
		s.sent[f.GetId()] = &sentFrame{id: f.GetId(), seq: f.GetSeq(), at: now, since: now, reports: reports}
		frames = append(frames, f)
	}
	return frames
}

// feedbackLocked returns frames of progress and output. They are not answered, and not sent again.
func (s *session) feedbackLocked() []*lessorv1.SessionRequest {
	var items []*lessorv1.FeedbackItem
	size := func(a *attempt) int { return a.feedback.pendingSize() }
	takeUntilFull(&s.w.mu.outbox.feedback, s.budget(), size, func(a *attempt) {
		a.feedbackQueued = false
		items = appendFeedback(items, a, false)
	})
	return s.feedbackFramesLocked(items)
}

// feedbackFramesLocked returns frames of the items: one, unless they are too many for that. Those
// of one attempt may be, if it has a large buffer of tiny chunks.
func (s *session) feedbackFramesLocked(items []*lessorv1.FeedbackItem) (frames []*lessorv1.SessionRequest) {
	for len(items) > 0 {
		n := itemsOfFrame(items)
		frames = append(frames, s.frameLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Feedback{
			Feedback: &lessorv1.Feedback{Items: items[:n]},
		}}))
		items = items[n:]
	}
	return frames
}

// itemsOfFrame returns how many of the items the coordinator takes in one frame.
func itemsOfFrame(items []*lessorv1.FeedbackItem) int {
	entries := 0
	for n, item := range items[:min(len(items), maxItems)] {
		if entries += 1 + len(item.GetChunks()); entries > maxEntries {
			return n
		}
	}
	return min(len(items), maxItems)
}

// appendFeedback appends the unsent feedback of a to items; ends: it is the last.
func appendFeedback(items []*lessorv1.FeedbackItem, a *attempt, ends bool) []*lessorv1.FeedbackItem {
	for _, item := range a.feedback.take(ends) {
		item.TaskId, item.LeaseId = a.task.ID, a.leaseID
		items = append(items, item)
	}
	return items
}

func (s *session) goodbyeLocked(now time.Time) *lessorv1.SessionRequest {
	return s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Goodbye{
		Goodbye: &lessorv1.Goodbye{Reason: clip(s.w.mu.drain.reason, maxReason)},
	}}, now)
}

// budget is how many bytes of items one frame may have; a single item may be larger.
func (s *session) budget() int { return s.w.mu.maxMessage / 4 }

// takeUntilFull removes items from the front of the queue and passes them to use, until the frame
// is full.
func takeUntilFull[T any](queue *[]T, budget int, size func(T) int, use func(T)) {
	n := 0
	for ; n < min(len(*queue), maxItems); n++ {
		item := (*queue)[n]
		if budget -= size(item); budget < 0 && n > 0 {
			break
		}
		use(item)
	}
	*queue = slices.Delete(*queue, 0, n)
}
