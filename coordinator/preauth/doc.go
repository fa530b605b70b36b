// Package preauth bounds what callers can take from a coordinator before it is known who they are (X5): how many connections are open, how many
// handshakes and calls without a good credential are under way, and how fast guesses at a credential are answered. All of this is counted by
// address, because nothing else is known of a stranger. The gate (package gate) decides whether a credential is good.
//
// # Where things are
//
//	conn_limiter.go           how many connections and handshakes may be open; conn_*.go: reading from a connection
//	call_limiter.go           how many calls without a good credential may be under way, until their message has been read
//	tls_conn.go               connections whose client certificate ends are closed
//	attempts.go               how fast such calls are answered
//	address.go                the address by which all this is counted
package preauth
