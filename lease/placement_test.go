package lease

import (
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"
)

// W12: a worker meets the requirements of a task if it has all of them; Lack names those that it
// does not have, sorted.
func TestCapabilitiesMeetRequirements(t *testing.T) {
	t.Attr("rules", "W12")
	worker := Capabilities{
		Runtimes: []string{"node", "python3"}, Features: []string{"avx"},
		Labels: map[string]string{"zone": "b", "empty": ""}, Resources: map[string]float64{"vram_gb": 80, "nothing": 0},
	}
	for _, c := range []struct {
		name     string
		requires *Requirements
		lacks    []string
	}{
		{"nothing", nil, nil},
		{"an empty list of everything", &Requirements{}, nil},
		{
			"everything that the worker has",
			&Requirements{
				Runtimes: []string{"node", "python3"}, Features: []string{"avx"},
				Labels: map[string]string{"zone": "b", "empty": ""}, Resources: map[string]float64{"vram_gb": 80},
			},
			nil,
		},
		{"less than the worker has", &Requirements{Runtimes: []string{"node"}, Resources: map[string]float64{"vram_gb": 0.5}}, nil},
		{"one runtime that the worker lacks", &Requirements{Runtimes: []string{"node", "ruby"}}, []string{`runtime "ruby"`}},
		{"a feature that is a runtime", &Requirements{Features: []string{"node"}}, []string{`feature "node"`}},
		{"another value", &Requirements{Labels: map[string]string{"zone": "a"}}, []string{`label "zone" = "a"`}},
		{"a label that the worker does not have", &Requirements{Labels: map[string]string{"none": ""}}, []string{`label "none" = ""`}},
		{"slightly more of a resource", &Requirements{Resources: map[string]float64{"vram_gb": 80.001}}, []string{`resource "vram_gb" >= 80.001`}},
		{
			"a resource that the worker does not have",
			&Requirements{Resources: map[string]float64{"disk": math.SmallestNonzeroFloat64}},
			[]string{`resource "disk" >= 5e-324`},
		},
		{
			"several requirements, sorted",
			&Requirements{
				Runtimes: []string{"ruby", "go"}, Features: []string{"x"},
				Labels:    map[string]string{"b": "1", "a": "2"},
				Resources: map[string]float64{"nothing": 1, "none": 1, "vram_gb": 1},
			},
			[]string{
				`feature "x"`, `label "a" = "2"`, `label "b" = "1"`, `resource "none" >= 1`,
				`resource "nothing" >= 1`, `runtime "go"`, `runtime "ruby"`,
			},
		},
	} {
		if got := worker.Lack(c.requires); !reflect.DeepEqual(got, c.lacks) {
			t.Errorf("%s: Lack = %q, want %q", c.name, got, c.lacks)
		}
		if got := worker.Meet(c.requires); got != (c.lacks == nil) {
			t.Errorf("%s: Meet = %v, want %v", c.name, got, c.lacks == nil)
		}
		for _, most := range []int{2, 100} {
			if got, want := worker.Missing(c.requires, most), min(len(c.lacks), most); got != want {
				t.Errorf("%s: Missing = %d, want %d", c.name, got, want)
			}
		}
	}
	if none := new(Capabilities); !none.Meet(nil) || none.Meet(&Requirements{Runtimes: []string{"x"}}) {
		t.Errorf("a worker without capabilities: Meet(nil) = %v, want true; Meet(a runtime) = %v, want false",
			none.Meet(nil), none.Meet(&Requirements{Runtimes: []string{"x"}}))
	}
}

// W12: the resource of a task that expires first counts; a resource without expires_at does not
// count.
func TestFirstExpiryOfResources(t *testing.T) {
	t.Attr("rules", "W12")
	for _, c := range []struct {
		expiries []Wall
		want     Wall
	}{
		{nil, 0},
		{[]Wall{0, 0}, 0},
		{[]Wall{5, 7}, 5},
		{[]Wall{7, 0, 5}, 5},
		{[]Wall{0, 7}, 7},
	} {
		s := Spec{}
		for _, at := range c.expiries {
			s.ResourceRefs = append(s.ResourceRefs, ResourceRef{ExpiresAt: at})
		}
		if got := s.firstExpiry(); got != c.want {
			t.Errorf("resources that expire at %v: the first expires at %d, want %d", c.expiries, got, c.want)
		}
	}
}

func names(n int) (all []string) {
	for i := range n {
		all = append(all, fmt.Sprint("n", i))
	}
	return all
}

func mapOf[V any](n int, v V) map[string]V {
	all := map[string]V{}
	for _, name := range names(n) {
		all[name] = v
	}
	return all
}

func requiring(r Requirements) Spec { return Spec{Requirements: &r} }

// pinned returns a spec with n references to resources of worker w, of which change may modify the
// last one.
func pinned(n int, change func(last *ResourceRef)) Spec {
	s := Spec{}
	for _, name := range names(n) {
		s.ResourceRefs = append(s.ResourceRefs, ResourceRef{ResourceID: name, Worker: "w"})
	}
	change(&s.ResourceRefs[n-1])
	return s
}

