package worker

import (
	"context"
	"errors"
	"fmt"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// renewal is what the heartbeat of one lease carries, and who waits for its answer.
type renewal struct {
	checkpoint []byte
	// number is the place of the checkpoint in the order of those of the attempt; 0 without one.
	number uint64
	// waiters get one answer each; their channels have room for it, so that sending never blocks.
	waiters []waiter
	// bare: it carries nothing that could be rejected.
	bare bool
}

// waiter waits for the answer to a renewal. number is that of its checkpoint, which a newer one may
// have replaced; 0 if it has none.
type waiter struct {
	answer chan error
	number uint64
}

// renewals is what the heartbeats of one attempt have to carry; see take.
type renewals struct {
	// next is what the next heartbeat carries. queued: the attempt waits in the outbox for that
	// heartbeat. bare: that heartbeat carries only what cannot be rejected.
	next         renewal
	queued, bare bool
	// checkpointSent: a checkpoint was sent and has no answer yet.
	checkpointSent bool
	// checkpoints is how many checkpoints the handler has asked to save, and saved the number of
	// the newest that was saved.
	checkpoints, saved uint64
}

// errReplaced is the answer to a waiter whose checkpoint was not sent, because a newer one replaced
// it, which was rejected.
var errReplaced = errors.New("the checkpoint was not sent")

// answerWaiters sends err to all waiters.
func (r *renewal) answerWaiters(err error) {
	_, rejected := errors.AsType[*RejectedError](err)
	for _, w := range r.waiters {
		if rejected && w.number > 0 && w.number != r.number {
			w.answer <- errReplaced
			continue
		}
		w.answer <- err
	}
	*r = renewal{}
}

// merge adds another renewal, which got no answer, to r. Of two checkpoints, the newer one stays.
func (r *renewal) merge(other renewal) {
	if other.number > r.number {
		r.checkpoint, r.number = other.checkpoint, other.number
	}
	r.waiters = append(other.waiters, r.waiters...)
}

// beatAndWait sends a heartbeat of a's lease as soon as the stream allows, with a checkpoint if
// there is one, and waits for the answer. If the stream breaks the heartbeat is sent again, for as
// long as the lease lives.
func (w *Worker) beatAndWait(ctx context.Context, a *attempt, checkpoint []byte) error {
	var number uint64
	if checkpoint != nil {
		number = w.numberCheckpoint(a)
	}
	for {
		done := make(chan error, 1)
		if err := w.requestBeat(a, renewal{checkpoint: checkpoint, number: number, waiters: []waiter{{done, number}}}); err != nil {
			return err
		}
		if err := w.awaitAnswer(ctx, a, done); !errors.Is(err, errReplaced) {
			return err
		}
	}
}

// awaitAnswer waits for the answer to a heartbeat of a, or until none can come any more.
func (w *Worker) awaitAnswer(ctx context.Context, a *attempt, answer <-chan error) error {
	select {
	case err := <-answer:
		return err
	case <-w.lostChan(a):
		return w.checkHeld(a)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// lostChan is attempt.lostChanLocked, with the mutex held.
func (w *Worker) lostChan(a *attempt) <-chan struct{} {
	w.lock()
	defer w.unlock()
	return a.lostChanLocked()
}

// numberCheckpoint returns the number of the next checkpoint of an attempt.
func (w *Worker) numberCheckpoint(a *attempt) uint64 {
	w.lock()
	defer w.unlock()
	a.renewals.checkpoints++
	return a.renewals.checkpoints
}

// requestBeat queues a renewal.
func (w *Worker) requestBeat(a *attempt, r renewal) error {
	w.lock()
	defer w.unlock()
	if err := a.checkHeld(); err != nil {
		return err
	}
	r.merge(a.renewals.next)
	a.renewals.next = r
	w.queueBeatLocked(a)
	return nil
}

// checkHeld is attempt.checkHeld, with the mutex held.
func (w *Worker) checkHeld(a *attempt) error {
	w.lock()
	defer w.unlock()
	return a.checkHeld()
}

// checkConfirmed returns what Task.Confirm returns after the coordinator has said that the lease is
// live.
func (w *Worker) checkConfirmed(a *attempt, d time.Duration) error {
	w.lock()
	defer w.unlock()
	if err := a.checkHeld(); err != nil {
		return err
	}
	if a.cancelled != nil {
		return a.cancelled
	}
	// in fake time, the answer may take none, and a test must not pass where nothing else does
	if ttl := a.task.HeartbeatTimeout; d >= ttl {
		return fmt.Errorf("%w: %v required, but the heartbeat_timeout of the task is %v", ErrLeaseShort, d, ttl)
	}
	if left := a.lease.left(time.Now()); left < d {
		return fmt.Errorf("%w: %v left, %v required", ErrLeaseShort, left, d)
	}
	return nil
}

// take returns what a heartbeat carries that is sent now. A checkpoint stays in next if the
// heartbeat has to be bare, or if the checkpoint before it has no answer yet: if that one then had
// to be sent again, it would replace the newer one. A checkpoint that is older than the one that
// was saved is not sent.
func (rs *renewals) take() renewal {
	r := rs.next
	bare := rs.bare
	rs.bare = false
	if r.number < rs.saved { // it was replaced by one that was rejected, and a newer one was saved since
		r.checkpoint = nil
	}
	if r.checkpoint != nil && (rs.checkpointSent || bare) {
		return renewal{bare: bare}
	}
	rs.checkpointSent = rs.checkpointSent || r.checkpoint != nil
	rs.next = renewal{}
	r.bare = bare
	return r
}

// answeredLocked notes that a renewal got its answer, and queues the checkpoint that waited for it,
// if there is one.
func (w *Worker) answeredLocked(a *attempt, r renewal) {
	if r.checkpoint != nil {
		a.renewals.checkpointSent = false
	}
	if a.renewals.next.checkpoint != nil && !a.renewals.checkpointSent {
		w.queueBeatLocked(a)
	}
}

// heartbeat returns the item that renews a's lease. It repeats the newest progress and metrics,
// because feedback may have been dropped.
func (a *attempt) heartbeat(r renewal) *lessorv1.HeartbeatRequest {
	hb := &lessorv1.HeartbeatRequest{
		TaskId:      a.task.ID,
		LeaseId:     a.leaseID,
		Attempt:     a.task.Attempt,
		WorkerId:    a.w.cfg.Name,
		Traceparent: a.task.Traceparent,
		Checkpoint:  r.checkpoint,
	}
	if !r.bare {
		hb.Progress, hb.Metrics = a.feedback.takeNewest()
	}
	return hb
}

// bareBeatLocked queues a heartbeat without checkpoint, progress and metrics. It follows a
// heartbeat that was rejected for what it carried, and so has renewed nothing: the lease must not
// be lost because of that.
func (w *Worker) bareBeatLocked(a *attempt) {
	a.renewals.bare = true
	w.queueBeatLocked(a)
}

// queueBeatLocked makes the next frame renew a's lease.
func (w *Worker) queueBeatLocked(a *attempt) {
	if a.renewals.queued || !a.held() {
		return
	}
	a.renewals.queued = true
	w.mu.outbox.beats = append(w.mu.outbox.beats, a)
	w.wakeWriter()
}

// scheduleBeatLocked sets when the next heartbeat is due. The last heartbeat may still be
// unanswered, because heartbeats are idempotent (V18).
func (w *Worker) scheduleBeatLocked(a *attempt, now time.Time) {
	a.beatAt = now.Add(untilBeat(now.Sub(w.startedAt), a.interval))
}

// untilBeat returns how long to wait for the last shared instant within interval. age is how long
// ago the worker started. The wait is at most interval, and more than interval minus one part; an
// interval has beatsPerInterval parts.
func untilBeat(age, interval time.Duration) time.Duration {
	part := max(interval/beatsPerInterval, 1)
	return (age + interval).Truncate(part) - age
}

// retryBeatsLocked queues the renewals of a frame again.
func (w *Worker) retryBeatsLocked(f *sentFrame, delay retryDelay) {
	for _, b := range f.beats {
		w.retryBeatLocked(b.a, b.renewal, delay)
	}
}

// retryBeatLocked queues a renewal that got no verdict again, for as long as the lease lives (K5).
func (w *Worker) retryBeatLocked(a *attempt, r renewal, delay retryDelay) {
	if err := a.checkHeld(); err != nil {
		r.answerWaiters(err)
		return
	}
	if r.checkpoint != nil {
		a.renewals.checkpointSent = false
	}
	a.renewals.next.merge(r)
	w.afterDelayLocked(delay(0), func() { w.queueBeatLocked(a) })
}
