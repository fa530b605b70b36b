package httpapi

import (
	"net/http"
	"net/url"
	"path"
	"unicode/utf8"

	"github.com/grpc-ecosystem/go-grpc-middleware/v2/interceptors/logging"
)

// serve finds the route of a request. Without serve, the mux would redirect a path that is not
// clean, and would answer a request without a route in plain text. serve answers both with a
// problem.
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
	a.refuseMethod(w, r, said.header.Get("Allow"))
}

// refuseMethod answers a request for a path that has only other methods.
func (a *api) refuseMethod(w http.ResponseWriter, r *http.Request, allowed string) {
	w.Header().Set("Allow", allowed)
	a.refuse(w, r, errNoMethod)
}

// straight reports whether a path is UTF-8 and clean, that is, without "//", "." and "..". A proxy
// could read another path as a different one. Over gRPC all texts are UTF-8, so the rest of the
// coordinator relies on it.
func straight(u *url.URL) bool {
	if !utf8.ValidString(u.Path) {
		return false
	}
	for _, p := range []string{u.Path, u.EscapedPath()} {
		if clean := path.Clean(p); p != clean && p != clean+"/" {
			return false
		}
	}
	return true
}

// discarder discards the body of an answer and keeps its head.
type discarder struct {
	header http.Header
	status int
}

func (d *discarder) Header() http.Header            { return d.header }
func (d *discarder) Write(text []byte) (int, error) { return len(text), nil }
func (d *discarder) WriteHeader(status int)         { d.status = status }

// observed calls Answered after every request.
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

// WriteHeader sends the head, and remembers the status.
func (s *statusSeen) WriteHeader(status int) {
	s.status = status
	s.ResponseWriter.WriteHeader(status)
}

// Unwrap lets http.ResponseController find the writer of the server.
func (s *statusSeen) Unwrap() http.ResponseWriter { return s.ResponseWriter }

// plainWriter returns the server's own writer. MaxBytesReader needs it to close the connection
// after an answer that is sent before the end of the body.
func plainWriter(w http.ResponseWriter) http.ResponseWriter {
	if seen, ok := w.(*statusSeen); ok {
		return seen.ResponseWriter
	}
	return w
}

// answer admits a request and handles it, or refuses it.
func (a *api) answer(w http.ResponseWriter, r *http.Request, route string, handle handler) {
	r = r.WithContext(AsCall(r))
	in, leave, err := a.Door.Admit(r.Context(), route, r.PathValue("task_id"))
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
		if p.atDoor { // the message cannot quote the request, which was not read yet
			fields = append(fields, "error", p.body.Message)
		}
		a.Logger.Log(r.Context(), p.level(), "request refused",
			append(fields, logging.ExtractFields(r.Context())...)...)
	}
	p.write(w)
}
