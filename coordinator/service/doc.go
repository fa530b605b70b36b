// Package service has the gRPC services: what producers, workers and operators call. New makes them
// from what they need (Deps); package coordinator registers them with its gRPC server, and the JSON
// API and the page are their clients in the same process.
//
// # A handler
//
// A call has passed the gate when it arrives, and gate.Identify says who makes it. Its handler
// reads the request field by field (package convert), sends one command to the engine, waits until
// the effects are durable, and writes the answer. It holds no state and takes no decision, and each
// error that it returns has passed refusal.Status. What a call shows of tasks it reads from the
// store: callers may see only committed state. A call that reads or answers much gives up the
// processor often (docs/decisions/0031-long-calls-yield.md), and one that waits ends when the
// coordinator begins to stop.
//
// The stream of a worker is served by package session.
//
// # Where things are
//
//	service.go         New, and what the services need; shared.go: what handlers share
//	page.go            pages of lists, and their tokens
//
//	tasks.go           TaskService: submit, get, change one task; tasks_details.go: what lists leave out
//	tasks_submit.go    its stream of submits; tasks_quota.go: errors of submits that a quota refuses
//	tasks_list.go      lists; tasks_bulk.go: the calls that change all tasks of a filter
//	tasks_await.go     its stream of the ends of tasks
//	tasks_explain.go   why a task waits; tasks_middlewares.go: what is mounted on a task
//	watch.go           its streams of events: watch_task.go of a task, watch_run.go of a run, watch_history.go its events in the store;
//	                   watch_events.go sends them
//	trace.go           the traces of submitted tasks, of which package tracing makes spans
//
//	workers.go         WorkerService, its unary calls
//
//	admin.go           AdminService: the coordinator itself
//	admin_queues.go    queues (T13); oldest_ready.go: which of their tasks has been READY the longest, for the metrics too
//	admin_workers.go   the workers with a stream: list, get, drain; admin_packages.go: their packages (W13)
//	admin_kick.go      kick, and the end of leases, also those of processes that are gone
//	admin_tenants.go   what each tenant has, for the host tenant
//	admin_audit.go     lists the audit (X4), which package audit keeps within bounds
//	admin_backup.go    copies of the store (A11); admin_follow.go: standbys
//
//	auth.go            AuthService: tokens and keys, which package auth keeps
package service
