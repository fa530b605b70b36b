package convert

import (
	"slices"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// PlacementSize is at least the encoded size of the placement, because it is used to limit the size
// of responses.
func TestPlacementSizeIsEnough(t *testing.T) {
	for name, m := range map[string]*lessorv1.TaskSpec{
		"none": {},
		"some": placedSpec(),
		// Each alone, so that a large part does not make up for one that is not counted.
		"runtimes":  {Requirements: &lessorv1.Requirements{Runtimes: slices.Repeat([]string{"a"}, 16)}},
		"labels":    {Requirements: &lessorv1.Requirements{Labels: labels(16)}},
		"resources": {Requirements: &lessorv1.Requirements{Resources: map[string]float64{text(255): 1, text(256): 1, "a": 1}}},
		"affinity":  {Affinity: &lessorv1.Affinity{Key: text(256)}},
		"most": {
			Requirements: &lessorv1.Requirements{
				Runtimes: slices.Repeat([]string{text(256)}, 16), Labels: labels(16),
				Resources: map[string]float64{"a": 1},
			},
			ResourceRefs: slices.Repeat([]*lessorv1.ResourceRef{{
				ResourceId: text(256), WorkerId: "w", Scope: text(256), Metadata: labels(8),
				ExpiresAt: timestamppb.New(time.Unix(1_900_000_000, 999_999_999)),
			}}, 32),
			Affinity: &lessorv1.Affinity{Key: text(256), Ttl: durationpb.New(24 * time.Hour)},
			TraceMeta: &lessorv1.TraceMeta{
				HostNodeId: "h", MiddlewareChain: slices.Repeat([]string{text(256)}, 64),
				ChainIndex: proto.Uint32(63),
			},
		},
	} {
		m.Queue = "q"
		spec, err := ParseSpec(m, lease.DefaultLimits())
		if err != nil {
			t.Fatal(err)
		}
		with := proto.Size(specProto("", spec))
		spec.Requirements, spec.ResourceRefs, spec.Affinity, spec.Trace = nil, nil, nil, nil
		want := with - proto.Size(specProto("", spec))
		again, _ := ParseSpec(m, lease.DefaultLimits())
		if got := again.PlacementSize(); got < want || got > 2*want+100 {
			t.Errorf("%s: PlacementSize is %d, want %d to %d: the placement is encoded in %d bytes",
				name, got, want, 2*want+100, want)
		}
	}
}
