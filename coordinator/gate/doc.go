// Package gate says who may come in and call what. Who calls is told by a token or a client certificate (X1), the role says which calls that
// lets in to (X2), and when the credential ends, so do its calls (X3). Calls that change something leave an entry in the audit (X4), and all
// but those that a lease lives by are counted (X5).
//
// What is in a request the gate does not judge: the handlers behind it ask Identify whose call it is. In front of it, strangers stand on the
// porch (package porch).
//
// # Where things are
//
//	gate.go         a call on its way in, and the end of a stream
//	authenticate.go who calls, by what is shown
//	identity.go     what is known of a caller, and the one place that tells it
//	access.go       which role may call what
//	routes.go       the same of the HTTP API, its task tokens included
//	vigil.go        calls under way whose credential ends
//	audit.go        which calls leave an entry, and what is in it
//	quotas.go       which calls are counted, and which are spared
//
// What a whole coordinator makes of these rules is tested in package coordinator, where the harness is.
package gate
