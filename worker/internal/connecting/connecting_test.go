package connecting_test

import (
	"crypto/tls"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/worker/internal/connecting"
)

// Why tells the port for HTTP, with TLS or without, from a coordinator that requires TLS. gRPC
// itself writes what Why reads here.
func TestWhy(t *testing.T) {
	plain, withTLS := insecure.NewCredentials(), credentials.NewTLS(&tls.Config{InsecureSkipVerify: true})
	const noGRPC = "the server at that address does not speak gRPC; the address must be that of serve --listen, not of --http"
	for name, test := range map[string]struct {
		creds credentials.TransportCredentials
		serve func(*testing.T) (address string)
		want  string
	}{
		"HTTP":                {plain, func(t *testing.T) string { return serveHTTP(t, false) }, noGRPC},
		"HTTPS":               {withTLS, func(t *testing.T) string { return serveHTTP(t, true) }, noGRPC},
		"TLS only there":      {plain, serveTLS, "the coordinator may require TLS"},
		"TLS only here, HTTP": {withTLS, func(t *testing.T) string { return serveHTTP(t, false) }, "the coordinator does not use TLS"},
	} {
		t.Run(name, func(t *testing.T) {
			conn, err := grpc.NewClient(test.serve(t), grpc.WithTransportCredentials(test.creds))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = conn.Close() }()
			_, err = lessorv1.NewTaskServiceClient(conn).GetTask(t.Context(), &lessorv1.GetTaskRequest{})
			message := status.Convert(err).Message()
			if got := connecting.Why(message); strings.Count(got, "(") != 1 || !strings.Contains(got, "("+test.want) {
				t.Errorf("Why(%q) = %q, want the one hint %q", message, got, test.want)
			}
		})
	}
}

// serveHTTP serves HTTP/1, with TLS or without.
func serveHTTP(t *testing.T, withTLS bool) (address string) {
	server := httptest.NewUnstartedServer(http.NotFoundHandler())
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	if withTLS {
		server.StartTLS() // without HTTP/2, because EnableHTTP2 is not set
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	return server.Listener.Addr().String()
}

// serveTLS accepts TLS only, as a coordinator with --tls-cert does.
func serveTLS(t *testing.T) (address string) {
	source := httptest.NewTLSServer(http.NotFoundHandler()) // has a certificate
	t.Cleanup(source.Close)
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(&source.TLS.Certificates[0])))
	go func() { _ = server.Serve(inner) }()
	t.Cleanup(server.Stop)
	return inner.Addr().String()
}
