package worker

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// report is a Start or an outcome on its way to a verdict. It is sent unchanged each time (K5).
type report struct {
	a    *attempt
	item *lessorv1.Report
	// size is about the item's, in bytes.
	size int
	// seq is the order in which reports were queued: a Start goes before its outcome, also after a broken stream.
	seq uint64
	// tries counts how often it was sent.
	tries int
}

// isOutcome reports whether r ends its attempt.
func (r *report) isOutcome() bool { return r.item.GetStart() == nil }

// obsolete reports whether nobody waits for r's verdict any more: its attempt has ended, or has an outcome, which says all
// that a Start does which was sent once.
func (r *report) obsolete() bool {
	return r.a.phase == over || (!r.isOutcome() && r.tries > 0 && r.a.phase == reporting)
}

// outbox is what waits for the stream, and survives it. Its size is bounded by the number of attempts: each has at most
// two reports, one heartbeat and one feedback here.
type outbox struct {
	reports  []*report
	nextSeq  uint64
	beats    []*attempt
	feedback []*attempt
}

// queueReportLocked lets the next frame carry r.
func (w *Worker) queueReportLocked(r *report) {
	r.seq = w.mu.outbox.nextSeq
	w.mu.outbox.nextSeq++
	w.mu.outbox.reports = append(w.mu.outbox.reports, r)
	w.wakeWriter()
}

// replaceIfTooLarge replaces an outcome that fits no frame: sent, it would break the stream and all that is on it.
func (w *Worker) replaceIfTooLarge(r *report) *report {
	r.size = proto.Size(r.item)
	if room := w.cfg.MaxMessageBytes - frameOverhead; r.size > room {
		r = r.a.unreportable(Configuration, fmt.Sprintf("it has %d bytes, and at most %d fit into a message", r.size, room))
		r.size = itemOverhead
	}
	return r
}

// handleVerdictLocked takes in the verdict on a report that was sent at the given time.
func (w *Worker) handleVerdictLocked(r *report, sent time.Time, v *lessorv1.ReportVerdict) {
	switch {
	case r.a.phase == over:
	case !r.isOutcome():
		_ = w.handleAnswerLocked(r.a, sent, answerOfStart(v))
	default:
		w.handleOutcomeVerdictLocked(r, v)
	}
}

// handleOutcomeVerdictLocked ends an attempt by its verdict, whatever it is (K1-K3). Only where the outcome itself was
// refused and the lease thus lives on (V1, V11), the failure to report it is reported in its place.
func (w *Worker) handleOutcomeVerdictLocked(r *report, v *lessorv1.ReportVerdict) {
	a := r.a
	w.deferLocked(func() {
		a.logVerdict(v)
		if hook := w.cfg.Hooks.OnVerdict; hook != nil {
			hook(&a.task, v)
		}
	})
	if r.item.GetComplete() != nil && refusedContent(v) {
		category := UserCode
		if v.GetReason() == lessorv1.Reason_REASON_RESULT_TOO_LARGE {
			category = Configuration
		}
		w.queueReportLocked(w.replaceIfTooLarge(a.unreportable(category, joinReason("rejected", v.GetReason(), v.GetDetail()))))
		return
	}
	w.endLocked(a)
}

// refusedContent reports whether v finds fault with what was reported, not with the right to report it.
func refusedContent(v *lessorv1.ReportVerdict) bool {
	return v.GetVerdict() == lessorv1.Verdict_VERDICT_REJECTED &&
		(v.GetReason() == lessorv1.Reason_REASON_RESULT_TOO_LARGE || v.GetReason() == lessorv1.Reason_REASON_INVALID_REQUEST)
}

// retryDelay is the wait before sending something again that has been sent tries times.
type retryDelay func(tries int) time.Duration

// noDelay is the repeat on a new stream: opening it took long enough.
func noDelay(int) time.Duration { return 0 }

// retryAfter is the repeat on the same stream: what the coordinator asks for, and a growing wait with jitter.
func (w *Worker) retryAfter(asked *durationpb.Duration) retryDelay {
	return func(tries int) time.Duration {
		return asked.AsDuration() + backoffWait(tries, w.cfg.MinBackoff, w.cfg.MaxBackoff)
	}
}

// retryLocked sends r again, unless it has been sent often enough (K5).
func (w *Worker) retryLocked(r *report, why string, delay retryDelay) {
	switch {
	case r.obsolete():
	case r.tries >= w.cfg.ReportTries && r.isOutcome():
		w.giveUpReportLocked(r.a, why)
	case r.tries >= w.cfg.ReportTries:
		// A Start may be missing (V19); heartbeats keep the lease.
	default:
		w.afterDelayLocked(delay(r.tries), func() { w.requeueLocked(r) })
	}
}

// retryFrameLocked sends the reports of a frame again.
func (w *Worker) retryFrameLocked(f *sentFrame, why string, delay retryDelay) {
	for _, r := range f.reports {
		w.retryLocked(r, why, delay)
	}
}

// afterDelayLocked calls f with the mutex held, after the wait.
func (w *Worker) afterDelayLocked(wait time.Duration, f func()) {
	if wait <= 0 {
		f()
		return
	}
	time.AfterFunc(wait, func() {
		w.lock()
		defer w.unlock()
		f()
	})
}

// requeueLocked puts r back into its old place.
func (w *Worker) requeueLocked(r *report) {
	queue := &w.mu.outbox.reports
	at, _ := slices.BinarySearchFunc(*queue, r, func(a, b *report) int { return cmp.Compare(a.seq, b.seq) })
	*queue = slices.Insert(*queue, at, r)
	w.wakeWriter()
}

// giveUpReportLocked gives an outcome up; its lease runs out by itself.
func (w *Worker) giveUpReportLocked(a *attempt, why string) {
	err := undeliveredError(a, why)
	w.deferLocked(func() {
		a.log().Error("report given up", "error", err)
		w.callOnError(err)
	})
	w.endLocked(a)
}

func undeliveredError(a *attempt, why string) error {
	return fmt.Errorf("%w: task %s attempt %d: %s", ErrUndelivered, a.task.ID, a.task.Attempt, why)
}
