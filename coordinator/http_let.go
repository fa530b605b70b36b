package coordinator

import (
	"errors"
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// let is next for callers with a credential of one of the roles (X2).
func let(g *gate.Gate, asks auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		err := g.Request(r, asks)
		role := (*refusal.RoleError)(nil)
		switch {
		case err == nil:
			next.ServeHTTP(w, r)
		case errors.As(err, &role):
			answer(w, http.StatusForbidden, role.Error()+"\n")
		case status.Code(err) == codes.ResourceExhausted:
			answer(w, http.StatusTooManyRequests, status.Convert(err).Message()+"\n")
		default:
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, status.Convert(err).Message()+"\n")
		}
	})
}
