// Package coordinator is the process: it puts the parts of the authority together over one store,
// listens, and stops them in order. The parts are the packages below it; package service has the
// calls themselves.
//
// # The path of a call
//
// A request is decoded (package reqcodec). The interceptors of every call count and log it
// (call_chain.go), and the gate admits or refuses it (package gate). The handler (package service)
// reads the request field by field (package convert), sends one command to the engine (package
// engine), waits until the effects are durable, and writes the answer (convert again). A handler
// holds no state and takes no decision: package lease decides what is right or wrong about a lease.
// Errors become statuses in one place (package refusal). Calls that show tasks read them from the
// store, because callers may see only committed state.
//
// A worker's stream is served by package session, which describes the path of a frame.
//
// # Where things are
//
//	coordinator.go quotas.go            makes the parts
//	serve.go                            starts and stops them
//	config*.go                          settings
//	grpc.go                             the gRPC server, its services and its codec
//	http*.go                            the HTTP server: the JSON API (package httpapi), the page (package web), health checks, also while the store is
//	                                    being opened (http_opening.go), and what only some roles may read
//	call_chain.go                       what every call passes, over gRPC or from within; call_count.go call_log.go: how many are under way, the log
//	call_local*.go                      calls of the services from within the process, for the JSON API and the page
//	metrics.go                          metrics of what the engine does; metrics_*.go: of calls, frames and queues, and what is read at each scrape
//	log_*.go                            what is logged of slow disks, standstills, jumps of the clock, leases without a report, missing credentials;
//	                                    lines left out in a flood
//	store_*.go                          lets standbys follow the store; notices that its file was moved or removed
//	issue_token.go                      issues tokens, also without a running coordinator
//	inside.go                           shows the parts to tests
//
// The packages below this one, in the order in which a unary call over gRPC passes them; a stream
// passes the gate before its messages are read:
//
//	preauth              connections, and calls without a good credential (X5)
//	recvlimit            bounds the messages that callers begin and do not finish (X5)
//	submitlimit          bounds the bytes of submits under way (X5)
//	reqcodec             requests as they are decoded: what they may take (X5), and answers to those that cannot be
//	gate                 who the caller is, and what it may call (X1 to X5)
//	auth quota audit     credentials, quotas, the audit
//	httpapi tasktoken    the JSON API; the tokens with which workers report over it
//	service              the gRPC services
//	sendlimit            bounds the answers that grpc keeps until the client reads them (X5)
//	convert refusal      conversion between wire messages and types of package lease; errors as codes and statuses
//	session              the streams of workers
//	engine               the owner of all state
//	tracing              spans of what the engine has committed
//
// # Tests
//
// What a package does is tested beside it, also if that takes a whole coordinator: then the name of
// its file ends in _wire_test, except in package service, where nearly all are of that kind.
// Package internal/wiretest has the coordinator and its clients. Here are the tests of the process:
// start and stop, what it logs and measures, the listeners, and rules that all calls follow, those
// of access, quotas and the audit among them: in a package of their own each would have everything
// that imports it compiled once more.
package coordinator
