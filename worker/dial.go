package worker

import (
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/lessor-dev/lessor/internal/wire"
)

// keepaliveParams notice a peer that is gone without a word. They stay above the least interval that the coordinator
// permits (10 s), or it would cut the connection.
var keepaliveParams = keepalive.ClientParameters{
	Time:                20 * time.Second,
	Timeout:             10 * time.Second,
	PermitWithoutStream: true,
}

// connectParams keep a worker from staying away for long after an outage: by default a connection that failed waits up to
// two minutes. ClientConn.ResetConnectBackoff is no way out, because it races with the making of connections.
var connectParams = grpc.ConnectParams{
	Backoff:           grpcbackoff.Config{BaseDelay: 200 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 5 * time.Second},
	MinConnectTimeout: openTimeout,
}

// Dial makes a connection with settings that suit a worker: keepalive, short waits before connecting again, and TLS with
// the system's certificates unless the target is on this machine. For other certificates, or TLS on this machine, give
// grpc.WithTransportCredentials. A unary call that the coordinator refuses because a quota is used up is made again after the wait
// that the coordinator asks for, at most ten times and as long as its context allows. The given opts override these settings. Like
// grpc.NewClient, Dial does not connect yet. The caller closes the connection after Run.
func Dial(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	creds := credentials.NewTLS(nil)
	if isLocal(target) {
		creds = insecure.NewCredentials()
	}
	return grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepaliveParams),
		grpc.WithConnectParams(connectParams),
		grpc.WithChainUnaryInterceptor(retryQuotaRefusals),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(wire.NewCodec())), // a busy worker reads and writes more than all else
	}, opts...)...)
}

// isLocal reports whether a target cannot be anywhere but on this machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	address := target[strings.LastIndex(target, "/")+1:] // leaves out the scheme: dns:///localhost:7420
	address = strings.TrimPrefix(strings.TrimPrefix(address, "dns:"), "passthrough:")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	ownHost := host == "" && err == nil // ":7420", as net.Dial has it
	return ownHost || host == "localhost" || (ip != nil && ip.IsLoopback())
}
