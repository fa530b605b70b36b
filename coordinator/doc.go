// Package coordinator is the edge of the authority: it turns what comes in over gRPC and HTTP into commands of the engine, waits until
// they are durable, and turns the outcome back into answers.
//
// # The path of a call
//
// The gate lets the call in or not (package gate). A handler reads the request field by field (package convert), sends one command to the
// engine (package engine), waits, and writes the answer (convert again). It holds no state and takes no decision: what is right or wrong
// about a lease is decided in package lease. Errors become statuses in one place (package refusal). What is shown of tasks at rest is
// read from the store, whose committed state is all that anyone may see.
//
// A worker's stream has a package of its own, session, with the path of a frame.
//
// # Where things are
//
//	server.go config.go config_*.go           the process: settings, start, stop
//	http.go metrics.go frame_bytes.go         what operators read; http_let.go lets them in
//	store_gone.go                             a file of the store that was moved or removed
//	unread.go                                 answers that wait to be read, which grpc keeps (X5)
//	quotas.go                                 what tenants may use (X5); package quota counts
//	audit_service.go                          shows the audit (X4), which package audit keeps in bounds
//	calls.go interceptors.go utf8.go trace.go around every call: who still waits, log, panics, bad strings, trace context
//	edge.go page.go                           what the services share
//	http_api.go                               the API in JSON (package httpapi), and who may report over it (H1)
//	local.go local_stream.go                  how its requests become calls of the services
//
//	task_*.go submit_stream.go middlewares.go TaskService; watch*.go its streams of events
//	worker_service.go                         WorkerService, its unary calls; package session serves its stream
//	admin_service.go queue_service.go         AdminService; backup.go its copy of the store
//	auth_service.go                           AuthService: tokens and keys, which package auth keeps
//	worker_admin.go                           AdminService on workers: get, drain, kick
//
// Beneath it, packages in the order of a call:
//
//	porch                                     connections, and calls without a good credential (X5)
//	gate                                      who calls, and may call what (X1 to X5)
//	auth quota audit                          whose credential it is, what it may use, what is kept of it
//	httpapi tasktoken                         the API in JSON; the tokens by which workers report over it
//	convert refusal                           from the wire to the rules and back; what goes wrong, in codes and statuses
//	session                                   the streams of workers
//	engine                                    the owner of all state
package coordinator
