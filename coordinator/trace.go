package coordinator

import (
	"context"
	"strings"

	"google.golang.org/grpc/metadata"
)

// traceparent returns the W3C trace context of a call, or "" if there is none or it is malformed. A malformed trace header is ignored, as the
// W3C recommendation asks, so it never causes the refusal of a submit.
func traceparent(ctx context.Context) string {
	if v := metadata.ValueFromIncomingContext(ctx, "traceparent"); len(v) == 1 && validTraceparent(v[0]) {
		return v[0]
	}
	return ""
}

// validTraceparent checks the form of version 00: version, trace id, parent id and flags in lower-case hex, the ids not zero.
func validTraceparent(s string) bool {
	parts := strings.Split(s, "-")
	if len(parts) != 4 || parts[0] != "00" || len(parts[1]) != 32 || len(parts[2]) != 16 || len(parts[3]) != 2 {
		return false
	}
	for _, p := range parts {
		if strings.Trim(p, "0123456789abcdef") != "" {
			return false
		}
	}
	return strings.Trim(parts[1], "0") != "" && strings.Trim(parts[2], "0") != ""
}
