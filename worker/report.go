package worker

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/wire"
)

// report is a Start or an outcome that waits for its verdict. Every try sends it unchanged (K5).
type report struct {
	a    *attempt
	item *lessorv1.Report
	// size is the approximate size of item, in bytes.
	size int
	// seq is the order in which reports were queued, which is also their order after a broken
	// stream.
	seq uint64
	// tries is how often the report was sent.
	tries int
	// suspect: a frame with it was refused, or may be the reason why a stream broke: a frame was
	// too large, or the coordinator failed at it. From then on the report gets a frame of its own,
	// so that reports that only shared the frame are not lost with it.
	suspect bool
	// oversize: a frame was refused as too large, and it can only be the one that had r alone.
	oversize bool
}

// isOutcome reports whether r ends its attempt.
func (r *report) isOutcome() bool { return r.item.GetStart() == nil }

// obsolete reports whether r must not be sent any more: its attempt has ended; or r is a Start, and
// the attempt has lapsed, which a Start would renew, or has an outcome, which says when the attempt
// began, or was asked to stop. In the last case an older coordinator, which does not know begun,
// would end the lease at a first Start (T7), and with that the grace to stop.
func (r *report) obsolete() bool {
	return r.a.phase == over || (!r.isOutcome() && (r.a.phase != executing || r.a.cancelled != nil))
}

// outbox is what waits to be sent. It survives a broken stream. Its size is limited by the number
// of attempts: each has at most two reports, one heartbeat and one feedback in it, and is once
// among starts. Each dispatched lease is refused at most once. Each operation on a package has at
// most a few events.
type outbox struct {
	refusals []*lessorv1.Error
	// events tell of packages, in this order.
	events []*lessorv1.PkgEvent

	// starts are attempts that have begun since the last lull ended. lullEnds is when the Starts of
	// those that still execute are sent; zero if nothing waits for that.
	starts   []*attempt
	lullEnds time.Time

	reports  []*report
	nextSeq  uint64
	beats    []*attempt
	feedback []*attempt
}

// queueReportLocked makes the next frame carry r.
func (w *Worker) queueReportLocked(r *report) {
	r.seq = w.mu.outbox.nextSeq
	w.mu.outbox.nextSeq++
	w.mu.outbox.reports = append(w.mu.outbox.reports, r)
	w.wakeWriter()
}

// replaceIfTooLargeLocked replaces an outcome that is too large for a frame by a failure. Sending
// the outcome would break the stream, and so affect everything else on it.
func (w *Worker) replaceIfTooLargeLocked(r *report) *report {
	r.size = wire.Size(r.item)
	if room := w.mu.maxMessage - frameOverhead; r.size > room {
		return w.replacedLocked(r, fmt.Sprintf("at most %d fit into a message: %s", room, w.messageLimitLocked()))
	}
	return r
}

// messageLimitLocked says whose limit the size of a message is.
func (w *Worker) messageLimitLocked() string {
	if w.mu.maxMessage < w.cfg.MaxMessageBytes {
		return fmt.Sprintf("the coordinator reads at most %d bytes", w.mu.maxMessage)
	}
	return fmt.Sprintf("Config.MaxMessageBytes of the worker is %d", w.mu.maxMessage)
}

// replacedLocked returns the failure in place of an outcome that is too large, and logs it: the
// handler knows nothing of it.
func (w *Worker) replacedLocked(r *report, why string) *report {
	failed := r.a.unreportable(Configuration, fmt.Sprintf("it has %d bytes, and %s", r.size, why))
	failed.size = itemOverhead
	w.deferLocked(func() { r.a.logFailure(failed.item.GetFail().GetError(), nil) })
	return failed
}

// maxMessage returns the size of the largest frame that is sent, in bytes.
func (w *Worker) maxMessage() int {
	w.lock()
	defer w.unlock()
	return w.mu.maxMessage
}

// handleVerdictLocked processes the verdict on a report that was sent at the given time.
func (w *Worker) handleVerdictLocked(r *report, sent time.Time, v *lessorv1.ReportVerdict) {
	switch {
	case r.a.phase == over:
	case !r.isOutcome():
		if _, rejected := errors.AsType[*RejectedError](w.handleAnswerLocked(r.a, sent, v)); rejected {
			w.queueBeatLocked(r.a) // the Start has renewed nothing
		}
	default:
		w.handleOutcomeVerdictLocked(r, v)
	}
}

