package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"strings"
)

// asksUs protects a coordinator that asks for no credentials from pages in a browser on the same machine. Such a page can make a name of its own
// resolve to the loopback (DNS rebinding). Its requests then have no other origin, and only the Host header differs from that of the people on this
// machine. So asksUs refuses requests that come over the loopback and name another host. Health checks and metrics may use any name.
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

// overLoopback reports whether a request came in on an address that only this machine can reach.
func overLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// ours reports whether the host of a request can only mean us, whatever others put into the DNS: it is an address, a name of the loopback, the name
// by which workers know us, or empty.
func ours(host, known string) bool {
	name := host
	if without, _, err := net.SplitHostPort(host); err == nil {
		name = without
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	_, err := netip.ParseAddr(name)
	return err == nil || name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") || name == strings.ToLower(known)
}
