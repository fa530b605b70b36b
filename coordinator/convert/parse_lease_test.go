package convert

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// W12: a request for work is converted with everything that decides which tasks the worker gets.
// Each limit is itself allowed.
func TestLeaseRequestIsConverted(t *testing.T) {
	t.Attr("rules", "W12")
	longest := text(256)
	sent := &lessorv1.LeaseRequest{
		WorkspaceId: "ws", WorkerId: "w", Queues: []string{"q", "r"}, MaxTasks: maxItems,
		Wait: durationpb.New(time.Second), RequestId: longest,
		Capabilities: &lessorv1.Capabilities{
			Types: []string{"t", ""}, Runtimes: []string{"python3"}, Features: []string{"avx"},
			Labels: map[string]string{"zone": "b"}, Resources: map[string]float64{"cpu": 2},
			Concurrency: &lessorv1.Concurrency{
				PerTypeLimits: map[string]uint32{longest: MaxParallel},
				SingleFlight:  true, MaxBytes: 1 << 20,
			},
		},
	}
	want := engine.LeaseRequest{
		Wants: engine.Wants{
			Space: engine.Space{Tenant: "acme", Workspace: "ws"}, Worker: "w", Queues: []string{"q", "r"},
			Types: []string{"t", ""},
			Capabilities: lease.Capabilities{
				Runtimes: []string{"python3"}, Features: []string{"avx"}, Labels: map[string]string{"zone": "b"},
				Resources: map[string]float64{"cpu": 2},
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
		t.Errorf("without max_tasks, and with a wait of an hour: at most %d tasks within %v (%v), want 1 within %v",
			got.Max, got.Wait, bad, maxWait)
	}
}

// S4, S7: the error for a bad request for work has the path of the field, the problem, and the
// limit.
func TestLeaseRequestIsChecked(t *testing.T) {
	t.Attr("rules", "S4 S7")
	const limits = "capabilities.concurrency.per_type_limits"
	types := func(list ...string) func(*lessorv1.LeaseRequest) {
		return func(m *lessorv1.LeaseRequest) { m.Capabilities = &lessorv1.Capabilities{Types: list} }
	}
	perType := func(of map[string]uint32) func(*lessorv1.LeaseRequest) {
		return func(m *lessorv1.LeaseRequest) {
			m.Capabilities = &lessorv1.Capabilities{Concurrency: &lessorv1.Concurrency{PerTypeLimits: of}}
		}
	}
	many := map[string]uint32{}
	for typ := range labels(1001) {
		many[typ] = 1
	}
	for _, tt := range []struct {
		name           string
		change         func(*lessorv1.LeaseRequest)
		field, problem string
	}{
		{"no worker", func(m *lessorv1.LeaseRequest) { m.WorkerId = "" }, "worker_id", "must not be empty"},
		{"no queues", func(m *lessorv1.LeaseRequest) { m.Queues = nil }, "queues", "must not be empty"},
		{"queue empty", func(m *lessorv1.LeaseRequest) { m.Queues = []string{"q", ""} }, "queues[1]", "must not be empty"},
		{"queue over", func(m *lessorv1.LeaseRequest) { m.Queues = []string{"q", text(257)} }, "queues[1]", "the limit is 256"},
		{"queues at the limit", func(m *lessorv1.LeaseRequest) { m.Queues = slices.Repeat([]string{"q"}, 100) }, "", ""},
		{"queues over", func(m *lessorv1.LeaseRequest) { m.Queues = slices.Repeat([]string{"q"}, 101) }, "queues", "has 101 entries; the limit is 100"},
		{"tasks over", func(m *lessorv1.LeaseRequest) { m.MaxTasks = 1001 }, "max_tasks", "is 1001; the limit is 1000"},
		{"types at the limit", types(slices.Repeat([]string{"t"}, 1000)...), "", ""},
		{"types over", types(slices.Repeat([]string{"t"}, 1001)...), "capabilities.types", "has 1001 entries; the limit is 1000"},
		{"type over", types("t", text(257)), "capabilities.types[1]", "the limit is 256"},
		{"runtimes over", func(m *lessorv1.LeaseRequest) {
			m.Capabilities = &lessorv1.Capabilities{Runtimes: []string{text(257)}}
		}, "capabilities.runtimes[0]", "the limit is 256"},
		{"slots over", perType(map[string]uint32{"t": 10_001}), limits + `["t"]`, "is 10001; the range is 0 to 10000"},
		// an error should not repeat the long name
		{"type with slots over", perType(map[string]uint32{text(257): 1}), limits, "the limit is 256"},
		{"types with slots over", perType(many), limits, "has 1001 entries; the limit is 1000"},
	} {
		m := &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}}
		tt.change(m)
		var err error
		if _, bad := ParseLease(m, "acme", lease.DefaultLimits()); bad != nil {
			err = bad
		}
		wantField(t, tt.name, err, tt.field, tt.problem, "")
	}
}
