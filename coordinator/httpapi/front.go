package httpapi

import (
	"net/http"
	"net/url"
	"path"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
)

// serve finds the route. The mux sends a path that is not straight elsewhere, and answers requests without a route in plain text: both become
// an answer as any other.
func (a *api) serve(w http.ResponseWriter, r *http.Request) {
	if !straight(r.URL) {
		a.refuse(w, r, errNoRoute)
		return
	}
	found, pattern := a.mux.Handler(r)
	if pattern != "" {
		a.mux.ServeHTTP(w, r)
		return
	}
	said := &discarder{header: http.Header{}}
	found.ServeHTTP(said, r)
	if said.status != http.StatusMethodNotAllowed {
		a.refuse(w, r, errNoRoute)
		return
	}
	w.Header().Set("Allow", said.header.Get("Allow"))
	a.refuse(w, r, errNoMethod)
}

// straight reports whether a path is one that nobody on the way would read as another: without "//", "." and "..".
func straight(u *url.URL) bool {
	for _, p := range []string{u.Path, u.EscapedPath()} {
		if clean := path.Clean(p); p != clean && p != clean+"/" {
			return false
		}
	}
	return true
}

// discarder takes an answer of which only the head counts.
type discarder struct {
	header http.Header
	status int
}

func (d *discarder) Header() http.Header            { return d.header }
func (d *discarder) Write(text []byte) (int, error) { return len(text), nil }
func (d *discarder) WriteHeader(status int)         { d.status = status }

// observed tells of every answer.
func (a *api) observed(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &statusSeen{ResponseWriter: w, status: http.StatusOK}
		next.ServeHTTP(seen, r)
		a.Answered(r.Pattern, seen.status)
	})
}

// statusSeen remembers the status of an answer.
type statusSeen struct {
	http.ResponseWriter
	status int
}

// WriteHeader sends the head.
func (s *statusSeen) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap is for http.ResponseController.
func (s *statusSeen) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// plainWriter is the server's own writer, by which MaxBytesReader has the connection closed behind an answer that comes before the end of a body.
func plainWriter(w http.ResponseWriter) http.ResponseWriter {
	if seen, ok := w.(*statusSeen); ok {
		return seen.ResponseWriter
	}
	return w
}

// answer lets a request in, and has it answered.
func (a *api) answer(w http.ResponseWriter, r *http.Request, route string, handle handler) {
	r = r.WithContext(AsCall(r))
	in, leave, err := a.Door.Admit(r.Context(), route)
	if err != nil {
		a.refuse(w, r, failed(err).fromDoor())
		return
	}
	defer leave()
	if p := handle(w, r.WithContext(in)); p != nil {
		a.refuse(w, r, p)
	}
}

// refuse answers with a problem.
func (a *api) refuse(w http.ResponseWriter, r *http.Request, p *problem) {
	hearOut(r, a.MaxBody)
	if !p.logged {
		fields := []any{"type", r.Pattern, "peer.address", r.RemoteAddr, "status", p.status, "code", p.body.Code}
		if p.atDoor { // where nothing was read of what the caller says, and so nothing is told of it
			fields = append(fields, "error", p.body.Message)
		}
		a.Logger.Log(r.Context(), p.level(), "request refused", append(fields, logging.ExtractFields(r.Context())...)...)
	}
	p.write(w)
}
