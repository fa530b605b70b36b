package coordinator

import (
	"crypto/tls"
	"runtime/debug"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/otel/propagation"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/reflection"
	"google.golang.org/grpc/stats"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/preauth"
	"github.com/lessor-dev/lessor/coordinator/recvlimit"
	"github.com/lessor-dev/lessor/coordinator/reqcodec"
	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	"github.com/lessor-dev/lessor/coordinator/session"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/uncompressed"
	"github.com/lessor-dev/lessor/internal/wire"
)

// Settings of the gRPC server. The defaults of gRPC are unsafe for a server of long streams.
const (
	// maxStreams is how many calls of one connection run at once. A Lease that waits for work must
	// not block the worker's heartbeats.
	maxStreams       = 1024
	maxHeaderBytes   = 16 << 10 // of a request
	connectTimeout   = 10 * time.Second
	pingAfter        = 20 * time.Second // without traffic
	pingTimeout      = 10 * time.Second
	minPingInterval  = 10 * time.Second // a client may not ping more often, with or without an open session
	maxConnectionAge = time.Hour
	connectionGrace  = 2 * time.Minute // longer than any unary call waits
	streamWindow     = recvlimit.Window
	connectionWindow = 256 << 10
	writeBuffer      = 32 << 10 // taken only while something is sent, as is readBuffer while something is read
	readBuffer       = 32 << 10
	tlsReadBuffer    = 4 << 10 // every connection keeps it; TLS has a larger one of its own
)

// newGRPC returns the gRPC server, without its services.
func (c *Coordinator) newGRPC(through chain) *grpc.Server {
	cfg := &c.cfg
	options := []grpc.ServerOption{
		grpc.Creds(c.recvLimiter.Handshakes(transport(cfg.TLS, c.connLimiter))),
		grpc.InTapHandle(preauth.NewCallLimiter(c.gate, cfg.Connections.Most).Tap),
		grpc.ChainUnaryInterceptor(through.unary...),
		grpc.ChainStreamInterceptor(through.stream...),
		grpc.ForceServerCodecV2(newCodec()),
		grpc.StatsHandler(sendlimit.Handler{}),
		grpc.StatsHandler(c.metrics.frames),
		grpc.MaxConcurrentStreams(maxStreams),
		grpc.MaxRecvMsgSize(cfg.maxMessage()),
		grpc.MaxHeaderListSize(maxHeaderBytes),
		grpc.ConnectionTimeout(connectTimeout),
		grpc.KeepaliveParams(keepalive.ServerParameters{
			Time:                  pingAfter,
			Timeout:               pingTimeout,
			MaxConnectionAge:      maxConnectionAge,
			MaxConnectionAgeGrace: connectionGrace,
		}),
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{
			MinTime:             minPingInterval,
			PermitWithoutStream: true,
		}),
		grpc.StaticStreamWindowSize(streamWindow),
		grpc.StaticConnWindowSize(connectionWindow),
		grpc.ReadBufferSize(readBufferSize(cfg.TLS)),
		grpc.WriteBufferSize(writeBuffer),
		grpc.WaitForHandlers(true),
	}
	if p := cfg.TracerProvider; p != nil {
		options = append(options, grpc.StatsHandler(otelgrpc.NewServerHandler(otelgrpc.WithFilter(worthASpan), otelgrpc.WithTracerProvider(p),
			otelgrpc.WithPropagators(propagation.TraceContext{}))))
	}
	return grpc.NewServer(options...)
}

