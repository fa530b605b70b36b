// Package gate decides who may call what. A token or a client certificate says who calls (X1), the role of the caller says which calls are
// allowed (X2), and when a credential ends, the calls under way that use it end too (X3). Calls that change something leave an entry in the
// audit (X4). All calls count against quotas, except those that keep a lease alive or stop something (X5).
//
// The gate does not judge the content of a request: the handlers behind it do, and ask Identify whose call it is. In front of the gate,
// package preauth bounds what callers without a good credential can do.
//
// # Where things are
//
//	gate.go         a call on its way in, and the end of a stream
//	authenticate.go who calls, by the credentials shown
//	identity.go     what is known of a caller, and the one place that tells it
//	access.go       which role may call what
//	routes.go       the same for the HTTP API, task tokens included
//	active_calls.go calls under way whose credential ends
//	audit.go        which calls leave an entry, and what is in it
//	quotas.go       which calls are counted, and which are spared
//
// How a whole coordinator follows these rules is tested in package coordinator, where the test harness is.
package gate
