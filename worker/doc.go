// Package worker is the Go SDK for programs that execute tasks of a Lessor coordinator.
//
//	conn, err := worker.Dial("127.0.0.1:7420")
//	w, err := worker.New(conn, []string{"images"}, worker.Config{})
//	w.Handle("resize", func(ctx context.Context, t *worker.Task) ([]byte, error) {
//		return resize(ctx, t.Payload)
//	})
//	err = w.Run(ctx) // until ctx ends; then what runs may finish
//
// # What a handler can rely on
//
// A worker executes; the coordinator alone decides. A handler runs under a lease, which this package renews while the
// handler runs (K4). When the lease is lost, whether the coordinator says so or this process has heard nothing for too
// long by its own monotonic clock, the handler's context ends with the cause ErrLeaseLost and its result is discarded
// (K2). The same task may then already be running elsewhere. Work inside one process cannot be recalled, so that a
// handler which changes the outside world does one of two things: it passes Task.FencingToken to a system that
// refuses older tokens, or it asks Task.Confirm right before the change.
//
// A cancelled task and a draining worker end the context too, with ErrCancelled and ErrDraining; then the lease is
// still live, and the result is still reported. Task.Lost is the end of that grace.
//
// What the handler returns becomes exactly one report; see Handler. The report is repeated unchanged, a bounded number
// of times, until there is a verdict, and never after (K1, K3, K5). A lost stream stops no handler: the worker connects
// again and goes on with the leases that still live.
//
// # How a worker stops
//
// End the context of Run, for example by a signal: no new work comes, what runs has Config.DrainTimeout to finish, its
// reports get their verdicts, and Run returns nil. An operator who drains the worker has the same done to it, and then Run
// returns ErrDraining. A coordinator that is restarted meanwhile does not matter: to the worker it is a broken stream.
//
// # How it works
//
// One mutex, Worker.mu, guards the table of attempts and the outbox. The outbox holds what is to be said as facts, not
// as a queue of frames: a lease to renew, a report without a verdict, output that was not sent. The writer makes
// frames of whatever waits, so that many handlers that finish together share a frame, and a slow stream makes frames
// larger instead of the queue longer.
//
// Frames are numbered in both directions (link.go): what the coordinator has not acknowledged is sent again, what it sends
// twice has one effect, and what is missing is asked for (W6, W7). When a stream breaks, the next one goes on with the
// session where the coordinator still knows it (resume.go): reports that it had taken wait there for their verdicts, and
// everything else is said anew (W8).
//
// Where to look:
//
//	the API          worker.go, config.go, task.go, chunk.go, capacity.go, steer.go, errors.go, hooks.go, dial.go
//	a run            run.go (one session after another), drain.go (the end), states.go, backoff.go, refusal.go
//	a session        session.go (open, close), reader.go, writer.go, collect.go (what goes out), link.go, resume.go
//	an attempt       execute.go (dispatch to outcome), attempt.go, lease.go, heartbeat.go, outcome.go, report.go
//	the line         transit.go (how long a frame was under way), repeat.go (calls that a quota refused), token.go
//	places           slots.go (concurrency), flight.go (single flight), recent.go (leases that came before)
//	for watchers     feedback.go (progress, output), gauges.go (of the worker and its machine), log.go
//	values           limits.go (what may be said), convert.go (to the wire)
//
// The goroutines:
//
//	name     number           owns                       woken by                         ends
//	runner   1 (Run's caller) the session, its frame     Worker.wake, tickers, the        when drained, or refused
//	                          ids; it is the writer      reader's end, backoff timer
//	caller   1                the call that opens a      credentials, the connection      when the call returns; then
//	                          stream                                                      the runner has the stream
//	reader   1 per stream     receiving                  frames                           with the stream
//	handler  up to 1 per      the handler's call, one    a dispatch; it goes on with      when no attempt waits for
//	         attempt          slot                       the next attempt that waits      a goroutine
//
// Timers run short functions that take the mutex: per attempt one for the lease's end and the next heartbeat, the end of a
// cancel's grace, the flush of its output; for the worker the stages of a drain; for the stream the limits on opening
// and sending. The attempt's, and the drain's, are stopped by the attempt's and the drain's end. The writer has one timer of
// its own for all that it sends again, which runs only while something waits for an acknowledgement.
//
// The phases of an attempt (attempt.go) only move forward:
//
//	waiting ----> executing ----> reporting ----> over
//	   |              |                            ^
//	   |              +-- lease lost --------------+
//	   +-- refused --> reporting;  lease lost -----+
//
// The states of the worker (W1, states.go): NEW, HANDSHAKING, REGISTERED, HEARTBEATING, DRAINING, CLOSED; a broken stream
// leads through BACKOFF to NEW.
package worker
