package main

import (
	"context"
	"math"
	"net"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/worker"
)

const (
	// callTimeout is how long a unary call may take.
	callTimeout = 30 * time.Second
	// maxAnswer is the largest message that a client accepts, in bytes. It must be large, because
	// one answer can have a payload and an output, each as large as the limit that the operator of
	// the coordinator set.
	maxAnswer = math.MaxInt32
	// maxInline is the greatest --limit-payload and --limit-output that a coordinator can have, in
	// bytes.
	maxInline = 64 << 20
)

// server has the flag of every command that talks to a coordinator.
type server struct {
	Addr        string `shared:"" placeholder:"HOST:PORT" default:"127.0.0.1:7420" help:"Coordinator to talk to."`
	credentials `embed:""`
}

// remote has the flags of commands that name tasks and queues within a workspace. The id of a task
// needs none: it is unique in all workspaces.
type remote struct {
	server    `embed:""`
	Workspace string `shared:"" placeholder:"NAME" help:"Workspace of tasks and queues; empty is \"default\"."`
}

// client is a connection to a coordinator.
type client struct {
	*grpc.ClientConn
	tasks lessorv1.TaskServiceClient
	admin lessorv1.AdminServiceClient
	auth  lessorv1.AuthServiceClient
}

// dial returns a client, which connects with its first call. It uses no TLS, unless an option says
// so.
func dial(target string, opts ...grpc.DialOption) (*client, error) {
	conn, err := worker.Dial(target, append([]grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswer)),
		grpc.WithUnaryInterceptor(withTimeout),
		grpc.WithChainUnaryInterceptor(inTrace),
	}, opts...)...)
	if err != nil {
		return nil, fail(exitUsage, "an address is HOST:PORT", "address %q: %v", target, err)
	}
	return &client{
		ClientConn: conn,
		tasks:      lessorv1.NewTaskServiceClient(conn),
		admin:      lessorv1.NewAdminServiceClient(conn),
		auth:       lessorv1.NewAuthServiceClient(conn),
	}, nil
}

// epoch returns the epoch of the coordinator.
func (c *client) epoch(ctx context.Context) (uint32, error) {
	s, err := c.admin.GetStatus(ctx, &lessorv1.GetStatusRequest{})
	return s.GetEpoch(), err
}

// maxPort is the highest port of TCP.
const maxPort = 1<<16 - 1

// checkHostPort refuses an address that is not HOST:PORT. gRPC would treat it as the name of a
// machine, which it could not reach, and net.Listen would take it for every address of this
// machine, or for any port.
func checkHostPort(flag, addr string) error {
	const example = "an address is, for example, 127.0.0.1:7420"
	_, port, err := net.SplitHostPort(addr)
	if err != nil || port == "" {
		return fail(exitUsage, example, "--%s: %q is not HOST:PORT", flag, addr)
	}
	if _, err := net.LookupPort("tcp", port); err == nil {
		return nil
	}
	if strings.Trim(port, "-0123456789") == "" {
		return fail(exitUsage, example, "--%s: the port of %q is out of range; ports are 0 to %d", flag, addr, maxPort)
	}
	return fail(exitUsage, example, "--%s: the port of %q is neither a number nor the name of a service", flag, addr)
}

// withTimeout bounds every unary call. One that asks the coordinator to wait for something has that
// time in addition.
func withTimeout(
	ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker,
	opts ...grpc.CallOption,
) error {
	timeout := callTimeout
	if waits, ok := req.(interface{ GetWait() *durationpb.Duration }); ok {
		timeout += waits.GetWait().AsDuration()
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := invoke(ctx, method, req, reply, conn, opts...)
	deadline, _ := ctx.Deadline()
	// the coordinator knows the deadline, and came to it first
	if s := status.Convert(err); strings.HasPrefix(s.Message(), streamReset) && time.Until(deadline) < time.Second {
		return status.FromContextError(context.DeadlineExceeded).Err()
	}
	return err
}

// notedWait is the shortest wait for a coordinator that is noted.
const notedWait = time.Second

// noteWait returns an interceptor that notes, once, that the command waits because the coordinator
// has refused a call and asked to repeat it later. The connection repeats such calls (see
// worker.Dial), and the user would see nothing until then.
func (a *app) noteWait() grpc.UnaryClientInterceptor {
	var once sync.Once
	return func(ctx context.Context, method string, req, reply any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		err := invoke(ctx, method, req, reply, conn, opts...)
		deadline, _ := ctx.Deadline()
		left := time.Until(deadline)
		st := status.Convert(err)
		repeated := st.Code() == codes.ResourceExhausted || detail.ReasonOf(st) == "COORDINATOR_STOPPING"
		if wait, asked := retryDelay(st); repeated && asked && notedWait <= wait && wait < left {
			once.Do(func() { a.note("waiting up to %v: %s", left.Round(time.Second), printable(explain(err).text)) })
		}
		return err
	}
}

// with calls use with a connection, which has these interceptors beside its own, and closes it.
func (r server) with(a *app, use func(*client) error, inner ...grpc.UnaryClientInterceptor) error {
	c, err := r.dial(r.Addr, grpc.WithChainUnaryInterceptor(a.noteWait()), grpc.WithChainUnaryInterceptor(inner...))
	if err != nil {
		return err
	}
	defer func() { _ = c.Close() }()
	return use(c)
}