// register adds the services to the gRPC server and to within, which serves calls from within the
// process. The gRPC handlers are wrapped, see reqcodec.Guard and uncompressed.Server.
func (c *Coordinator) register(within *local) {
	s, server := c.services, uncompressed.Server{Server: c.grpc}
	server.RegisterService(c.submitLimiter.Unary(reqcodec.Guard(&lessorv1.TaskService_ServiceDesc, true, nil)), s.Tasks)
	server.RegisterService(reqcodec.Guard(&lessorv1.WorkerService_ServiceDesc, false, s.MalformedReports()), s.Workers)
	server.RegisterService(reqcodec.Guard(&lessorv1.AdminService_ServiceDesc, true, nil), s.Admin)
	server.RegisterService(reqcodec.Guard(&lessorv1.AuthService_ServiceDesc, true, nil), s.Auth)
	within.RegisterService(&lessorv1.TaskService_ServiceDesc, s.Tasks)
	within.RegisterService(&lessorv1.WorkerService_ServiceDesc, s.Workers)
	within.RegisterService(&lessorv1.AdminService_ServiceDesc, s.Admin)
	healthv1.RegisterHealthServer(server, c.health)
	reflection.Register(server)
	c.health.SetServingStatus("", healthv1.HealthCheckResponse_NOT_SERVING)
}

// What calls under way may take in memory, in bytes. Variables so that tests can make them small.
var (
	// mostRecvBytes is for messages that were begun and not finished, of all connections together.
	mostRecvBytes int64 = 512 << 20
	// mostSubmitBytes is for submits. It is several commits, so that the disk always has work.
	mostSubmitBytes = 64 << 20
)

// memoryShare is the part of the memory limit that each of these may be, if that is less.
const memoryShare = 8

func withinMemory(most int64) int64 { return min(most, debug.SetMemoryLimit(-1)/memoryShare) }

func readBufferSize(cfg *tls.Config) int {
	if cfg != nil {
		return tlsReadBuffer
	}
	return readBuffer
}

// transport returns the credentials of the gRPC listener; without a TLS configuration it is plain
// text.
func transport(cfg *tls.Config, limiter *preauth.ConnLimiter) credentials.TransportCredentials {
	if cfg == nil {
		return preauth.Plain(insecure.NewCredentials())
	}
	return limiter.Handshakes(credentials.NewTLS(withProtocol(cfg, "h2")))
}

// withProtocol returns a copy of cfg that negotiates one protocol (ALPN). The two listeners share
// the rest of the configuration.
func withProtocol(cfg *tls.Config, protocol string) *tls.Config {
	cfg = cfg.Clone()
	cfg.NextProtos = []string{protocol}
	if choose := cfg.GetConfigForClient; choose != nil {
		cfg.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
			chosen, err := choose(hello)
			if chosen == nil || err != nil {
				return chosen, err
			}
			return withProtocol(chosen, protocol), nil
		}
	}
	return cfg
}

// codec encodes and decodes as grpc does, with some exceptions. From the outside in: an answer that
// can be large holds a place until it is sent (sendlimit.Encode); a frame that cannot be decoded
// does not fail the stream (session.Codec), nor does a request of a handler that reqcodec.Guard has
// wrapped, and a message with too many entries is refused (reqcodec.NewCodec); and the error about
// a string that is not valid UTF-8 names its field (convert.Codec).
type codec struct{ session.Codec }

func newCodec() encoding.CodecV2 {
	return codec{session.Codec{CodecV2: reqcodec.NewCodec(convert.Codec{CodecV2: wire.NewCodec()})}}
}

// Marshal encodes a message, see sendlimit.Encode.
func (codec) Marshal(v any) (mem.BufferSlice, error) { return sendlimit.Encode(v) }

// worthASpan reports whether a call is traced. Calls that last as long as their client likes are
// not, nor are probes, because such a span is of no use.
func worthASpan(info *stats.RPCTagInfo) bool {
	switch info.FullMethodName {
	case lessorv1.WorkerService_Session_FullMethodName, lessorv1.TaskService_SubmitStream_FullMethodName, lessorv1.TaskService_WatchTask_FullMethodName,
		lessorv1.TaskService_AwaitTasks_FullMethodName,
		lessorv1.AdminService_FollowStore_FullMethodName, healthv1.Health_Watch_FullMethodName,
		healthv1.Health_Check_FullMethodName:
		return false
	}
	return true
}