// unchanged is an argument for pinned that leaves the last reference as it is.
func unchanged(*ResourceRef) {}

func withAffinity(a Affinity) Spec { return Spec{Affinity: &a} }

func traced(tr Trace) Spec { return Spec{Trace: &tr} }

// W12, S7: Fill accepts each field at the end of its range (good), and refuses it one step beyond
// (bad) with an error that names the field and the limit.
func TestPlacementLimits(t *testing.T) {
	t.Attr("rules", "W12 S7")
	limits := Limits{Payload: 10, ID: 8, Labels: 2}
	full, over := strings.Repeat("x", 8), strings.Repeat("x", 9)
	index := func(n uint32) *uint32 { return &n }
	for _, c := range []struct {
		good, bad Spec
		field     string
		limit     string // what the refusal must contain
	}{
		{requiring(Requirements{Runtimes: names(16)}), requiring(Requirements{Runtimes: names(17)}), "requirements.runtimes", "16"},
		{requiring(Requirements{Features: names(16)}), requiring(Requirements{Features: names(17)}), "requirements.features", "16"},
		{requiring(Requirements{Labels: mapOf(16, "")}), requiring(Requirements{Labels: mapOf(17, "")}), "requirements.labels", "16"},
		{requiring(Requirements{Resources: mapOf(16, 1.0)}), requiring(Requirements{Resources: mapOf(17, 1.0)}), "requirements.resources", "16"},
		{requiring(Requirements{Runtimes: []string{full}}), requiring(Requirements{Runtimes: []string{"a", over}}), "requirements.runtimes[1]", "8"},
		{requiring(Requirements{}), requiring(Requirements{Features: []string{""}}), "requirements.features[0]", "empty"},
		{requiring(Requirements{Labels: map[string]string{full: full}}), requiring(Requirements{Labels: map[string]string{"a": over}}), "requirements.labels", "8"},
		{requiring(Requirements{}), requiring(Requirements{Labels: map[string]string{"": "a"}}), "requirements.labels", "empty"},
		{
			requiring(Requirements{Resources: map[string]float64{full: math.SmallestNonzeroFloat64}}),
			requiring(Requirements{Resources: map[string]float64{over: 1}}), `requirements.resources["` + over + `"]`, "8",
		},
		{
			requiring(Requirements{Resources: map[string]float64{"a": math.MaxFloat64}}),
			requiring(Requirements{Resources: map[string]float64{"a": math.Inf(1)}}), `requirements.resources["a"]`, "finite",
		},
		{Spec{}, requiring(Requirements{Resources: map[string]float64{"a": math.NaN()}}), `requirements.resources["a"]`, "finite"},
		{Spec{}, requiring(Requirements{Resources: map[string]float64{"a": 0}}), `requirements.resources["a"]`, "greater than 0"},
		{Spec{}, requiring(Requirements{Resources: map[string]float64{"a": -1}}), `requirements.resources["a"]`, "greater than 0"},
		{Spec{}, requiring(Requirements{Resources: map[string]float64{"": 1}}), "requirements.resources", "empty"},

		{pinned(32, unchanged), pinned(33, unchanged), "resource_refs", "32"},
		{pinned(1, unchanged), pinned(1, func(r *ResourceRef) { r.ResourceID = "" }), "resource_refs[0].resource_id", "empty"},
		{pinned(1, unchanged), pinned(1, func(r *ResourceRef) { r.Worker = "" }), "resource_refs[0].worker_id", "empty"},
		{
			pinned(3, func(r *ResourceRef) { r.ResourceID = full }),
			pinned(3, func(r *ResourceRef) { r.ResourceID = over }), "resource_refs[2].resource_id", "8",
		},
		{pinned(1, func(r *ResourceRef) { r.Worker = full }), pinned(1, func(r *ResourceRef) { r.Worker = over }), "resource_refs[0].worker_id", "8"},
		{pinned(1, func(r *ResourceRef) { r.Type = full }), pinned(1, func(r *ResourceRef) { r.Type = over }), "resource_refs[0].type", "8"},
		{pinned(1, func(r *ResourceRef) { r.Scope = full }), pinned(1, func(r *ResourceRef) { r.Scope = over }), "resource_refs[0].scope", "8"},
		{pinned(1, func(r *ResourceRef) { r.ExpiresAt = 0 }), pinned(1, func(r *ResourceRef) { r.ExpiresAt = -1 }), "resource_refs[0].expires_at", "1970"},
		{
			pinned(1, func(r *ResourceRef) { r.Metadata = mapOf(8, full) }),
			pinned(1, func(r *ResourceRef) { r.Metadata = mapOf(9, full) }), "resource_refs[0].metadata", "8",
		},
		{
			pinned(2, func(r *ResourceRef) { r.Metadata = map[string]string{full: full} }),
			pinned(2, func(r *ResourceRef) { r.Metadata = map[string]string{"a": over} }), "resource_refs[1].metadata", "8",
		},
		{ // all references must name the same worker
			pinned(3, func(r *ResourceRef) { r.Worker = "w" }),
			pinned(3, func(r *ResourceRef) { r.Worker = "w2" }), "resource_refs[2].worker_id", `"w2"`,
		},

		{withAffinity(Affinity{Key: full}), withAffinity(Affinity{Key: over}), "affinity.key", "8"},
		{withAffinity(Affinity{Key: "k"}), withAffinity(Affinity{}), "affinity.key", "empty"},
		{withAffinity(Affinity{Key: "k", Mode: Preferred}), withAffinity(Affinity{Key: "k", Mode: Preferred + 1}), "affinity.mode", "3"},
		{withAffinity(Affinity{Key: "k", TTL: MinAffinityTTL}), withAffinity(Affinity{Key: "k", TTL: MinAffinityTTL - 1}), "affinity.ttl", "1s"},
		{withAffinity(Affinity{Key: "k", TTL: MaxAffinityTTL}), withAffinity(Affinity{Key: "k", TTL: MaxAffinityTTL + 1}), "affinity.ttl", "24h"},

		{traced(Trace{Host: full}), traced(Trace{Host: over}), "trace_meta.host_node_id", "8"},
		{traced(Trace{Chain: names(64)}), traced(Trace{Chain: names(65)}), "trace_meta.middleware_chain", "64"},
		{traced(Trace{Chain: []string{full}}), traced(Trace{Chain: []string{over}}), "trace_meta.middleware_chain[0]", "8"},
		{traced(Trace{}), traced(Trace{Chain: []string{""}}), "trace_meta.middleware_chain[0]", "empty"},
		{traced(Trace{Chain: names(2), Index: index(1)}), traced(Trace{Chain: names(2), Index: index(2)}), "trace_meta.chain_index", "2 entries"},
		{traced(Trace{Host: "h", Index: index(math.MaxUint32)}), traced(Trace{Host: "\n"}), "trace_meta.host_node_id", "control"},
	} {
		checkFill(t, c.good, limits, "", "")
		checkFill(t, c.bad, limits, c.field, c.limit)
	}
}

