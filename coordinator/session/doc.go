// Package session serves the streams of workers; docs/protocol.md describes the frames on them. It
// keeps the frames of both sides in order, even when a stream is lost and the worker resumes its
// session, and it bounds what waits for a worker that reads slowly. It does not decide about
// leases: the engine does. It does not decide who may open a stream: package gate does.
//
// # The path of a frame
//
// The reader of a stream takes the frames in order, checks the envelope before the payload, and
// posts reports to the engine. The engine's committer returns answers and grants. It must not wait,
// so it only puts them into the session's outbox. A writer makes frames from the outbox and sends
// them:
//
//	reader  session   RecvMsg           codec.go reads the bytes
//	        frames    envelope, state   states.go has the table of W1
//	        seq       order, repeats    recent.go: by id and corr
//	        ...       payload           open register heartbeat report feedback, see below
//	engine  judges and commits, or grants
//	        answers   to the outbox     dispatch.go for work
//	outbox  outbox    frames that wait  writer.go: whether a writer is needed
//	        retain    sent frames       resend.go: sends them again until the worker acknowledges them
//	writer  send      Send
//
// In the outbox, a frame is a waitingFrame until a writer takes it, and then a sentFrame. Each
// sending of a sentFrame is a transmission.
//
// The resumeState of a session holds what outlives the stream: the order of the frames, and the
// outbox. Session holds what ends with the stream. session.go lists the goroutines of a stream.
//
// # Locks
//
// A goroutine that holds one of these locks takes only locks of the lines below it:
//
//	resumeState.takingOver  held while a stream takes a session over
//	incoming.mu             held while a frame is handled, even while the reader waits for room in the outbox
//	Session.slotsMu         held while a change of the slots or packages goes to the engine
//	Session.mu              guards the state of a stream
//	resumeTable.mu          guards which stream has which session
//	inventory.mu, outbox.mu, feedbackQueue.mu, fines.mu, Registry.mu, operations.mu, Session.sending
//
// # Where things are
//
//	server.go config.go      what the streams need; settings of sessions
//	session.go               the stream from its first frame to its end
//	states.go                which frames each state allows (W1)
//	frames.go codec.go       one frame: envelope, order, payload
//	open.go                  handshake: a new session, resume, replaced instance (W8)
//	credential.go            the credential in a handshake must be that of the call (W2)
//	token.go resume.go       resume tokens; sessions that wait for their worker
//	lock.go                  a mutex for those who wait for a commit while they hold it
//	quota.go fines.go        quotas of sessions and frames; bad frames slow their stream (X5)
//	register.go              register, capacity, drain: what work the worker may get
//	heartbeat.go pace.go     heartbeats, and how many at once (W4, W11)
//	health.go                missed heartbeats; full memory, disk and slots (W9)
//	report.go feedback.go    reports and acknowledgements; feedback
//	answers.go dispatch.go   answers to frames; dispatches of leases
//	outbox.go                frames that wait to be sent (W11)
//	writer.go                when a writer runs, and what it sends next
//	send.go                  makes frames and sends them
//	seq.go recent.go         order and repeats of incoming frames (W6, W7)
//	retain.go resend.go      sent frames that may be sent again (W6, W7)
//	registry.go counters.go  all sessions, for operators; metrics
//	shown.go                 what operators see of a session
//	operator.go drains.go    drain and kick; drains that outlive the stream
//	inventory.go             the packages of a worker, and what it has to install and remove (W13)
//	packages.go              the frames about them; operations.go: installs and removals on many workers
//
// Whole sessions with a coordinator are tested in the files whose names end in _wire_test, and
// random histories of sessions in random_test.go (docs/testing/models.md).
package session
