package pool

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/readiness"
)

// Limits of the listener. Its callers are processes of this machine, and what they send is small.
const (
	maxBody     = 64 << 10
	callTimeout = 10 * time.Second
	closeWait   = time.Second
)

// listener serves gRPC, JSON and metrics on one port.
type listener struct {
	http   *http.Server
	grpc   *grpc.Server
	served chan error
}

// serve serves l; if that fails, it calls broken.
func (s *Supervisor) serve(l net.Listener, broken func()) *listener {
	protocols := new(http.Protocols)
	protocols.SetHTTP1(true)
	protocols.SetUnencryptedHTTP2(true)
	calls := s.grpcServer()
	pages := s.pages()
	server := &listener{grpc: calls, served: make(chan error, 1), http: &http.Server{
		Protocols:      protocols,
		ReadTimeout:    callTimeout,
		WriteTimeout:   callTimeout,
		IdleTimeout:    time.Minute,
		MaxHeaderBytes: maxBody,
		ErrorLog:       slog.NewLogLogger(s.log.Handler(), slog.LevelWarn),
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.ProtoMajor == 2 && strings.HasPrefix(r.Header.Get("Content-Type"), "application/grpc") {
				calls.ServeHTTP(w, r)
				return
			}
			pages.ServeHTTP(w, r)
		}),
	}}
	go func() {
		err := server.http.Serve(l)
		if errors.Is(err, http.ErrServerClosed) {
			err = nil
		}
		server.served <- err
		broken()
	}()
	return server
}

// close waits for calls that are being answered. The error is that of serving.
func (l *listener) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), closeWait)
	defer cancel()
	if err := l.http.Shutdown(ctx); err != nil {
		_ = l.http.Close()
	}
	l.grpc.Stop()
	return <-l.served
}

func (s *Supervisor) grpcServer() *grpc.Server {
	server := grpc.NewServer(
		grpc.MaxRecvMsgSize(maxBody),
		grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, next grpc.UnaryHandler) (resp any, err error) {
			switch req.(type) {
			case *lessorv1.NotifyReadyRequest, *lessorv1.NotifyFailedRequest:
				began := time.Now()
				defer func() { s.notified(began, err) }()
			}
			if err := s.authorize(ctx); err != nil {
				return nil, err
			}
			return next(ctx, req)
		}),
		grpc.StreamInterceptor(func(srv any, stream grpc.ServerStream, _ *grpc.StreamServerInfo, next grpc.StreamHandler) error {
			if err := s.authorize(stream.Context()); err != nil {
				return err
			}
			return next(srv, stream)
		}),
	)
	lessorv1.RegisterPoolServiceServer(server, service{Supervisor: s})
	reflection.Register(server) // for grpcurl
	return server
}

func (s *Supervisor) authorize(ctx context.Context) error {
	return s.authorized(metadata.ValueFromIncomingContext(ctx, "authorization"))
}

// authorized checks the values of the header authorization. The error is UNAUTHENTICATED.
func (s *Supervisor) authorized(values []string) error {
	if len(values) == 1 {
		if scheme, token, found := strings.Cut(values[0], " "); found && strings.EqualFold(scheme, "bearer") &&
			sameToken(token, s.token) {
			return nil
		}
	}
	return status.Error(codes.Unauthenticated,
		"the header authorization must be \"Bearer\" and the token of "+readiness.VarPoolToken)
}

// maxProblem is how much of a problem is logged, in bytes: it may repeat what the caller has sent.
const maxProblem = 512

// notified counts a notification that was answered with err. One of a worker that was refused is
// logged; one without the token may come from anybody on the machine, who must not fill the log.
func (s *Supervisor) notified(began time.Time, err error) {
	code := status.Code(err)
	s.counts.callbacks.WithLabelValues(code.String()).Observe(time.Since(began).Seconds())
	if err == nil || code == codes.Unauthenticated {
		return
	}
	problem := status.Convert(err).Message()
	s.log.Warn("notification refused", "code", code.String(), "problem", problem[:min(len(problem), maxProblem)])
}
