// Package wiretest runs a whole coordinator, in memory and on the fake time of a synctest bubble,
// for tests that call it over the wire. Such a test of a package below coordinator is beside the
// code that it tests, in a file whose name ends in _wire_test.
//
//	rig.go            a coordinator with a client of each service, and the shortest way through the life of a task
//	calls.go          other calls, and what is expected of their errors
//	credentials.go    coordinators that require credentials
//	quotas.go         coordinators with quotas; a gate and a context for tests that call a handler directly
//	worker.go         a worker on a stream
//	watch.go          watches
//	backup.go         backups
//	store.go          stores that are slow, or whose commits wait
//	unread.go         clients that do not read
//	http.go           an HTTP client; openapi.go checks that openapi.json describes the answers
//	access_rules.go   what docs/security.md says of who may make which call
package wiretest
