package worker

import (
	"context"
	"fmt"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// renewal is what one heartbeat of one lease carries beside the lease, and who waits for its answer.
type renewal struct {
	checkpoint []byte
	// waiters take one answer each; their channels have room for it.
	waiters []chan error
}

// answerWaiters answers the waiters.
func (r *renewal) answerWaiters(err error) {
	for _, c := range r.waiters {
		c <- err
	}
	*r = renewal{}
}

// merge puts an older renewal, which got no answer, back under a newer one: of two checkpoints the newer one counts.
func (r *renewal) merge(older renewal) {
	if r.checkpoint == nil {
		r.checkpoint = older.checkpoint
	}
	r.waiters = append(older.waiters, r.waiters...)
}

// beatAndWait sends a heartbeat of a's lease as soon as the stream takes it, with a checkpoint where one is given, and waits
// for the answer. It is repeated over broken streams for as long as the lease lives.
func (w *Worker) beatAndWait(ctx context.Context, a *attempt, checkpoint []byte) error {
	done := make(chan error, 1)
	lost, err := w.requestBeat(a, renewal{checkpoint: checkpoint, waiters: []chan error{done}})
	if err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-lost:
		return w.checkHeld(a)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// requestBeat queues a renewal, and returns what is closed when no answer will come any more.
func (w *Worker) requestBeat(a *attempt, r renewal) (lost <-chan struct{}, err error) {
	w.lock()
	defer w.unlock()
	if err := a.checkHeld(); err != nil {
		return nil, err
	}
	r.merge(a.next)
	a.next = r
	w.queueBeatLocked(a)
	return a.lostChanLocked(), nil
}

// checkHeld is what became of a by now.
func (w *Worker) checkHeld(a *attempt) error {
	w.lock()
	defer w.unlock()
	return a.checkHeld()
}

// checkConfirmed judges a lease that was answered as live a moment ago.
func (w *Worker) checkConfirmed(a *attempt, d time.Duration) error {
	w.lock()
	defer w.unlock()
	if err := a.checkHeld(); err != nil {
		return err
	}
	if a.cancelled {
		return &StopError{Err: ErrCancelled, Reason: lessorv1.Reason_REASON_TASK_CANCELLED, Detail: a.cancelReason}
	}
	if left := a.lease.left(time.Now()); left < d {
		return fmt.Errorf("%w: %v left, %v required", ErrLeaseShort, left, d)
	}
	return nil
}

// heartbeat is the item that renews a's lease. Progress and metrics go along: feedback may have been dropped.
func (a *attempt) heartbeat() *lessorv1.HeartbeatRequest {
	hb := &lessorv1.HeartbeatRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		Checkpoint:  a.next.checkpoint,
	}
	if !a.bare {
		hb.Progress, hb.Metrics = a.feedback.newest()
	}
	return hb
}

// bareBeatLocked renews a's lease with nothing else in the heartbeat, once, after one was rejected for what it carried:
// neither a checkpoint nor a progress may cost the lease.
func (w *Worker) bareBeatLocked(a *attempt) {
	if !a.bare {
		a.bare = true
		w.queueBeatLocked(a)
	}
}

// queueBeatLocked lets the next frame renew a's lease.
func (w *Worker) queueBeatLocked(a *attempt) {
	if a.beatQueued || !a.held() {
		return
	}
	a.beatQueued = true
	w.mu.outbox.beats = append(w.mu.outbox.beats, a)
	w.wakeWriter()
}

// scheduleBeatLocked says when the next heartbeat falls due. The previous one may still be unanswered: it is idempotent (V18).
func (w *Worker) scheduleBeatLocked(a *attempt, now time.Time) {
	a.beatAt = now.Add(untilBeat(now.Sub(w.startedAt), a.interval))
}

// untilBeat is the wait from now, told as the age of the worker, to the last shared instant within interval. It is more
// than interval less one part of beatsPerInterval, and at most interval.
func untilBeat(age, interval time.Duration) time.Duration {
	part := max(interval/beatsPerInterval, 1)
	return (age + interval).Truncate(part) - age
}

// retryBeatsLocked puts back the renewals of a frame.
func (w *Worker) retryBeatsLocked(f *sentFrame, delay retryDelay) {
	for _, b := range f.beats {
		w.retryBeatLocked(b.a, b.renewal, delay)
	}
}

// retryBeatLocked puts back a renewal that got no verdict; its bound is the lease's end (K5).
func (w *Worker) retryBeatLocked(a *attempt, r renewal, delay retryDelay) {
	if err := a.checkHeld(); err != nil {
		r.answerWaiters(err)
		return
	}
	a.next.merge(r)
	w.afterDelayLocked(delay(0), func() { w.queueBeatLocked(a) })
}
