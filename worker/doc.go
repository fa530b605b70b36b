// Package worker is the Go SDK for programs that execute tasks of a Lessor coordinator.
//
//	conn, err := worker.Dial("127.0.0.1:7420")
//	w, err := worker.New(conn, []string{"images"}, worker.Config{})
//	w.Handle("resize", func(ctx context.Context, t *worker.Task) ([]byte, error) {
//		return resize(ctx, t.Payload)
//	})
//	err = w.Run(ctx) // runs until ctx ends, and then lets running handlers finish
//
// # What a handler can rely on
//
// The coordinator alone decides; a worker only executes. A handler runs under a lease. This package
// renews the lease while the handler runs (K4). The lease is lost if the coordinator says so, or if
// no renewal arrived before the lease expired by this process's own monotonic clock. Then the
// handler's context ends with the cause ErrLeaseLost, and the handler must stop: the same task may
// already run elsewhere, and nobody can undo what the first handler has done. A handler that
// changes the outside world therefore does one of two things: it passes Task.FencingToken to a
// system that refuses older tokens, or it calls Task.Confirm right before the change.
//
// Once the coordinator has said that the lease is lost, whatever the handler returns is discarded
// (K2). If only this process's clock says so, a result is still reported: the coordinator's clock
// decides whether it is in time, and if it is not, an operator can adopt it (V15).
//
// The context also ends if the task is cancelled (ErrCancelled) or the worker drains (ErrDraining).
// The lease is still live then, and the result is still reported. Task.Lost is closed at the end of
// that grace.
//
// That clock may stand still while the machine is suspended. When it wakes up, a handler whose
// lease has ended meanwhile learns that only from the next heartbeat, or from Confirm.
//
// What the handler returns becomes exactly one report; see Handler, and JSON for one that takes and
// returns values of Go. The worker sends the report unchanged, a limited number of times, until the
// coordinator answers with a verdict, and never after that (K1, K3, K5). A lost stream stops no
// handler: the worker reconnects and continues with the leases that are still live.
//
// # How a worker stops
//
// End the context of Run, for example by a signal. The worker then takes no new work, running
// handlers have Config.DrainTimeout to finish, their reports get their verdicts, and Run returns
// nil. If an operator drains the worker, the same happens. A restart of the coordinator does not
// disturb a drain: the worker only sees a broken stream. Worker.Drain shortens a drain, for example
// at a second signal.
//
// Rule numbers in the comments (A2, K4, W9 ...) are those of docs/rules.md.
package worker

// How the package works, for those who change it.
//
// One mutex, Worker.mu, guards the table of attempts and the outbox. The outbox does not hold
// frames. It holds what has to be said: a lease to renew, a report without a verdict, output that
// was not sent. The writer makes frames of whatever waits. So handlers that finish at the same time
// share a frame, and a slow stream makes frames larger instead of the queue longer. A Start and an
// acknowledgement wait a moment for something to share their frame with (lull.go).
//
// Each attempt collects its progress and output under a mutex of its own, feedback.mu, so that a
// handler that prints does not wait for the worker. The writer takes it while it holds Worker.mu;
// so Worker.mu is never taken under feedback.mu.
//
// Frames are numbered in both directions (link.go). Frames that the coordinator has not
// acknowledged are sent again, frames that the coordinator sends twice have one effect, and missing
// frames are requested again (W6, W7). When a stream breaks, the next stream resumes the session if
// the coordinator still has it (resume.go): reports that the coordinator has received wait for
// their verdicts, and everything else is sent again (W8).
//
// Where to look:
//
//	the API          worker.go, config.go, task.go, json.go, chunk.go, capacity.go, steer.go, errors.go, hooks.go, dial.go
//	a run            run.go (one session after another), drain.go (the end), states.go, backoff.go, refusal.go
//	a session        session.go (open, close), reader.go, writer.go, collect.go (makes frames), lull.go, link.go, resume.go
//	an attempt       execute.go (dispatch to outcome), attempt.go, lease.go, heartbeat.go, outcome.go, report.go
//	the connection   transit.go (how long a frame was in transit), repeat.go (calls that a quota, or a coordinator that stops, has refused),
//	                 token.go, plain.go (without TLS, to this machine)
//	packages         packages.go (the API, the inventory), operation.go (installing and removing), package_events.go (telling the coordinator)
//	concurrency      slots.go (limits), flight.go (single flight), recent.go (leases that were dispatched before)
//	observation      feedback.go (progress, output), gauges.go (of the worker and its machine), log.go, trace.go
//	values           limits.go (sizes and timeouts), clip.go (cuts text), codes.go (of errors), convert.go (to and from the wire)
//
// The goroutines:
//
//	name     number           owns                       woken by                         ends
//	runner   1 (Run's caller) the session, its frame     Worker.wake, tickers, the        when drained, or refused
//	                          ids; it is the writer      reader's end, backoff timer
//	caller   1                the call that opens a      credentials, the connection      when the call returns; then
//	                          stream                                                      the runner has the stream
//	renewal  up to 1          reading a Token again      the runner, while it waits with  when the file is read
//	                                                     a credential that was refused
//	meter    up to 1          measuring the gauges,      the writer, before a         when it has measured
//	                          Config.Metrics             heartbeat
//	reader   1 per stream     receiving                  frames                           with the stream
//	handler  up to 1 per      the handler's call, one    a dispatch; it goes on with      when no attempt waits for
//	         attempt          slot                       the next attempt that waits      a goroutine
//	package  up to 1          the call of Installer      pkg_install, pkg_uninstall;      with the operation
//	                                                     the end of the one before
//
// Timers run short functions that take the mutex. An attempt has one timer for the end of its lease
// and its next heartbeat, one for the end of a cancel's grace, one after which its handler counts
// as stuck, and one that flushes its output. A drain has timers for its stages, and the context of
// the installer one for the time limit. A stream has timers that limit opening and sending. When an
// attempt or a drain ends, it stops its timers. The writer has one timer for all that it has to
// send again; that timer runs only while a frame waits for an acknowledgement. Another one ends a
// lull. A wait before a refused report or heartbeat is queued again, or before feedback goes on,
// has a timer that nobody stops.
//
// The phases of an attempt (attempt.go) only move forward:
//
//	waiting ----> executing -----------------> reporting ----> over
//	   |             |  |                          ^            ^
//	   |             |  +-- own clock --> lapsed --+ result     |
//	   |             |                       |                  |
//	   |             |                       +-- no result -----+
//	   |             +-- lease lost ----------------------------+
//	   +-- refused --> reporting;  lease lost ------------------+
//
// The states of the worker (W1, states.go): NEW, HANDSHAKING, REGISTERED, HEARTBEATING, DRAINING,
// CLOSED; a broken stream leads through BACKOFF to NEW.
