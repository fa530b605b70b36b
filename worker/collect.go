package worker

import (
	"slices"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// batch is what the writer sends next.
type batch struct {
	frames []*lessorv1.SessionRequest
	// last: the final frame of the session is among them.
	last bool
	// due is when there is something to send again by then, if anything waits.
	due   time.Time
	waits bool
}

// collect takes what waits off the outbox and makes frames of it: at most one of each kind, so that much of one kind
// does not hold up the others. With gauges there is a heartbeat among them, else only if a lease wants it. An error says that the stream is of no use any more.
//
// There is no queue of frames. What waits is kept as facts, which merge while the stream is slow: a worker with n
// attempts never holds more than n heartbeats, 2n reports and n bounded pieces of output.
func (s *session) collect(now time.Time, gauges map[string]float64) (out batch, err error) {
	w := s.w
	w.lock()
	defer w.unlock()
	frames, err := s.resendsLocked(now)
	if err != nil {
		return batch{}, err
	}
	for _, f := range s.control {
		frames = append(frames, s.sequencedLocked(f, now))
	}
	s.control = nil
	frames = append(frames, s.capacityAndDrainLocked(now)...)
	reports := s.reportsLocked(now)
	frames = append(frames, reports...) // before the heartbeats: a Start comes before what its handler asks
	frames = append(frames, s.heartbeatLocked(now, gauges)...)
	if len(reports) == 0 && !now.Before(s.feedbackPausedUntil) {
		frames = append(frames, s.feedbackLocked()...)
	}
	out.last = w.drained.Err() != nil
	if out.last {
		frames = append(frames, s.goodbyeLocked(now))
	}
	out.frames = s.acknowledgeLocked(frames)
	out.due, out.waits = s.link.due()
	return out, nil
}

// resendsLocked sends what has waited too long for its acknowledgement, and asks once more for what is missing.
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

// acknowledgeLocked lets the frames acknowledge what was taken. A bare acknowledgement is not sequenced: nobody would
// acknowledge it.
func (s *session) acknowledgeLocked(frames []*lessorv1.SessionRequest) []*lessorv1.SessionRequest {
	alone := len(frames) == 0
	frames = s.link.acknowledge(frames)
	if alone && len(frames) > 0 {
		s.frameLocked(frames[0])
	}
	return frames
}

// capacityAndDrainLocked tells of a changed capacity and of a drain.
func (s *session) capacityAndDrainLocked(now time.Time) (frames []*lessorv1.SessionRequest) {
	if c := s.w.capacityLocked(); !c.equal(s.declaredCapacity) {
		frames = append(frames, s.sequencedLocked(c.changeFrame(s.declaredCapacity), now))
		s.declaredCapacity = c
	}
	if d := s.w.mu.drain; d.asked && !s.drainSent {
		s.drainSent = true
		frames = append(frames, s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Drain{
			Drain: &lessorv1.Drain{Reason: clip(d.reason, maxReason), Deadline: timestamppb.New(d.until.Add(s.w.cfg.StopTimeout))},
		}}, now))
	}
	return frames
}

// heartbeatLocked renews the leases that want it. Without any it says no more than that the worker lives and how it is, and
// only when that is due. Without gauges those of before stand.
func (s *session) heartbeatLocked(now time.Time, gauges map[string]float64) []*lessorv1.SessionRequest {
	var leases []*lessorv1.HeartbeatRequest
	var beats []sentBeat
	size := func(a *attempt) int { return len(a.next.checkpoint) + a.feedback.newestSize() + itemOverhead }
	takeUntilFull(&s.w.mu.outbox.beats, s.budget(), size, func(a *attempt) {
		a.beatQueued = false
		if a.held() {
			leases = append(leases, a.heartbeat())
			beats = append(beats, sentBeat{a: a, renewal: a.next})
			a.next = renewal{}
		}
	})
	if len(leases) == 0 && gauges == nil {
		return nil
	}
	f := s.frameLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Heartbeat{Heartbeat: &lessorv1.WorkerHeartbeat{
		Healthy: !s.w.mu.drain.asked,
		Metrics: gauges,
		Leases:  leases,
	}}})
	if len(leases) > 0 {
		s.sent[f.GetId()] = &sentFrame{id: f.GetId(), at: now, since: now, beats: beats}
	}
	return []*lessorv1.SessionRequest{f}
}

// reportsLocked merges the reports that wait into one frame. The last output of the attempts that they end goes out
// before them: feedback of a lease that has ended is dropped.
func (s *session) reportsLocked(now time.Time) (frames []*lessorv1.SessionRequest) {
	var reports []*report
	var items []*lessorv1.Report
	var tails []*lessorv1.FeedbackItem
	size := func(r *report) int { return r.size + r.a.feedback.pendingSize() }
	takeUntilFull(&s.w.mu.outbox.reports, s.budget(), size, func(r *report) {
		if r.obsolete() {
			return
		}
		if r.isOutcome() {
			tails = appendFeedback(tails, r.a)
		}
		r.tries++
		reports, items = append(reports, r), append(items, r.item)
	})
	if len(tails) > 0 {
		frames = append(frames, s.feedbackFrameLocked(tails))
	}
	if len(items) > 0 {
		f := s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Reports{
			Reports: &lessorv1.Reports{Reports: items},
		}}, now)
		s.sent[f.GetId()] = &sentFrame{id: f.GetId(), seq: f.GetSeq(), at: now, since: now, reports: reports}
		frames = append(frames, f)
	}
	return frames
}

// feedbackLocked sends progress and output. It is not answered, and not sent again.
func (s *session) feedbackLocked() []*lessorv1.SessionRequest {
	var items []*lessorv1.FeedbackItem
	size := func(a *attempt) int { return a.feedback.pendingSize() }
	takeUntilFull(&s.w.mu.outbox.feedback, s.budget(), size, func(a *attempt) {
		a.feedbackQueued = false
		items = appendFeedback(items, a)
	})
	if len(items) == 0 {
		return nil
	}
	return []*lessorv1.SessionRequest{s.feedbackFrameLocked(items)}
}

func (s *session) feedbackFrameLocked(items []*lessorv1.FeedbackItem) *lessorv1.SessionRequest {
	return s.frameLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Feedback{
		Feedback: &lessorv1.Feedback{Items: items},
	}})
}

func (s *session) goodbyeLocked(now time.Time) *lessorv1.SessionRequest {
	return s.sequencedLocked(&lessorv1.SessionRequest{Payload: &lessorv1.SessionRequest_Goodbye{
		Goodbye: &lessorv1.Goodbye{Reason: clip(s.w.mu.drain.reason, maxReason)},
	}}, now)
}

// budget is how many bytes go into one frame; a single item may have more.
func (s *session) budget() int { return s.w.cfg.MaxMessageBytes / 4 }

// takeUntilFull uses items off the front of the queue until a frame is full.
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
