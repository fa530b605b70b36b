package worker

import (
	"fmt"
	"net"
	"strings"
	"time"

	"google.golang.org/grpc"
	grpcbackoff "google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/resolver"

	"github.com/lessor-dev/lessor/internal/wire"
)

// keepaliveParams detect a peer that has disappeared without closing the connection. Time is longer
// than the shortest interval that the coordinator permits (10 s); with a shorter one the
// coordinator would close the connection.
var keepaliveParams = keepalive.ClientParameters{
	Time:                20 * time.Second,
	Timeout:             10 * time.Second,
	PermitWithoutStream: true,
}

// connectParams shorten the waits of gRPC: by default, a connection that failed waits up to two
// minutes before it is tried again. ClientConn.ResetConnectBackoff is no alternative, because it
// races with connection attempts.
var connectParams = grpc.ConnectParams{
	Backoff: grpcbackoff.Config{
		BaseDelay:  200 * time.Millisecond,
		Multiplier: 1.6,
		Jitter:     0.2,
		MaxDelay:   5 * time.Second,
	},
	MinConnectTimeout: openTimeout,
}

// Dial makes a connection to a target, HOST:PORT or any other that gRPC knows, with settings that
// suit a worker: keepalive, short waits before reconnecting, answers of any size, and TLS with the
// system's certificates unless the target is on this machine. For other certificates, TLS on this
// machine, or plain text to another one, give grpc.WithTransportCredentials. A Token is sent
// without TLS only to this machine, unless its PlainText is set. If the coordinator refuses a unary
// call because a quota is used up, or because it stops, the call is retried after the wait that the
// coordinator asks for, until a second before the deadline of its context, or at most ten times if
// it has none; one that stops may be away for 30 s. If it refuses the call for the time being for
// another reason, such as a full disk, that is at most ten times. The given opts override these
// settings. Like grpc.NewClient, Dial does not connect yet; it returns an error if the target
// cannot be one, for example because it has no port. The caller closes the connection after Run.
func Dial(target string, opts ...grpc.DialOption) (*grpc.ClientConn, error) {
	if err := checkTarget(target); err != nil {
		return nil, err
	}
	creds := credentials.NewTLS(nil)
	if isLocal(target) {
		creds = newPlainToLocal()
	}
	return grpc.NewClient(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepaliveParams),
		grpc.WithConnectParams(connectParams),
		grpc.WithChainUnaryInterceptor(retryRefusals),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceived),
			grpc.ForceCodecV2(wire.NewCodec())), // a busy worker spends most of its time on reading and writing frames
	}, opts...)...)
}

// checkTarget returns an error unless target has a scheme of gRPC, or is HOST:PORT. gRPC itself
// would connect to port 443 if there is none.
func checkTarget(target string) error {
	scheme, _, found := strings.Cut(target, ":")
	web := scheme == "http" || scheme == "https"
	if found && !web && (resolver.Get(scheme) != nil || strings.Contains(target, "://")) {
		return nil
	}
	_, port, err := net.SplitHostPort(target)
	if err == nil && !web {
		_, err = net.LookupPort("tcp", port)
	}
	if err != nil || web || port == "" {
		return fmt.Errorf("worker: %q is no address; it must be HOST:PORT, such as lessor.example.com:7420, or a target of gRPC such as unix:///run/lessor.sock", target)
	}
	return nil
}

// isLocal reports whether a target is certainly on this machine.
func isLocal(target string) bool {
	if strings.HasPrefix(target, "unix:") || strings.HasPrefix(target, "unix-abstract:") {
		return true
	}
	address := target[strings.LastIndex(target, "/")+1:] // removes the scheme, as in dns:///localhost:7420
	address = strings.TrimPrefix(strings.TrimPrefix(address, "dns:"), "passthrough:")
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		host = address
	}
	ip := net.ParseIP(host)
	ownHost := host == "" && err == nil // ":7420" is this machine, as in net.Dial
	return ownHost || host == "localhost" || (ip != nil && ip.IsLoopback())
}
