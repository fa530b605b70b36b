package main

import (
	"context"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/encoding/gzip"
	healthv1 "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// callCompressed is the command compressed.
func callCompressed(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: compressed")
	}
	conn, err := grpc.NewClient(ts.Getenv("LESSOR_ADDR"), grpc.WithTransportCredentials(insecure.NewCredentials()))
	ts.Check(err)
	defer func() { _ = conn.Close() }()
	for _, service := range []grpc.ServiceDesc{
		lessorv1.TaskService_ServiceDesc, lessorv1.WorkerService_ServiceDesc, lessorv1.AdminService_ServiceDesc,
		lessorv1.AuthService_ServiceDesc,
		healthv1.Health_ServiceDesc, reflectionv1.ServerReflection_ServiceDesc,
	} {
		var names []string
		for _, m := range service.Methods {
			names = append(names, m.MethodName)
		}
		for _, s := range service.Streams {
			names = append(names, s.StreamName)
		}
		for _, name := range names {
			method := "/" + service.ServiceName + "/" + name
			if st := status.Convert(gzipped(conn, method)); st.Code() != codes.Unimplemented || !strings.Contains(st.Message(), "compressed") {
				ts.Fatalf("%s, compressed with gzip: %v, want UNIMPLEMENTED for that reason", method, st)
			}
		}
	}
}

// gzipped makes a call with an empty message that is compressed, and returns its error. A unary
// call is a stream of one message each way.
func gzipped(conn *grpc.ClientConn, method string) error {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	stream, err := conn.NewStream(ctx, &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.UseCompressor(gzip.Name))
	if err != nil {
		return err
	}
	_ = stream.SendMsg(&emptypb.Empty{}) // RecvMsg says what is wrong
	_ = stream.CloseSend()
	return stream.RecvMsg(&emptypb.Empty{})
}
