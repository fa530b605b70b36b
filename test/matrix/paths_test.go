package matrix

import (
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X2: a path that differs from that of a call in any letter, or is a call of the supervisor of
// pools, is answered UNIMPLEMENTED with every credential, and changes nothing.
func TestPathsSimilarToCallsAreRefused(t *testing.T) {
	t.Attr("rules", "X2")
	e := newEnvironment(t)
	e.onHost(t, func(h *host) {
		const path = lessorv1.AuthService_RotateKey_FullMethodName
		for _, trick := range []string{
			path + "/", "/" + path, path + "?", path + "#", path + "%00", path + " ", path + ";x",
			strings.ToLower(path), strings.ToUpper(path),
			strings.Replace(path, "/RotateKey", "//RotateKey", 1), strings.Replace(path, "/RotateKey", "/./RotateKey", 1),
			strings.Replace(path, "/RotateKey", "%2FRotateKey", 1), strings.Replace(path, "/RotateKey", "/rotateKey", 1),
			"/grpc.health.v1.Health/.." + path, "/grpc.health.v1.Health/Check" + path, "/AuthService/RotateKey", "/.lessor.v1.AuthService/RotateKey",
			"/lessor.v1.AuthService", "/lessor.v1.AuthService/", "/", "//", lessorv1.PoolService_ListPools_FullMethodName,
		} {
			for _, c := range []credential{{name: "none"}, {name: operator, headers: bearer(h.tokens[acme+" operator"])}} {
				err := h.conn.Invoke(h.with(c.headers), trick, &emptypb.Empty{}, &emptypb.Empty{})
				if status.Code(err) != codes.Unimplemented {
					t.Errorf("%q, credential %s: %v, want UNIMPLEMENTED", trick, c.name, err)
				}
			}
		}
		if left := h.effects(); len(left.records) > 0 || len(left.entries) > 0 {
			t.Errorf("the store has changed: %v", left)
		}
	})
}
