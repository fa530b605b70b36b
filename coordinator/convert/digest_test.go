package convert

import (
	"crypto/sha256"
	"encoding/hex"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
	"google.golang.org/protobuf/types/known/wrapperspb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// fullSpec returns a spec with all fields of the first version set.
func fullSpec() *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		WorkspaceId: "w", Queue: "q", Type: "t", Payload: []byte("payload"), RunId: "run", TaskKey: "key", AssetId: "asset",
		IdempotencyKey: "idem", Priority: -3,
		RunAt:    timestamppb.New(time.Unix(1_800_000_000, 5)),
		Deadline: timestamppb.New(time.Unix(1_900_000_000, 0)), AttemptTimeout: durationpb.New(time.Minute),
		StartTimeout: durationpb.New(time.Hour),
		RetryPolicy: &lessorv1.RetryPolicy{
			MaxAttempts: 7, MaxLosses: 2, InitialBackoff: durationpb.New(time.Second), BackoffMultiplier: 1.5,
			MaxBackoff: durationpb.New(time.Minute),
			NonRetryableCategories: []lessorv1.ErrorCategory{
				lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT,
				lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE,
			},
		},
		HeartbeatInterval: durationpb.New(10 * time.Second), HeartbeatTimeout: durationpb.New(30 * time.Second),
		CancelGrace: durationpb.New(5 * time.Second), Labels: map[string]string{"a": "1", "b": "2", "c": ""},
		Retention: durationpb.New(time.Hour),
	}
}

// T1: digests are stored, so they must be the same in every version. If this test fails, correct
// the code, not the values.
func TestDigestIsStable(t *testing.T) {
	t.Attr("rules", "T1")
	for _, tt := range []struct {
		name string
		spec *lessorv1.TaskSpec
		want string
	}{
		{"empty", &lessorv1.TaskSpec{}, "6e340b9cffb37a989ca544e6bb780a2c"},
		{"queue", &lessorv1.TaskSpec{Queue: "q"}, "588a2d12c7419dc732eb696f50199ba7"},
		{"full", fullSpec(), "56a268d37874d4c5bdbe2c01a2ab5126"},
		{"placed", placedSpec(), "557076033db2276b39f18b583763aeae"},
	} {
		d := DigestOf(tt.spec)
		if got := hex.EncodeToString(d[:]); got != tt.want {
			t.Errorf("%s: the digest is %s, want %s", tt.name, got, tt.want)
		}
	}
}

// placedSpec returns a spec with requirements, resources and an affinity.
func placedSpec() *lessorv1.TaskSpec {
	return &lessorv1.TaskSpec{
		Queue: "q",
		Requirements: &lessorv1.Requirements{
			Runtimes: []string{"python3"}, Features: []string{"avx"},
			Labels: map[string]string{"zone": "b"}, Resources: map[string]float64{"vram_gb": 40.5, "cpu": 2},
		},
		ResourceRefs: []*lessorv1.ResourceRef{
			{
				ResourceId: "model", WorkerId: "gpu-1", Type: "weights", Scope: "run",
				ExpiresAt: timestamppb.New(time.Unix(1_900_000_000, 0)), Metadata: map[string]string{"sha": "1"},
			},
			{ResourceId: "data", WorkerId: "gpu-1"},
		},
		Affinity: &lessorv1.Affinity{
			Key: "s", Mode: lessorv1.AffinityMode_AFFINITY_MODE_STICKY,
			Ttl: durationpb.New(time.Minute),
		},
	}
}

// T1, W12: the digest of a spec covers the placement, but not the trace metadata.
func TestDigestLeavesTheTraceOut(t *testing.T) {
	t.Attr("rules", "T1 W12")
	want := DigestOf(placedSpec())
	traced := placedSpec()
	traced.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	traced.TraceMeta = &lessorv1.TraceMeta{HostNodeId: "h", MiddlewareChain: []string{"a"}, ChainIndex: proto.Uint32(0)}
	if DigestOf(traced) != want {
		t.Error("trace metadata changes the digest")
	}
	if traced.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"; DigestOf(traced) != want {
		t.Error("the traceparent changes the digest")
	}
	for name, change := range map[string]func(*lessorv1.TaskSpec){
		"runtime":       func(s *lessorv1.TaskSpec) { s.Requirements.Runtimes[0] = "python2" },
		"runtime moved": func(s *lessorv1.TaskSpec) { r := s.Requirements; r.Features, r.Runtimes = r.Runtimes, r.Features },
		"label":         func(s *lessorv1.TaskSpec) { s.Requirements.Labels["zone"] = "a" },
		"resource":      func(s *lessorv1.TaskSpec) { s.Requirements.Resources["cpu"] = 2.5 },
		"ref":           func(s *lessorv1.TaskSpec) { s.ResourceRefs = s.ResourceRefs[:1] },
		"ref's worker":  func(s *lessorv1.TaskSpec) { s.ResourceRefs[0].WorkerId = "gpu-2" },
		"ref's end":     func(s *lessorv1.TaskSpec) { s.ResourceRefs[0].ExpiresAt.Nanos = 1 },
		"metadata":      func(s *lessorv1.TaskSpec) { s.ResourceRefs[0].Metadata["sha"] = "2" },
		"affinity":      func(s *lessorv1.TaskSpec) { s.Affinity.Key = "t" },
		"mode":          func(s *lessorv1.TaskSpec) { s.Affinity.Mode = lessorv1.AffinityMode_AFFINITY_MODE_PREFERRED },
		"ttl":           func(s *lessorv1.TaskSpec) { s.Affinity.Ttl.Seconds = 61 },
	} {
		s := placedSpec()
		change(s)
		if DigestOf(s) == want {
			t.Errorf("%s: the changed spec has the same digest", name)
		}
	}
}

