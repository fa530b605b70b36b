package coordinator

import (
	"log/slog"
	"net/http"
	"strings"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/httpapi"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// roleCheck checks the role of callers who read the operators' pages over HTTP.
type roleCheck struct {
	gate *gate.Gate
	log  *slog.Logger
}

// require returns a handler that calls next if the caller has one of the roles in asks (X2), and answers with an error otherwise.
func (d roleCheck) require(asks auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx := httpapi.AsCall(r)
		err := d.gate.Request(ctx, strings.TrimPrefix(r.Pattern, "GET "), asks)
		if err == nil {
			next.ServeHTTP(w, r)
			return
		}
		code, level, told := http.StatusUnauthorized, slog.LevelInfo, status.Convert(err)
		switch told.Code() {
		case codes.PermissionDenied:
			code = http.StatusForbidden
		case codes.ResourceExhausted:
			code, level = http.StatusTooManyRequests, slog.LevelDebug
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
		}
		d.log.Log(ctx, level, "request refused", append([]any{
			"type", r.Pattern, "peer.address", r.RemoteAddr, "status", code, "code", refusal.CodeOf(err), "error", told.Message(),
		}, logging.ExtractFields(ctx)...)...)
		answer(w, code, told.Message()+"\n")
	})
}
