package docs_test

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// listServices does what `grpcurl list` does: it asks the server by reflection.
func listServices(t *testing.T, conn *grpc.ClientConn) string {
	t.Helper()
	stream, err := reflectionv1.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	request := &reflectionv1.ServerReflectionRequest{MessageRequest: &reflectionv1.ServerReflectionRequest_ListServices{}}
	if err := errors.Join(stream.Send(request), stream.CloseSend()); err != nil {
		t.Fatal(err)
	}
	answer, err := stream.Recv()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
		t.Fatalf("reflection ends with %v, want EOF", err)
	}
	var names []string
	for _, service := range answer.GetListServicesResponse().GetService() {
		names = append(names, service.GetName()+"\n")
	}
	slices.Sort(names)
	return strings.Join(names, "")
}

// describe does what `grpcurl describe MESSAGE` does, for a message with singular fields.
func describe(t *testing.T, message string) string {
	t.Helper()
	desc := find[protoreflect.MessageDescriptor](t, message)
	text := fmt.Sprintf("%s is a message:\nmessage %s {\n", desc.FullName(), desc.Name())
	for i := range desc.Fields().Len() {
		field := desc.Fields().Get(i)
		kind := field.Kind().String()
		if field.Message() != nil {
			kind = "." + string(field.Message().FullName())
		}
		text += fmt.Sprintf("  %s %s = %d;\n", kind, field.Name(), field.Number())
	}
	return text + "}\n"
}

// find looks up a symbol in the generated code.
func find[D protoreflect.Descriptor](t *testing.T, name string) D {
	t.Helper()
	found, err := protoregistry.GlobalFiles.FindDescriptorByName(protoreflect.FullName(strings.ReplaceAll(name, "/", ".")))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	desc, ok := found.(D)
	if !ok {
		t.Fatalf("%s is a %T", name, found)
	}
	return desc
}
