package coordinator

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// A panic in a handler fails only its own call, with INTERNAL. The log has the stack.
func TestPanicIsAnInternalError(t *testing.T) {
	var log bytes.Buffer
	open, err := gate.New(gate.Deps{Quotas: quota.New(quota.Config{}, func(quota.Caller, *quota.Error, bool) {})})
	if err != nil {
		t.Fatal(err)
	}
	through := newChain(slog.New(slog.NewJSONHandler(&log, nil)), newCalls(), newCallMetrics(), open)
	info := &grpc.UnaryServerInfo{FullMethod: lessorv1.TaskService_GetTask_FullMethodName}
	_, err = through.callUnary(t.Context(), &lessorv1.GetTaskRequest{}, info,
		func(context.Context, any) (any, error) { panic("a mistake") })
	if status.Code(err) != codes.Internal || refusal.CodeOf(err) != refusal.CodeInternal {
		t.Errorf("%v, want INTERNAL", err)
	}
	if !strings.Contains(log.String(), "call_chain_test.go") {
		t.Errorf("the log lacks the stack: %s", log.String())
	}
}
