// Package coordinator is the edge of the authority: it turns what comes in over gRPC and HTTP into commands of the engine, waits until
// they are durable, and turns the outcome back into answers.
//
// # The path of a call
//
// A handler identifies the caller (tenant.go), reads the request field by field (parse_*.go), sends one command to the engine
// (package engine), waits, and writes the answer (convert*.go). It holds no state and takes no decision: what is right or wrong
// about a lease is decided in package lease. Errors become statuses in one place (errors.go). What is shown of tasks at rest is
// read from the store, whose committed state is all that anyone may see.
//
// # The path of a frame
//
// A session (session.go) is one worker's stream. Its reader takes frames in order and checks the envelope before the payload;
// session_work.go turns payloads into posts to the engine. Answers and grants come back on the engine's committer, which must not
// wait: it only puts them into the session's outbox (session_outbox.go), where the one writer makes frames of them.
//
// Of the goroutines of a stream, session.go has the list; of the engine's, package engine.
package coordinator