// handleOutcomeVerdictLocked ends an attempt, whatever the verdict on its outcome is (K1-K3). There
// is one exception: if the content of the outcome was refused, so that the lease is still live (V1,
// V11), a failure is reported in its place.
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
		why := strings.TrimSuffix(v.GetDetail(), "; the lease stays live") // until this report ends it
		w.queueReportLocked(w.replaceIfTooLargeLocked(a.unreportable(category, joinReason("rejected", v.GetReason(), why))))
		return
	}
	w.endLocked(a)
}

// refusedContent reports whether v refuses the content of the report, not the right to report.
func refusedContent(v *lessorv1.ReportVerdict) bool {
	return v.GetVerdict() == lessorv1.Verdict_VERDICT_REJECTED &&
		(v.GetReason() == lessorv1.Reason_REASON_RESULT_TOO_LARGE ||
			v.GetReason() == lessorv1.Reason_REASON_INVALID_REQUEST)
}

// retryDelay returns how long to wait before something is sent again that was sent the given number
// of times.
type retryDelay func(tries int) time.Duration

// noDelay is the retryDelay on a new stream, because opening that stream has already taken time.
func noDelay(int) time.Duration { return 0 }

// retryAfter is the retryDelay on the same stream: the wait that the coordinator asks for, plus a
// growing wait with jitter.
func (w *Worker) retryAfter(asked *durationpb.Duration) retryDelay {
	return func(tries int) time.Duration {
		return asked.AsDuration() + backoffWait(tries, w.cfg.MinBackoff, w.cfg.MaxBackoff)
	}
}

// retryLocked queues r again, unless it was sent often enough (K5). An outcome is not given up
// while its lease may be live, since the work is done, and is not lost if the coordinator recovers
// in time; but a suspect is, because it may break stream after stream.
func (w *Worker) retryLocked(r *report, why string, delay retryDelay) {
	switch often := r.tries >= w.cfg.ReportTries; {
	case r.obsolete():
	case r.oversize: // a failure, with its cause, is more use than another attempt, which would end the same way
		w.queueReportLocked(w.replacedLocked(r, "a message with it alone was refused as too large"))
	case often && !r.isOutcome():
		// A Start may be missing (V19); heartbeats renew the lease.
	case often && (r.suspect || r.a.lease.left(time.Now()) <= 0):
		w.giveUpReportLocked(r.a, why)
	default:
		w.afterDelayLocked(delay(r.tries), func() { w.requeueLocked(r) })
	}
}

// retryFrameLocked queues the reports of a frame again.
func (w *Worker) retryFrameLocked(f *sentFrame, why string, delay retryDelay) {
	for _, r := range f.reports {
		w.retryLocked(r, why, delay)
	}
}

// suspect marks the reports of a frame.
func (f *sentFrame) suspect() {
	for _, r := range f.reports {
		r.suspect = true
	}
}

// size returns the approximate size of a frame of reports, in bytes.
func (f *sentFrame) size() (sum int) {
	for _, r := range f.reports {
		sum += r.size
	}
	return sum
}

// afterDelayLocked calls f after the wait, with the mutex held.
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

// requeueLocked inserts r in the queue in the order of seq.
func (w *Worker) requeueLocked(r *report) {
	queue := &w.mu.outbox.reports
	at, _ := slices.BinarySearchFunc(*queue, r, func(a, b *report) int { return cmp.Compare(a.seq, b.seq) })
	*queue = slices.Insert(*queue, at, r)
	w.wakeWriter()
}

// giveUpReportLocked ends an attempt whose outcome got no verdict; its lease expires.
func (w *Worker) giveUpReportLocked(a *attempt, why string) {
	err := undeliveredError(a, why)
	if w.mu.drain.requested {
		w.addResultLocked(err)
	} else {
		w.deferLocked(func() {
			a.log().Error("report given up", "error", err)
			w.callOnError(err)
		})
	}
	w.endLocked(a)
}

func undeliveredError(a *attempt, why string) error {
	return fmt.Errorf("%w: task %s attempt %d: %s", ErrUndelivered, a.task.ID, a.task.Attempt, why)
}