// T1: equal specs have equal digests, whatever the order of a map is. A change of any field changes
// the digest.
func TestDigestTellsSpecsApart(t *testing.T) {
	t.Attr("rules", "T1")
	want := DigestOf(fullSpec())
	for range 20 { // the order of a map differs each time
		copied := proto.CloneOf(fullSpec())
		if DigestOf(copied) != want {
			t.Fatal("equal specs have different digests")
		}
	}
	for name, change := range map[string]func(*lessorv1.TaskSpec){
		"workspace":  func(s *lessorv1.TaskSpec) { s.WorkspaceId = "" },
		"moved text": func(s *lessorv1.TaskSpec) { s.Queue, s.Type = "qt", "" },
		"payload":    func(s *lessorv1.TaskSpec) { s.Payload = []byte("payloae") },
		"priority":   func(s *lessorv1.TaskSpec) { s.Priority = 3 },
		"nanosecond": func(s *lessorv1.TaskSpec) { s.RunAt.Nanos++ },
		"presence":   func(s *lessorv1.TaskSpec) { s.Deadline = nil },
		"empty":      func(s *lessorv1.TaskSpec) { s.RetryPolicy = &lessorv1.RetryPolicy{} },
		"multiplier": func(s *lessorv1.TaskSpec) { s.RetryPolicy.BackoffMultiplier = 1.25 },
		"list order": func(s *lessorv1.TaskSpec) {
			c := s.RetryPolicy.NonRetryableCategories
			c[0], c[1] = c[1], c[0]
		},
		"label value": func(s *lessorv1.TaskSpec) { s.Labels["c"] = "3" },
		"label gone":  func(s *lessorv1.TaskSpec) { delete(s.Labels, "c") },
	} {
		s := fullSpec()
		change(s)
		if DigestOf(s) == want {
			t.Errorf("%s: another spec has the same digest", name)
		}
	}
}

// A value of any type is part of a digest, also of types that no field of a spec has so far.
func TestDigestHasValuesOfAllTypes(t *testing.T) {
	for _, pair := range [][2]proto.Message{
		{wrapperspb.Bool(true), wrapperspb.Bool(false)},
		{wrapperspb.String("a"), wrapperspb.String("b")},
		{wrapperspb.Bytes([]byte("a")), wrapperspb.Bytes([]byte("b"))},
		{wrapperspb.Int32(-1), wrapperspb.Int32(1)},
		{wrapperspb.Int64(-1), wrapperspb.Int64(1)},
		{wrapperspb.UInt32(1), wrapperspb.UInt32(2)},
		{wrapperspb.UInt64(1), wrapperspb.UInt64(2)},
		{wrapperspb.Float(1), wrapperspb.Float(2)},
		{wrapperspb.Double(1), wrapperspb.Double(2)},
	} {
		if DigestOf(pair[0]) == DigestOf(pair[1]) {
			t.Errorf("%T: %v and %v have the same digest", pair[0], pair[0], pair[1])
		}
	}
}

// A fingerprint covers the words before the message, each for itself.
func TestFingerprintHasTheWords(t *testing.T) {
	seen := map[[sha256.Size]byte][]string{}
	for _, words := range [][]string{nil, {""}, {"ab"}, {"a", "b"}, {"ab", ""}, {"b", "a"}} {
		sum := Fingerprint(&lessorv1.TaskFilter{Queue: "q"}, words...)
		if other, ok := seen[sum]; ok {
			t.Errorf("%q and %q have the same fingerprint", words, other)
		}
		seen[sum] = words
	}
}
