// Package coordinator is the edge of the authority: it turns gRPC calls and HTTP requests into commands of the engine, waits until their
// effects are durable, and turns the outcomes into answers.
//
// # The path of a call
//
// The gate admits or refuses a call (package gate). The handler reads the request field by field (package convert), sends one command to
// the engine (package engine), waits, and writes the answer (convert again). A handler holds no state and takes no decision: package lease
// decides what is right or wrong about a lease. Errors become statuses in one place (package refusal). Calls that show tasks read them from
// the store, because callers may see only committed state.
//
// A worker's stream is served by package session, which describes the path of a frame.
//
// # Where things are
//
//	server.go config.go config_*.go           the process: settings, start, stop; grpc.go: options and codec of the gRPC server
//	http.go metrics.go frame_bytes.go         metrics, health, profiles; http_roles.go checks who reads them
//	call_metrics.go queue_metrics.go          metrics of calls and of queues; oldest_ready.go: of the READY task that has waited the longest
//	opening.go                                health while the store is being opened
//	warnings.go                               what the log warns of: a slow disk, standstills, jumps of the clock, missing credentials
//	log_pace.go                               leaves lines out of the log in a flood
//	store_gone.go                             notices that the store's file was moved or removed
//	quotas.go                                 what tenants may use (X5); package quota counts
//	audit_service.go                          lists the audit (X4), which package audit keeps within bounds
//	calls.go interceptors.go                  around every call: count of active calls, log, panics
//	trace.go                                  the traces of submitted tasks, of which package tracing makes spans
//	edge.go page.go                           what the services share
//	http_api.go                               connects the JSON API (package httpapi) to the services, and opens task tokens for it (H1)
//	local.go local_stream.go                  call the services from within the process, for the JSON API
//
//	task_*.go submit_stream.go middlewares.go TaskService; watch*.go: its streams of events; await_tasks.go: of the ends of tasks
//	worker_service.go                         WorkerService, its unary calls; package session serves its stream
//	admin_service.go queue_service.go         AdminService: the coordinator, queues; backup.go: copies of the store; follow.go: standbys
//	worker_admin_service.go                   AdminService on workers: list, get, drain, kick; package_service.go: on their packages (W13)
//	auth_service.go                           AuthService: tokens and keys, which package auth keeps
//
// The packages below this one, in the order in which a call passes them:
//
//	preauth                                   connections, and calls without a good credential (X5)
//	unfinished                                messages that callers begin and do not finish (X5)
//	gate                                      who the caller is, and what it may call (X1 to X5)
//	auth quota audit                          credentials, quotas, the audit
//	httpapi tasktoken                         the JSON API; the tokens with which workers report over it
//	decode                                    requests as they are decoded: what they may take (X5), and answers to those that cannot be
//	room                                      bounds the bytes of submits under way (X5)
//	unread                                    bounds the answers that grpc keeps until the client reads them (X5)
//	convert refusal                           conversion between wire messages and types of package lease; errors as codes and statuses
//	session                                   the streams of workers
//	engine                                    the owner of all state
//	tracing                                   spans of what the engine has committed
package coordinator
