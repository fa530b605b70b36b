package coordinator

import (
	"net/http"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// let is next for callers with a credential of one of the roles (X2). It comes with the request, as with a call of gRPC.
func (a *authenticator) let(asks auth.Role, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		token, err := bearer(r.Header.Values("Authorization"))
		var who identity
		if err == nil {
			who, err = a.authenticate(token, r.TLS)
		}
		switch {
		case err != nil:
			w.Header().Set("WWW-Authenticate", "Bearer")
			answer(w, http.StatusUnauthorized, err.Error()+"\n")
		case !who.Role.Has(asks):
			refused := &roleError{what: r.URL.Path, has: who.Role, asks: asks}
			answer(w, http.StatusForbidden, refused.Error()+"\n")
		default:
			next.ServeHTTP(w, r)
		}
	})
}
