package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// asksUs refuses requests that come over the loopback and name another host, where nobody is asked for credentials. A page in a browser on this machine
// may have a name of its own mean the loopback (DNS rebinding): then its requests are of no other origin, and the name alone tells them from those of
// the people of this machine. Who asks whether the coordinator lives, or for its numbers, may call it what they like.
func (a *api) asksUs(next http.Handler) http.Handler {
	if !a.Open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded := strings.HasPrefix(r.URL.Path, "/v1/") || strings.HasPrefix(r.URL.Path, "/debug/")
		if guarded && overLoopback(r) && !ours(r.Host, a.Host) {
			a.refuse(w, r, errOtherHost)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// overLoopback reports whether a request came in where this machine alone can reach it.
func overLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// ours reports whether nobody else can give a meaning to the host of a request: it is an address, a name of the loopback, the name that workers know
// us by, or none.
func ours(host, known string) bool {
	name := host
	if without, _, err := net.SplitHostPort(host); err == nil {
		name = without
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	_, err := netip.ParseAddr(name)
	return err == nil || name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || name == strings.ToLower(known)
}
