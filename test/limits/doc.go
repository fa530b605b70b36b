// Package limits plays random histories against a whole coordinator whose limits are all small, so
// that they meet: many tenants flood it with every kind of call over gRPC and HTTP, workers read
// slowly, vanish and resume, commits are slow, and the coordinator stops, crashes and is restored
// from a backup.
//
//	limits_test.go     the test, and what a history is made of
//	world_test.go      the coordinator, its tenants, and calls that must be answered
//	bounds_test.go     the limits that are no settings
//	producers_test.go  submits, readers and watchers
//	operators_test.go  commands about tasks, queues, workers and credentials
//	backups_test.go    backups, and starts in a new epoch
//	fates_test.go      what a worker does with a lease
//	unary_test.go      workers that call Lease
//	web_test.go        workers and producers that speak HTTP
//	peers_test.go      workers on streams
//	sdk_test.go        workers and producers of the SDK
//	modest_test.go     a tenant that asks for little, and must not wait for the others
//	book_test.go       what callers were told, and what must follow from that
//	histories_test.go  what the histories of the tasks must show
//	rules_test.go      what was set on queues, and when
//	instances_test.go  instances of workers, and when they drain
//	kicks_test.go      what kicks do to leases
//	end_test.go        all must end, and nothing may be left
//	recall_test.go     reports that are repeated at the end
//	memory_test.go     what must be empty in the memory of the engine
//
// docs/testing/models.md describes what is checked.
package limits
