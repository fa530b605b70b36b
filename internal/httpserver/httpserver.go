// Package httpserver makes HTTP servers whose clients cannot hold them up, for the coordinator and
// the other commands.
package httpserver

import (
	"log/slog"
	"net/http"
	"time"
)

// What a server allows each request and connection.
const (
	// ReadTimeout is how long a request may take to arrive, with its body.
	ReadTimeout = 10 * time.Second
	// WriteTimeout is how long an answer may take from the end of the request's head, the work for
	// it included.
	WriteTimeout = 30 * time.Second

	readHeaderTimeout = 5 * time.Second
	idleTimeout       = time.Minute
	maxHeader         = 16 << 10 // bytes
)

// New returns a server for the handler. It logs panics and failed TLS handshakes as warnings.
func New(handler http.Handler, log slog.Handler) *http.Server {
	return &http.Server{
		Handler:           handler,
		ErrorLog:          slog.NewLogLogger(log, slog.LevelWarn),
		ReadHeaderTimeout: readHeaderTimeout,
		ReadTimeout:       ReadTimeout,
		WriteTimeout:      WriteTimeout,
		IdleTimeout:       idleTimeout,
		MaxHeaderBytes:    maxHeader,
	}
}
