package convert

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// W12: a request for work is converted with everything that decides which tasks the worker gets. Each limit is itself allowed.
func TestLeaseRequestIsConverted(t *testing.T) {
	t.Attr("rules", "W12")
	longest := text(256)
	sent := &lessorv1.LeaseRequest{
		WorkspaceId: "ws", WorkerId: "w", Queues: []string{"q", "r"}, MaxTasks: maxItems, Wait: durationpb.New(time.Second), RequestId: longest,
		Capabilities: &lessorv1.Capabilities{
			Types: []string{"t", ""}, Runtimes: []string{"python3"}, Features: []string{"avx"},
			Labels: map[string]string{"zone": "b"}, Resources: map[string]float64{"cpu": 2},
			Concurrency: &lessorv1.Concurrency{PerTypeLimits: map[string]uint32{longest: MaxParallel}, SingleFlight: true, MaxBytes: 1 << 20},
		},
	}
	want := engine.LeaseRequest{
		Wants: engine.Wants{
			Space: engine.Space{Tenant: "acme", Workspace: "ws"}, Worker: "w", Queues: []string{"q", "r"}, Types: []string{"t", ""},
			Capabilities: lease.Capabilities{
				Runtimes: []string{"python3"}, Features: []string{"avx"}, Labels: map[string]string{"zone": "b"}, Resources: map[string]float64{"cpu": 2},
			},
			TypeLimits: map[string]uint32{longest: MaxParallel}, SingleFlight: true, MaxBytes: 1 << 20,
		},
		Max: maxItems, Wait: time.Second, Request: longest,
	}
	got, bad := ParseLease(sent, "acme", lease.DefaultLimits())
	if diff := cmp.Diff(want, got); diff != "" || bad != nil {
		t.Errorf("the error is %v, want none; -want +got:\n%s", bad, diff)
	}
	sent.MaxTasks, sent.Wait = 0, durationpb.New(time.Hour)
	if got, bad := ParseLease(sent, "acme", lease.DefaultLimits()); got.Max != 1 || got.Wait != maxWait || bad != nil {
		t.Errorf("without max_tasks, and with a wait of an hour: at most %d tasks within %v (%v), want 1 within %v", got.Max, got.Wait, bad, maxWait)
	}
}
