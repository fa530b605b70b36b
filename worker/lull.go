package worker

import "time"

// lull is how long a Start, or an acknowledgement that the coordinator asked for, waits for
// something else to share its frame with. A handler that returns meanwhile needs no Start: its
// outcome says when it began. Measured with handlers that do nothing: a quarter more tasks a
// second, for a quarter less CPU in the coordinator.
const lull = time.Millisecond

// wakeWriterSoonLocked wakes the writer at the end of a lull.
func (w *Worker) wakeWriterSoonLocked(now time.Time) {
	if w.mu.outbox.lullEnds.IsZero() {
		w.mu.outbox.lullEnds = now.Add(lull)
		time.AfterFunc(lull, w.wakeWriter)
	}
}

// endLullLocked reports whether the lull is over, or a heartbeat or feedback is about to be sent,
// which must come after the Start of its attempt. It then queues the Starts of the attempts that
// still execute.
func (s *session) endLullLocked(now time.Time) (over bool) {
	w, o := s.w, &s.w.mu.outbox
	feedback := len(o.feedback) > 0 && !now.Before(s.feedbackPausedUntil)
	if len(o.beats) == 0 && !feedback && (o.lullEnds.IsZero() || now.Before(o.lullEnds)) {
		return false
	}
	for _, a := range o.starts {
		if a.phase == executing { // most have their outcome already
			w.queueReportLocked(a.start())
		}
	}
	clear(o.starts)
	o.starts, o.lullEnds = o.starts[:0], time.Time{}
	return true
}