// W12: Check accepts capabilities at the end of each range (good), and refuses them one step beyond
// (bad) with an error that names the field and the limit. Unlike in requirements, a resource may be
// 0.
func TestCapabilitiesLimits(t *testing.T) {
	t.Attr("rules", "W12")
	for _, c := range []struct {
		good, bad Capabilities
		want      string
	}{
		{Capabilities{Runtimes: names(256)}, Capabilities{Runtimes: names(257)}, "runtimes: has 257 entries; the limit is 256"},
		{Capabilities{Features: names(256)}, Capabilities{Features: names(257)}, "features: has 257 entries; the limit is 256"},
		{Capabilities{Labels: mapOf(256, "")}, Capabilities{Labels: mapOf(257, "")}, "labels: has 257 entries; the limit is 256"},
		{Capabilities{Resources: mapOf(256, 0.0)}, Capabilities{Resources: mapOf(257, 1.0)}, "resources: has 257 entries; the limit is 256"},
		{Capabilities{Resources: mapOf(1, 0.0)}, Capabilities{Resources: mapOf(1, -1.0)}, `resources["n0"]: is -1; it cannot be negative`},
		{Capabilities{}, Capabilities{Resources: mapOf(1, math.Inf(1))}, `resources["n0"]: is +Inf; it must be finite`},
		{Capabilities{}, Capabilities{Features: []string{"a", ""}}, "features[1]: must not be empty"},
	} {
		if err := c.good.Check(DefaultLimits()); err != nil {
			t.Errorf("capabilities within the limits are refused: %v", err)
		}
		if err := c.bad.Check(DefaultLimits()); err == nil || err.Error() != c.want {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
}

// Fill sets an affinity without mode and TTL to PREFERRED and 10 minutes.
func TestFillSetsDefaultsOfAffinity(t *testing.T) {
	s := withAffinity(Affinity{Key: "k"})
	s.Queue = "q"
	if err := s.Fill(DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if want := (Affinity{Key: "k", Mode: Preferred, TTL: 10 * time.Minute}); *s.Affinity != want {
		t.Errorf("affinity is %+v, want %+v", *s.Affinity, want)
	}
}

// An artifact for which the report names no worker gets the worker that held the lease. This must
// happen in a copy: V13 compares the digest of the report as it was sent.
func TestArtifactWithoutWorkerGetsTheHolder(t *testing.T) {
	reported := &Result{Artifacts: []Artifact{{ResourceID: "a"}, {ResourceID: "b", WorkerID: "other"}}}
	filled := reported.withWorker("me")
	if got := filled.Artifacts; got[0].WorkerID != "me" || got[1].WorkerID != "other" {
		t.Errorf(`the workers of the artifacts are %q and %q, want "me" and "other"`, got[0].WorkerID, got[1].WorkerID)
	}
	if reported.Artifacts[0].WorkerID != "" {
		t.Error("withWorker changed the result that was reported, and so its digest; want a copy")
	}
	if again := filled.withWorker("else"); again != filled {
		t.Error("a result whose artifacts all name a worker is copied, want the same pointer")
	}
}
