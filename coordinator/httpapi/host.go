package httpapi

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
)

// asksUs protects a coordinator that requires no credentials from other web pages in a browser on
// the same machine. Such a page can make its own host name resolve to the loopback address (DNS
// rebinding). Its requests then count as same-origin, and differ from those of local users only in
// the Host header. So asksUs refuses requests that arrive over the loopback and name another host.
// Health checks and metrics may use any name.
func (a *api) asksUs(next http.Handler) http.Handler {
	if !a.Open {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		guarded := func(prefix string) bool { return strings.HasPrefix(r.URL.Path, prefix) }
		if slices.ContainsFunc(showsTasks, guarded) && overLoopback(r) && !ours(r.Host, a.Host) {
			a.refuse(w, r, errOtherHost)
			return
		}
		next.ServeHTTP(w, r)
	})
}

// showsTasks are the paths below which a request can see or change tasks.
var showsTasks = []string{"/v1/", "/ui/", "/debug/"}

// overLoopback reports whether a request arrived on an address that only this machine can reach.
func overLoopback(r *http.Request) bool {
	at, ok := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	return ok && at.IP.IsLoopback()
}

// ours reports whether the host of a request means this coordinator, so that no foreign DNS entry
// can be in play. This is so if the host is an address, a name of the loopback, the name by which
// workers know this machine, or empty.
func ours(host, known string) bool {
	name := host
	if without, _, err := net.SplitHostPort(host); err == nil {
		name = without
	}
	name = strings.ToLower(strings.TrimSuffix(strings.Trim(name, "[]"), "."))
	_, err := netip.ParseAddr(name)
	return err == nil || name == "" || name == "localhost" || strings.HasSuffix(name, ".localhost") ||
		name == strings.ToLower(known)
}
