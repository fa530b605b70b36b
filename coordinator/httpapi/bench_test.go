package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// fakeCalls answers every call with COMMITTED at once, so that only this package is measured.
type fakeCalls struct{ grpc.ClientConnInterface }

func (fakeCalls) Invoke(_ context.Context, _ string, _, answer any, _ ...grpc.CallOption) error {
	now := timestamppb.New(time.Unix(1_800_000_000, 5))
	switch m := answer.(type) {
	case *lessorv1.HeartbeatResponse:
		proto.Merge(m, &lessorv1.HeartbeatResponse{
			Verdict: lessorv1.Verdict_VERDICT_COMMITTED, TaskState: lessorv1.TaskState_TASK_STATE_RUNNING,
			ServerTime: now, ExpiresAt: now,
			ExpiresIn: durationpb.New(time.Minute), TaskToken: strings.Repeat("t", 200), TokenExpiresAt: now,
		})
	case *lessorv1.CompleteResponse:
		m.Verdict, m.TaskState, m.ServerTime = lessorv1.Verdict_VERDICT_COMMITTED, lessorv1.TaskState_TASK_STATE_COMPLETED, now
	}
	return nil
}

// fixedHolder admits every caller as the holder of one task.
type fixedHolder struct{ holder Holder }

func (a fixedHolder) Admit(ctx context.Context, _, _ string) (context.Context, func(), error) {
	return WithHolder(ctx, a.holder), func() {}, nil
}

// BenchmarkCallback measures what a callback costs besides its call and the network: routing, and
// JSON in and out.
func BenchmarkCallback(b *testing.B) {
	h := Holder{LeaseID: "lease"}
	h.Ticket.Task, h.Ticket.Attempt = lease.TaskID{Space: 1, Seq: 1}, 1
	api := New(Config{
		Calls: fakeCalls{}, Door: fixedHolder{h}, MaxBody: 1 << 20, Logger: slog.New(slog.DiscardHandler),
		Answered: func(string, int) {},
	}, http.NewServeMux())
	for name, body := range map[string]string{
		"heartbeat": `{"attempt": 1, "workerId": "worker-abc123", "progressPct": 45, "message": "Processing partition 5 of 10"}`,
		"completed": `{"attempt": 1, "workerId": "worker-abc123", "outcome": "SUCCEEDED", "output": {"rowCount": 1000000}, "metrics": {"cpuTimeMs": 45000}}`,
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			path := "/v1/tasks/" + h.Ticket.Task.String() + "/" + name
			for b.Loop() {
				w := httptest.NewRecorder()
				api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, path, strings.NewReader(body)))
				if w.Code != http.StatusOK {
					b.Fatalf("%d %s", w.Code, w.Body)
				}
			}
		})
	}
}
