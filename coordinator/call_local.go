package coordinator

import (
	"context"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/refusal"
)

// local calls the services from within the process, for the HTTP API and the page. A call passes
// the same interceptors and handlers as a call over gRPC, so it is judged in the same way. Only the
// encoding and decoding of messages is left out.
type local struct {
	through chain
	methods map[string]localMethod // by full name
	streams map[string]localStream
}

type localMethod struct {
	server any
	handle grpc.MethodHandler
}

type localStream struct {
	server        any
	handle        grpc.StreamHandler
	clientStreams bool
}

func newLocal(through chain) *local {
	return &local{through: through, methods: map[string]localMethod{}, streams: map[string]localStream{}}
}

// RegisterService adds a service; see grpc.ServiceRegistrar.
func (l *local) RegisterService(desc *grpc.ServiceDesc, server any) {
	for _, m := range desc.Methods {
		l.methods["/"+desc.ServiceName+"/"+m.MethodName] = localMethod{server, m.Handler}
	}
	for _, s := range desc.Streams {
		l.streams["/"+desc.ServiceName+"/"+s.StreamName] = localStream{server, s.Handler, s.ClientStreams}
	}
}

// Invoke makes a unary call, see grpc.ClientConnInterface. ctx must hold metadata and peer like the
// context of an incoming call.
func (l *local) Invoke(ctx context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	m, ok := l.methods[method]
	if !ok {
		return unimplemented(method)
	}
	read := func(into any) error {
		proto.Merge(into.(proto.Message), request.(proto.Message))
		return nil
	}
	told, err := m.handle(m.server, ctx, read, l.through.callUnary)
	if err != nil {
		return asStatus(err)
	}
	proto.Merge(answer.(proto.Message), told.(proto.Message))
	return nil
}

// refuseUnreadable makes a call whose HTTP request could not be read, see httpapi.Config. The
// interceptors may refuse the call first, for example because of a bad credential. Otherwise it is
// refused with what the HTTP API tells the caller, so that the log says the same. That may quote
// the name of a field or a short value, as errors of gRPC calls do, but nothing of a payload.
func (l *local) refuseUnreadable(ctx context.Context, method string, request proto.Message, code, told string) error {
	info := &grpc.UnaryServerInfo{Server: l.methods[method].server, FullMethod: method}
	_, err := l.through.callUnary(ctx, request, info, func(context.Context, any) (any, error) {
		return nil, refusal.New(codes.InvalidArgument, code, told, nil)
	})
	return asStatus(err)
}

// NewStream makes a call with a stream of answers, see grpc.ClientConnInterface. The caller sends
// one request, also on a stream that takes more.
func (l *local) NewStream(
	ctx context.Context, _ *grpc.StreamDesc, method string, _ ...grpc.CallOption,
) (grpc.ClientStream, error) {
	s, ok := l.streams[method]
	if !ok {
		return nil, unimplemented(method)
	}
	info := &grpc.StreamServerInfo{FullMethod: method, IsClientStream: s.clientStreams, IsServerStream: true}
	return newPipe(ctx, func(stream grpc.ServerStream) error {
		return asStatus(l.through.callStream(s.server, stream, info, s.handle))
	}), nil
}

func unimplemented(method string) error {
	return status.Errorf(codes.Unimplemented, "%s cannot be called from within", strings.TrimPrefix(method, "/"))
}

// asStatus converts err to the status error that a gRPC client would get.
func asStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}
