// Package preauth limits what callers can use of a coordinator before their identity is known (X5):
// how many connections are open, how many handshakes and calls without a valid credential are under
// way, and how fast guesses at a credential are answered. All of this is counted by address,
// because nothing else is known of such a caller. The gate (package gate) decides whether a
// credential is valid.
//
// # Where things are
//
//	conn_limiter.go           how many connections and handshakes may be open
//	counted_conn.go           a connection that was let in; conn_unix.go, conn_other.go: reading from it
//	crowd.go                  which connection makes room for another because no valid credential was shown on it
//	conn_of_call.go           on which connection a call is made
//	call_limiter.go           how many calls without a valid credential may be under way, until their message has been read
//	tls_conn.go               closes connections whose client certificate has ended
//	tls_failures.go           counts and logs TLS handshakes that fail
//	paced_log.go              logs some of the events that anybody can cause
//	attempts.go               how fast such calls are answered
//	address.go                the address by which all this is counted
package preauth
