package pool

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

const (
	starting = lessorv1.PoolWorkerState_POOL_WORKER_STATE_STARTING
	ready    = lessorv1.PoolWorkerState_POOL_WORKER_STATE_READY
	draining = lessorv1.PoolWorkerState_POOL_WORKER_STATE_DRAINING
	failed   = lessorv1.PoolWorkerState_POOL_WORKER_STATE_FAILED
	waiting  = lessorv1.PoolWorkerState_POOL_WORKER_STATE_WAITING
	stopped  = lessorv1.PoolWorkerState_POOL_WORKER_STATE_STOPPED
)

// answerWait is how long a process that says that it failed has to read the answer before it gets
// SIGTERM, which may end the call. Nobody waits for a process that does not read.
const answerWait = 250 * time.Millisecond

// worker is one worker of a pool: a process, and after its end the next one.
type worker struct {
	id      string
	gpu     *uint32
	config  *Entry
	command command
	launch  launch
	log     *slog.Logger
	counts  *counts

	// failure wakes the goroutine that supervises the process when the process says that it failed.
	// It then looks at the state, so what is left of the process before does no harm. There is room
	// for one.
	failure chan struct{}

	mu           sync.Mutex
	view         lessorv1.PoolWorker          // what the lists show
	readySince   time.Time                    // of this process; zero: it was never ready
	notification *lessorv1.NotifyReadyRequest // what this process has said; nil: nothing
}

// run keeps a process running until ctx ends, and then drains it; once kill has ended, it no longer
// waits. It returns after the last process.
func (w *worker) run(ctx, kill context.Context) {
	waits := backoff{least: w.config.RestartBackoff, most: w.config.RestartBackoffMax}
	for ctx.Err() == nil {
		w.noteStarting()
		end := w.launch(w.command, w.noteStarted, func(p running) { w.supervise(ctx, kill, p) })
		again := ctx.Err() == nil && (!end.ok || w.state() == failed || w.config.Restart == Always)
		if !again {
			w.noteStopped(end)
			return
		}
		wait := waits.next(w.readyFor())
		w.noteWaiting(end, wait)
		timer := time.NewTimer(wait)
		select {
		case <-timer.C:
		case <-ctx.Done():
			timer.Stop()
		}
	}
	w.setState(stopped)
}

// supervise decides when a running process has to end, and returns once it has.
func (w *worker) supervise(ctx, kill context.Context, p running) {
	var late, answered <-chan time.Time
	if w.config.ReadyTimeout > 0 {
		timer := time.NewTimer(w.config.ReadyTimeout)
		defer timer.Stop()
		late = timer.C
	}
	for {
		select {
		case <-p.exited():
			return
		case <-late:
			if w.late() {
				w.finish(kill, p)
				return
			}
		case <-w.failure:
			if w.state() == failed {
				answered = time.After(answerWait)
			}
		case <-answered:
			w.finish(kill, p)
			return
		case <-ctx.Done():
			w.noteDraining()
			w.finish(kill, p)
			return
		}
	}
}

// finish asks a process to end, and kills it if it takes too long.
func (w *worker) finish(kill context.Context, p running) {
	p.terminate()
	timer := time.NewTimer(w.config.DrainTimeout)
	defer timer.Stop()
	select {
	case <-p.exited():
		return
	case <-timer.C:
		w.log.Warn("killing a worker that did not end in time", "drain_timeout", w.config.DrainTimeout)
	case <-kill.Done():
	}
	p.kill()
	<-p.exited()
}

// noteStarting says that a new process is about to start.
func (w *worker) noteStarting() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setLocked(starting)
	w.notification, w.readySince = nil, time.Time{}
	w.view.Starts++
	w.counts.starts.WithLabelValues(w.config.ID).Inc()
}

// noteStarted says that the process runs.
func (w *worker) noteStarted(pid int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.view.Pid = uint32(pid) //nolint:gosec // process ids are positive
	w.log.Info("worker started", "pid", pid)
	if w.config.ReadyTimeout == 0 && w.view.GetState() == starting { // else it has notified already
		w.becomeReadyLocked()
	}
}

// becomeReadyLocked notes that the process is ready.
func (w *worker) becomeReadyLocked() {
	w.setLocked(ready)
	w.readySince = time.Now()
	w.counts.ready.WithLabelValues(w.config.ID).Inc()
}

// late notes that the time to become ready is over, and returns whether the process has to end. One
// that has said at the last moment that it is ready stays.
func (w *worker) late() bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view.GetState() != starting {
		return false
	}
	w.failLocked(fmt.Sprintf("it did not report ready within %v", w.config.ReadyTimeout))
	return true
}

