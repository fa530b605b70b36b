package coordinator

import (
	"net/http"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// let is next for callers with a credential of one of the roles (X2). It comes with the request, as with a call of gRPC.
func (a *authenticator) let(asks auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := bearer(r.Header.Values("Authorization"))
		var who identity
		if err == nil {
			who, err = a.authenticate(token, r.TLS)
		}
		if err != nil {
			err = a.attempts.FailedRequest(r, err)
		}
		switch {
		case status.Code(err) == codes.ResourceExhausted:
			answer(w, http.StatusTooManyRequests, status.Convert(err).Message()+"\n")
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, status.Convert(err).Message()+"\n")
		case !who.Role.Has(asks):
			refused := &refusal.RoleError{What: r.URL.Path, Has: who.Role, Asks: asks}
			answer(w, http.StatusForbidden, refused.Error()+"\n")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
