package worker

import (
	"context"
	"net"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// elsewhere is a connection whose other end is on another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 7420} }

// X1: without TLS, Dial sends a token to this machine, as the documents say, and not to another one
// that a local name leads to.
func TestTokenWithoutTLSStaysOnThisMachine(t *testing.T) {
	t.Attr("rules", "X1")
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	tokens := make(chan []string, 2)
	server := grpc.NewServer(grpc.UnknownServiceHandler(func(_ any, stream grpc.ServerStream) error {
		md, _ := metadata.FromIncomingContext(stream.Context())
		tokens <- md.Get("authorization")
		return status.Error(codes.NotFound, "no such task")
	}))
	served := make(chan error, 1)
	go func() { served <- server.Serve(lis) }()
	for name, test := range map[string]struct {
		wrap func(net.Conn) net.Conn
		want codes.Code
	}{
		"this machine": {func(c net.Conn) net.Conn { return c }, codes.NotFound},
		"another one":  {func(c net.Conn) net.Conn { return elsewhere{c} }, codes.Unavailable},
	} {
		conn, err := Dial(lis.Addr().String(), grpc.WithPerRPCCredentials(StaticToken("secret")),
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				c, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
				if err != nil {
					return nil, err
				}
				return test.wrap(c), nil
			}))
		if err != nil {
			t.Fatal(err)
		}
		_, err = lessorv1.NewTaskServiceClient(conn).GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: "t"})
		if status.Code(err) != test.want {
			t.Errorf("%s: GetTask = %v, want %v", name, err, test.want)
		}
		_ = conn.Close()
	}
	server.Stop()
	if err := <-served; err != nil {
		t.Error(err)
	}
	if got := <-tokens; len(got) != 1 || got[0] != "Bearer secret" || len(tokens) > 0 {
		t.Errorf("the server got %v, and %d calls more; want the token once", got, len(tokens))
	}
}
