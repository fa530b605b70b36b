//go:build !race

package coordinator

import (
	"context"
	"io"
	"log/slog"
	"testing"

	"google.golang.org/grpc"

	"github.com/lessor-dev/lessor/coordinator/sendlimit"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Writing a frame allocates once, however many items it has, because the buffers of sent frames are
// reused.
func TestAllocationsOfAFrame(t *testing.T) {
	m := &lessorv1.SessionResponse{Payload: &lessorv1.SessionResponse_Verdicts{Verdicts: &lessorv1.Verdicts{
		Verdicts: manyOf(100, &lessorv1.ReportVerdict{
			TaskId: benchTask, LeaseId: benchLease,
			TaskToken: string(make([]byte, 200)),
		}),
	}}}
	n := testing.AllocsPerRun(20, func() {
		b, err := sendlimit.Encode(m)
		if err != nil {
			t.Fatal(err)
		}
		b.Free()
	})
	if n > 1 {
		t.Errorf("%v allocations for a frame of 100 items, want at most 1", n)
	}
}

// The log line of a call that is below the level of the log costs two allocations: the place for
// the fields that handlers add, and its context.
func TestAllocationsOfAnUnwrittenLogLine(t *testing.T) {
	lines := callLog{slog.New(slog.NewJSONHandler(io.Discard, nil))}
	info := &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Heartbeat_FullMethodName}
	n := testing.AllocsPerRun(100, func() {
		_, _ = lines.unary(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil })
	})
	if n > 2 {
		t.Errorf("%v allocations, want at most 2", n)
	}
}

// Counting a call allocates nothing.
func TestAllocationsOfCallMetrics(t *testing.T) {
	m, info := newCallMetrics(), &grpc.UnaryServerInfo{FullMethod: lessorv1.WorkerService_Heartbeat_FullMethodName}
	n := testing.AllocsPerRun(100, func() {
		_, _ = m.unary(t.Context(), nil, info, func(context.Context, any) (any, error) { return nil, nil })
	})
	if n > 0 {
		t.Errorf("%v allocations, want none", n)
	}
}
