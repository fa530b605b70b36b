// Command lessor runs a coordinator, its workers and its clients. See docs/cli.md.
package main

// How the command works, for those who change it.
//
// main.go calls run, which has dispatch read the arguments into the grammar (all in cli.go). The
// grammar is a struct: each command is a field of it, whose own fields are the flags, and whose
// method Run is the command. What Run returns is explained to the user in exit.go, which also
// decides the exit code. Most commands are in the file of their name: lessor task get is in
// task_get.go. Most are clients: they make a call and print the answer.
//
// Where to look:
//
//	the frame         main.go, cli.go (the grammar, dispatch), exit.go, signals.go, completion.go, version.go
//	values of flags   mappers.go (how text becomes a value), size.go, when.go (also span), queue_rate.go, idle_flags.go (flags that do nothing)
//	the connection    client.go, credentials.go
//	errors            status_error.go (of the coordinator), store_error.go (of a store)
//	output            output.go, listing.go, details.go, columns.go, omit.go (what JSON leaves out), chunks.go, progress.go, watch_printer.go,
//	                  giving_up.go (when nobody takes it), pending_file.go (files that are there as a whole or not at all)
//	changes           change.go (of each thing that is named), bulk.go (of many tasks, call after call)
//	a log             logging.go (the flags), log_writer.go, traces.go (spans, too)
//
//	coordinators      serve*.go; serve_settings.go: from flags to coordinator.Config, and back for errors
//	                  store_open.go, listen.go (what they open), service_manager.go (systemd), gc.go (the garbage collector)
//	standbys          standby*.go, monitoring.go (/metrics and /healthz of commands that are no coordinator)
//	stores            backup.go, restore.go, compact.go, verify.go, salvage.go
//	workers           worker*.go; worker_shared.go: what the commands that run a worker share
//	pools             pool*.go, state_dir.go (files of this user, for workers too)
//	runs              run*.go, embedded.go (the coordinator of a run)
//	tasks             submit*.go, task*.go, retry_flags.go (for queues too); unread_*.go: whether standard input has something
//	queues            queue*.go
//	access            token.go, key.go, cert.go, audit.go, audit_detail.go, tenant.go
//	the rest          status.go, bench.go, bench_report.go
//	the system        files_*.go (how many may be open, and who may read a secret one); kill*.go, wall*.go: hooks of fault tests
