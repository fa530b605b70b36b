// Package coordinator is the edge of the authority: it turns gRPC calls and HTTP requests into commands of the engine, waits until their
// effects are durable, and turns the outcomes into answers.
//
// # The path of a call
//
// The gate admits or refuses a call (package gate). The handler reads the request field by field (package convert), sends one command to
// the engine (package engine), waits, and writes the answer (convert again). It holds no state and takes no decision: package lease decides
// what is right or wrong about a lease. Errors become statuses in one place (package refusal). What is shown of tasks at rest is read from
// the store, because only committed state may be seen.
//
// A worker's stream is served by package session, which describes the path of a frame.
//
// # Where things are
//
//	server.go config.go config_*.go           the process: settings, start, stop
//	http.go metrics.go frame_bytes.go         metrics, health, profiles; http_roles.go checks who reads them
//	opening.go                                health while the store is being opened
//	store_gone.go                             a file of the store that was moved or removed
//	unread_answers.go                         bounds the answers that grpc keeps until they are read (X5)
//	quotas.go                                 what tenants may use (X5); package quota counts
//	audit_service.go                          lists the audit (X4), which package audit keeps within bounds
//	calls.go interceptors.go utf8.go trace.go around every call: which are under way, log, panics, bad strings, trace context
//	edge.go page.go                           what the services share
//	http_api.go                               connects the API in JSON (package httpapi), and opens task tokens for it (H1)
//	local.go local_stream.go                  how its requests become calls of the services
//
//	task_*.go submit_stream.go middlewares.go TaskService; watch*.go: its streams of events
//	worker_service.go                         WorkerService, its unary calls; package session serves its stream
//	admin_service.go queue_service.go         AdminService; backup.go: copies of the store
//	auth_service.go                           AuthService: tokens and keys, which package auth keeps
//	worker_admin.go                           AdminService on workers: get, drain, kick
//
// Beneath it, packages in the order of a call:
//
//	preauth                                   connections, and calls without a good credential (X5)
//	gate                                      who calls, and may call what (X1 to X5)
//	auth quota audit                          credentials, quotas, the audit
//	httpapi tasktoken                         the API in JSON; the tokens by which workers report over it
//	convert refusal                           from the wire to the rules and back; what goes wrong, in codes and statuses
//	session                                   the streams of workers
//	engine                                    the owner of all state
package coordinator
