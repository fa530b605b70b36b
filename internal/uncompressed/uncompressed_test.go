package uncompressed_test

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/gzip" // registers it
	"google.golang.org/grpc/health"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/internal/uncompressed"
)

// serve returns a client of a server that has the service of health, which register registers.
func serve(t *testing.T, register func(*grpc.Server, healthv1.HealthServer)) healthv1.HealthClient {
	t.Helper()
	lis := bufconn.Listen(1 << 16)
	server := grpc.NewServer()
	register(server, health.NewServer())
	go func() { _ = server.Serve(lis) }()
	t.Cleanup(server.Stop)
	conn, err := grpc.NewClient("passthrough:///x", grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return lis.DialContext(ctx) }))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return healthv1.NewHealthClient(conn)
}

// X5: a call that says that it is compressed is refused before a message is read, although the
// process has registered the encoding. Without the guard it is served.
func TestCompressedCallsAreRefused(t *testing.T) {
	t.Attr("rules", "X5")
	bare := func(s *grpc.Server, h healthv1.HealthServer) { healthv1.RegisterHealthServer(s, h) }
	guarded := func(s *grpc.Server, h healthv1.HealthServer) {
		healthv1.RegisterHealthServer(uncompressed.Server{Server: s}, h)
	}
	for _, tt := range []struct {
		name, encoding string
		register       func(*grpc.Server, healthv1.HealthServer)
		want           codes.Code
	}{
		{"bare, gzip", gzip.Name, bare, codes.OK},
		{"guarded, gzip", gzip.Name, guarded, codes.Unimplemented},
		{"guarded, identity", encoding.Identity, guarded, codes.OK},
		{"guarded, none", "", guarded, codes.OK},
	} {
		client := serve(t, tt.register)
		_, err := client.Check(t.Context(), &healthv1.HealthCheckRequest{}, grpc.UseCompressor(tt.encoding))
		if got := status.Code(err); got != tt.want {
			t.Errorf("%s: a unary call got %v, want %v", tt.name, err, tt.want)
		}
		stream, err := client.Watch(t.Context(), &healthv1.HealthCheckRequest{}, grpc.UseCompressor(tt.encoding))
		if err != nil {
			t.Fatal(err)
		}
		_, err = stream.Recv()
		if got := status.Code(err); got != tt.want {
			t.Errorf("%s: a stream got %v, want %v", tt.name, err, tt.want)
		}
	}
}
