// Package gate decides who may call what. A token or a client certificate identifies the caller
// (X1), the role of the caller says which calls are allowed (X2), its tenant whether it may make
// those about all tenants, and when a credential ends, the calls under way that use it end too
// (X3). Calls that change something get an entry in the audit (X4). All calls count against quotas,
// except those that keep a lease alive or stop something (X5).
//
// The gate does not judge the content of a request. The handlers do, and they call Identify to
// learn who makes the call. Before a call reaches the gate, package preauth limits what callers
// without a valid credential can do.
//
// # Where things are
//
//	gate.go         a call on its way in, and the end of a stream
//	authenticate.go who calls, by the credentials shown
//	identity.go     what is known of a caller; handlers get it from there only
//	access.go       which role may call what
//	routes.go       the same for the HTTP API, task tokens included
//	refused.go      counts the credentials that are not good
//	active_calls.go calls under way whose credential ends
//	audit.go        which calls leave an entry, and what is in it
//	quotas.go       which calls are counted, and which are exempt
//
// Whether a whole coordinator follows these rules is tested in package coordinator.
package gate
