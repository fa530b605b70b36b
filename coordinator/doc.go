// Package coordinator is the edge of the authority: it turns what comes in over gRPC and HTTP into commands of the engine, waits until
// they are durable, and turns the outcome back into answers.
//
// # The path of a call
//
// The gate lets the call in or not (access.go). A handler reads the request field by field (package convert), sends one command to the
// engine (package engine), waits, and writes the answer (convert again). It holds no state and takes no decision: what is right or wrong
// about a lease is decided in package lease. Errors become statuses in one place (package refusal). What is shown of tasks at rest is
// read from the store, whose committed state is all that anyone may see.
//
// # The path of a frame
//
// A session is one worker's stream; docs/protocol.md shows what is said on it. Its reader takes frames in order, checks the envelope before the
// payload, and posts what is to be decided to the engine. Answers and grants come back on the engine's committer, which must not wait: it
// only puts them into the session's outbox, of which a writer makes frames:
//
//	reader  session.go       RecvMsg           session_codec.go reads the bytes
//	        session_frames   envelope, state   session_states.go has the table of W1
//	        session_seq      order, repeats    session_recent.go for frames without a seq
//	        session_...      payload           open register beat report feedback, see below
//	engine  judges and commits, or grants
//	        session_answers  to the outbox     session_dispatch.go for work
//	outbox  session_outbox   what waits        session_turn.go: whether a writer is needed
//	        session_retain   what was sent     session_resend.go: until it is acknowledged
//	writer  session_writer   Send
//
// What outlives the stream (its order, its outbox) is the session's dialog; what ends with it is in session.
//
// Of the goroutines of a stream, session.go has the list; of the engine's, package engine.
//
// # Where things are
//
//	server.go config.go config_*.go           the process: settings, start, stop
//	http.go metrics.go frame_bytes.go         what operators read; http_let.go: and who may
//	authenticate.go tenant.go access.go       who calls (X1), and which role may call what (X2)
//	listener.go listener_*.go                 connections (X5)
//	porch.go attempts.go                      calls without a good credential (X5)
//	unread.go                                 answers that wait to be read, which grpc keeps (X5)
//	quotas.go                                 what calls may use, and which are spared (X5); package quota counts
//	vigil.go                                  ends calls under way with their credential (X3)
//	audit.go audit_service.go                 which calls leave an entry in the audit (X4); showing it; package audit keeps it in bounds
//	calls.go interceptors.go utf8.go trace.go around every call: who still waits, log, panics, bad strings, trace context
//	edge.go page.go                           what the services share
//	http_api.go                               the API in JSON (package httpapi), and who may report over it (H1)
//	local.go local_stream.go                  how its requests become calls of the services
//
// Package convert: from the wire to the rules and back. Package refusal: what goes wrong, in codes and statuses.
//
//	task_*.go submit_stream.go middlewares.go TaskService; watch*.go its streams of events
//	worker_service.go                         WorkerService, its unary calls; the session_ files are its stream
//	admin_service.go queue_service.go         AdminService; backup.go its copy of the store
//	auth_service.go                           AuthService: tokens and keys, which package auth keeps
//	worker_admin.go                           AdminService on workers: get, drain, kick
//
//	session.go                                the stream from its first frame to its end
//	session_states.go                         which frame is for which state (W1)
//	session_frames.go session_codec.go        one frame: envelope, order, payload
//	session_open.go                           handshake: a new session, resume, replaced instance (W8)
//	session_vouch.go                          what a handshake repeats of the worker's credential (W2)
//	session_token.go session_dialog.go        resume tokens; sessions that wait for their worker
//	session_quota.go session_fines.go         whether there is a place for it; what is wrong costs time (X5)
//	session_register.go                       register, capacity, drain: what the engine may give it
//	session_beat.go session_pace.go           heartbeats, one after the other (W4, W11)
//	session_health.go                         who misses them, who is full (W9)
//	session_report.go session_feedback.go     reports and acknowledgements; feedback
//	session_answers.go session_dispatch.go    what is to be said, and handed out
//	session_outbox.go session_turn.go         what waits to be sent, and who sends it (W11)
//	session_writer.go                         sending
//	session_seq.go session_recent.go          order and repeats of what comes (W6, W7)
//	session_retain.go session_resend.go       what was sent and may be needed again (W6, W7)
//	session_registry.go session_counters.go   all sessions, for operators; what they count
package coordinator
