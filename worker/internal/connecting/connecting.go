// Package connecting says in words why there is no connection to a coordinator.
package connecting

import (
	"strconv"
	"strings"
)

// Why returns what gRPC's message says about a connection that could not be made. If only one side
// seems to use TLS, the address is that of another server, or the coordinator stands still, it says
// so, since the message does not: in the first two cases, another try cannot help.
func Why(message string) string {
	reason := Cause(message)
	switch {
	case strings.Contains(reason, "looked like an HTTP/1.1 header"), strings.Contains(reason, "no application protocol"):
		return reason + " (the server at that address does not speak gRPC; the address must be that of serve --listen, not of --http)"
	case strings.Contains(reason, "does not look like a TLS handshake"):
		return reason + " (the coordinator does not use TLS, but the transport credentials of this connection require it)"
	case strings.Contains(reason, "server preface") && strings.Contains(reason, "use of closed network connection"):
		// gRPC has waited for long enough
		return reason + " (the coordinator accepts connections, but does not answer)"
	case strings.Contains(reason, "server preface") && !strings.Contains(reason, "tls: "):
		return reason + " (the coordinator may require TLS, but the transport credentials of this connection do not use it)"
	}
	return reason
}

// Cause returns the cause in gRPC's message about a failed connection, such as
// connection error: desc = "transport: Error while dialing: dial tcp 127.0.0.1:7420: connect:
// connection refused".
func Cause(message string) string {
	quoted, found := strings.CutPrefix(message, "connection error: desc = ")
	if !found {
		return message
	}
	inner, err := strconv.Unquote(quoted)
	if err != nil {
		return message
	}
	return strings.TrimPrefix(strings.TrimPrefix(inner, "transport: "), "Error while dialing: ")
}
