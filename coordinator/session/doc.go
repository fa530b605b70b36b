// Package session serves the streams of workers: docs/protocol.md shows what is said on them. It keeps what a worker has heard and said in
// order, over streams that are lost, and holds back what a worker does not read. What is right or wrong about a lease the engine decides; who
// may come in, the gate in front.
//
// # The path of a frame
//
// The reader of a stream takes frames in order, checks the envelope before the payload, and posts what is to be decided to the engine. Answers
// and grants come back on the engine's committer, which must not wait: it only puts them into the session's outbox, of which a writer makes
// frames:
//
//	reader  session   RecvMsg           codec.go reads the bytes
//	        frames    envelope, state   states.go has the table of W1
//	        seq       order, repeats    recent.go for frames without a seq
//	        ...       payload           open register heartbeat report feedback, see below
//	engine  judges and commits, or grants
//	        answers   to the outbox     dispatch.go for work
//	outbox  outbox    what waits        turn.go: whether a writer is needed
//	        retain    what was sent     resend.go: until it is acknowledged
//	writer  writer    Send
//
// What outlives the stream (its order, its outbox) is the session's resumeState; what ends with it is in Session.
//
// Of the goroutines of a stream, session.go has the list.
//
// # Where things are
//
//	server.go config.go      what the streams need; what is asked of workers
//	session.go               the stream from its first frame to its end
//	states.go                which frame is for which state (W1)
//	frames.go codec.go       one frame: envelope, order, payload
//	open.go                  handshake: a new session, resume, replaced instance (W8)
//	credential.go            what a handshake repeats of the worker's credential (W2)
//	token.go resume.go       resume tokens; sessions that wait for their worker
//	quota.go fines.go        whether there is a place for it; what is wrong costs time (X5)
//	register.go              register, capacity, drain: what the engine may give it
//	heartbeat.go pace.go     heartbeats, one after the other (W4, W11)
//	health.go                who misses them, who is full (W9)
//	report.go feedback.go    reports and acknowledgements; feedback
//	answers.go dispatch.go   what is to be said, and handed out
//	outbox.go turn.go        what waits to be sent, and who sends it (W11)
//	writer.go                sending
//	seq.go recent.go         order and repeats of what comes (W6, W7)
//	retain.go resend.go      what was sent and may be needed again (W6, W7)
//	registry.go counters.go  all sessions, for operators; what they count
//	operator.go              what operators do to them
//
// Whole sessions over gRPC are tested in package coordinator, where the harness is. Random histories of sessions are tested here
// (docs/testing.md).
package session
