// Package limits plays random histories against a whole coordinator whose limits are all small, so that they meet: many tenants flood it with every kind of
// call over gRPC, workers read slowly, vanish and resume, commits are slow, and the coordinator stops and crashes.
//
//	limits_test.go     the test, and what a history is made of
//	world_test.go      the coordinator, its tenants, and calls that must be answered
//	bounds_test.go     the limits that are no settings
//	producers_test.go  submits, commands, readers and watchers
//	fates_test.go      what a worker does with a lease
//	unary_test.go      workers that call Lease
//	peers_test.go      workers on streams
//	modest_test.go     a tenant that asks for little, and must not wait for the others
//	book_test.go       what callers were told, and what must follow from that
//	end_test.go        all must end, and nothing may be left
//
// docs/testing/models.md describes what is checked.
package limits