// failLocked notes that the process has to end, for a reason that the list shows.
func (w *worker) failLocked(reason string) {
	w.setLocked(failed)
	w.view.LastFailure = reason
	w.counts.failed.WithLabelValues(w.config.ID).Inc()
	w.log.Warn("worker failed", "reason", reason)
}

// noteDraining says that the process is asked to finish.
func (w *worker) noteDraining() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view.GetState() != failed {
		w.setLocked(draining)
	}
}

// noteWaiting says that the process has ended, and that the next one follows.
func (w *worker) noteWaiting(end ending, wait time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.view.GetState() != failed { // else the list shows the reason
		if !end.ok {
			w.counts.failed.WithLabelValues(w.config.ID).Inc()
		}
		w.view.LastFailure = end.text
	}
	w.goneLocked(waiting)
	w.view.NextStartAt = timestamppb.New(time.Now().Add(wait))
	w.log.Warn("worker ended; it will be started again", "how", end.text, "wait", wait)
}

// noteStopped says that the process has ended, and that no other follows.
func (w *worker) noteStopped(end ending) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.goneLocked(stopped)
	w.log.Info("worker stopped", "how", end.text)
}

// goneLocked says that the process is no more, and so not what it offered either.
func (w *worker) goneLocked(s lessorv1.PoolWorkerState) {
	w.view.Pid, w.view.Endpoint, w.view.VramUsedBytes, w.view.Capabilities = 0, "", 0, nil
	w.setLocked(s)
}

// readyFor returns how long the process was ready.
func (w *worker) readyFor() time.Duration {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.readySince.IsZero() {
		return 0
	}
	return time.Since(w.readySince)
}

func (w *worker) state() lessorv1.PoolWorkerState {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.view.GetState()
}

func (w *worker) setState(s lessorv1.PoolWorkerState) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.setLocked(s)
}

// setLocked enters a state.
func (w *worker) setLocked(s lessorv1.PoolWorkerState) {
	w.view.State, w.view.StateSince, w.view.NextStartAt = s, timestamppb.Now(), nil
}

// notifyReady takes what a process says of itself (P2). The error is a gRPC status:
// FAILED_PRECONDITION, or ALREADY_EXISTS if it contradicts what was said before (P3).
func (w *worker) notifyReady(n *lessorv1.NotifyReadyRequest) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	state := w.view.GetState()
	drains := n.GetStatus() == lessorv1.WorkerStatus_WORKER_STATUS_DRAINING
	switch {
	case state == waiting || state == stopped:
		return status.Errorf(codes.FailedPrecondition, "worker_id: no process of %q runs", w.id)
	case w.notification != nil && proto.Equal(w.notification, n): // the same again
		return nil
	case drains && (state == draining || state == failed): // it is being stopped, and does as it is told
		return nil
	case state == draining: // it may have said so itself
		return status.Errorf(codes.FailedPrecondition, "worker_id: %q drains, and cannot become ready again", w.id)
	case state == failed:
		return status.Errorf(codes.FailedPrecondition, "worker_id: %q is being stopped", w.id)
	case drains:
		w.setLocked(draining)
		w.log.Info("worker drains")
		return nil
	case w.notification != nil:
		return status.Errorf(codes.AlreadyExists,
			"worker_id: %q has said something else before: this process did, or another one that uses its id", w.id)
	}
	w.notification = n
	w.view.Endpoint, w.view.VramUsedBytes, w.view.Capabilities = n.GetEndpoint(), n.GetVramUsedBytes(),
		n.GetCapabilities()
	if state == starting {
		w.becomeReadyLocked()
	}
	w.log.Info("worker ready", "endpoint", n.GetEndpoint(), "vram_used_bytes", n.GetVramUsedBytes())
	return nil
}

// notifyFailed takes the message of a process that cannot work.
func (w *worker) notifyFailed(message string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch w.view.GetState() {
	case waiting, stopped:
		return status.Errorf(codes.FailedPrecondition, "worker_id: no process of %q runs", w.id)
	case failed: // the same again
		return nil
	}
	if message == "" {
		message = "it said that it failed, and not why"
	}
	w.failLocked(message)
	select {
	case w.failure <- struct{}{}:
	default: // it is going to look anyway
	}
	return nil
}

// show returns what the lists show.
func (w *worker) show() *lessorv1.PoolWorker {
	w.mu.Lock()
	defer w.mu.Unlock()
	return proto.CloneOf(&w.view)
}
