package lease

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func yes() *bool { b := true; return &b }
func no() *bool  { b := false; return &b }

// V13: reports that differ in kind, output, artifacts (also in their order) or in the error's
// category, message, stack trace or retryable have different digests. So do reports whose fields
// would be equal if they were joined without their lengths, such as "aw" and "a", "w".
func TestDifferentReportsHaveDifferentDigests(t *testing.T) {
	t.Attr("rules", "V13")
	complete := func(output string, artifacts ...Artifact) *Report {
		return &Report{Kind: KindComplete, Result: &Result{Output: []byte(output), Artifacts: artifacts}}
	}
	fail := func(f Failure) *Report { return &Report{Kind: KindFail, Failure: &f} }
	long := strings.Repeat("x", 40) // values of more than 32 bytes are hashed before they enter the digest
	a, b := Artifact{ResourceID: "a"}, Artifact{ResourceID: "b"}
	reports := []*Report{
		{Kind: KindRelease},
		{Kind: KindComplete},
		complete(""), complete("x"), complete("y"), complete(long), complete(long + "x"),
		complete("", a), complete("", b), complete("", a, b), complete("", b, a), complete("", a, a),
		complete("", Artifact{ResourceID: "a", WorkerID: "w"}),
		complete("", Artifact{ResourceID: "a", Type: "w"}),
		complete("", Artifact{ResourceID: "aw"}),
		complete("", Artifact{ResourceID: "a", SizeBytes: 1}),
		complete("", Artifact{ResourceID: "a", ExpiresAt: 1}),
		complete("", Artifact{ResourceID: "a", Inline: true}),
		complete("", Artifact{ResourceID: "a", Metadata: map[string]string{"k": "v"}}),
		complete("", Artifact{ResourceID: "a", Metadata: map[string]string{"kv": ""}}),
		complete("", Artifact{ResourceID: "a", Metadata: map[string]string{"": "kv"}}),
		complete("", Artifact{ResourceID: "a", Metadata: map[string]string{"k": "w"}}),
		complete("", Artifact{ResourceID: "a", Metadata: map[string]string{"j": "v"}}),
		fail(Failure{}),
		fail(Failure{Category: Infrastructure}), fail(Failure{Category: CategoryCancelled}),
		fail(Failure{Message: "m"}), fail(Failure{Stack: "m"}), fail(Failure{Message: "m", Stack: "s"}),
		fail(Failure{Message: "ms"}),
		fail(Failure{Retryable: yes()}), fail(Failure{Retryable: no()}),
	}
	seen := map[Digest]int{}
	for i, r := range reports {
		if j, dup := seen[r.Digest()]; dup {
			t.Errorf("reports %d and %d have the same digest, want different ones: %+v and %+v", j, i, reports[j], r)
		}
		seen[r.Digest()] = i
	}
}

// EmptyComplete is true for a Complete without output and artifacts, with or without a Result. It
// is false for all other outcomes, also for an adopted result.
func TestEmptyComplete(t *testing.T) {
	noResult := &Report{Kind: KindComplete}
	for _, tt := range []struct {
		report *Report
		kind   Kind // of the outcome
		want   bool
	}{
		{noResult, KindComplete, true},
		{&Report{Kind: KindComplete, Result: &Result{}}, KindComplete, true},
		{&Report{Kind: KindComplete, Result: &Result{Output: []byte{0}}}, KindComplete, false},
		{&Report{Kind: KindComplete, Result: &Result{Artifacts: []Artifact{{}}}}, KindComplete, false},
		{&Report{Kind: KindFail, Failure: &Failure{}}, KindFail, false},
		{&Report{Kind: KindRelease}, KindRelease, false},
		{noResult, KindAdopt, false},
	} {
		c := Committed{Kind: tt.kind, Digest: tt.report.Digest()}
		if c.EmptyComplete() != tt.want {
			t.Errorf("EmptyComplete of %+v as an outcome of kind %v is %t, want %t",
				tt.report, tt.kind, c.EmptyComplete(), tt.want)
		}
	}
}

// V13: two reports are the same report if they differ only in ids, sender, metrics, checkpoint,
// delay, retry_after or in what a cancelled worker had done.
func TestDigestIgnoresIDsAndMetrics(t *testing.T) {
	t.Attr("rules", "V13")
	for name, same := range map[string][2]*Report{
		"metrics, ids, session": {
			{Kind: KindComplete, Result: &Result{Output: []byte("x")}},
			{
				Kind: KindComplete, TaskID: "t1", LeaseID: "l1", Attempt: 4, Worker: "w", Session: "s",
				Checkpoint: []byte("c"), Started: true,
				Result: &Result{Output: []byte("x"), Metrics: map[string]float64{"seconds": 3}},
			},
		},
		"no category is USER_CODE; phase, partial, retry_after": {
			{Kind: KindFail, Failure: &Failure{Message: "m"}},
			{Kind: KindFail, Failure: &Failure{Message: "m", Category: UserCode, RetryAfter: 5, Phase: "p", Partial: []byte("x")}},
		},
		"delay and words of a release": {
			{Kind: KindRelease},
			{Kind: KindRelease, Delay: 5, Detail: "busy"},
		},
		"metadata in any order": {
			{Kind: KindComplete, Result: &Result{Artifacts: []Artifact{{Metadata: map[string]string{"a": "1", "b": "2", "c": "3"}}}}},
			{Kind: KindComplete, Result: &Result{Artifacts: []Artifact{{Metadata: map[string]string{"c": "3", "b": "2", "a": "1"}}}}},
		},
	} {
		if same[0].Digest() != same[1].Digest() {
			t.Errorf("%s: the digests differ, want the same", name)
		}
	}
}

// V13: a value of more than 32 bytes enters the digest as its length and its hash. If another value
// of 32 bytes is equal to this hash, it enters as its length and itself, so the two differ by the
// length.
func TestDigestOfLongValues(t *testing.T) {
	t.Attr("rules", "V13")
	var short, long digester
	long = long.bytes(bytes.Repeat([]byte("x"), 33))
	short = short.bytes(long[1:])
	if bytes.Equal(short, long) {
		t.Error("a value of 33 bytes and a value of 32 bytes that is its hash are written in the same way, want different lengths")
	}
}

// V4, V14: the digest of a COMMITTED report is stored, and a repeat of the report is compared with
// it, also after an upgrade. So the digests must be the same in every version. If this test fails,
// correct the code, not the values.
func TestDigestsNeverChange(t *testing.T) {
	t.Attr("rules", "V4 V14")
	complete := func(r *Result) *Report { return &Report{Kind: KindComplete, Result: r} }
	fail := func(f Failure) *Report { return &Report{Kind: KindFail, Failure: &f} }
	artifacts := []Artifact{
		{
			ResourceID: "model", WorkerID: "w", Type: "weights", SizeBytes: 300, ExpiresAt: 1_900_000_000_000_000_000,
			Inline:   true,
			Metadata: map[string]string{"format": "onnx", "layers": "12"},
		},
		{ResourceID: "log"},
	}
	for _, c := range []struct {
		report *Report
		want   string
	}{
		{&Report{Kind: KindRelease}, "e52d9c508c502347344d8c07ad91cbd6"},
		{complete(nil), "dbc1b4c900ffe48d575b5da5c6380401"},
		{complete(&Result{}), "070b13c004e9475fa155cd84d90de9f8"},
		{complete(&Result{Output: []byte("done")}), "d0d11b9075e28552c12fdfeaf1b636ad"},
		{complete(&Result{Output: bytes.Repeat([]byte("x"), 32)}), "c1461271eb6863b4cc3df7c583371ea8"},
		{complete(&Result{Output: bytes.Repeat([]byte("x"), 33)}), "4760ab5dfa65f9a0d7e290d788ea28ae"},
		{complete(&Result{Artifacts: artifacts}), "a47ba99767d83ee37a78f90961685216"},
		{fail(Failure{}), "395c561424653325a9316b52fcd2aa36"},
		{fail(Failure{Category: Infrastructure, Message: "no disk", Stack: "main.go:1", Retryable: yes()}), "dde3e8a8c0fc7606a398dd7c999f5108"},
		{fail(Failure{Category: DataQuality, Message: "no disk", Retryable: no()}), "36dd41d656a665d9837f34d4dd0e2af1"},
	} {
		if got := fmt.Sprintf("%x", c.report.Digest()); got != c.want {
			t.Errorf("%v, result %+v, failure %+v: the digest is %s, want %s",
				c.report.Kind, c.report.Result, c.report.Failure, got, c.want)
		}
	}
}

// V15: everything in a result counts against the limit of what is kept: output, artifacts with
// their metadata, and metrics.
func TestSizeOfResult(t *testing.T) {
	t.Attr("rules", "V15")
	for _, c := range []struct {
		result Result
		want   int
	}{
		{Result{}, 0},
		{Result{Output: []byte("four")}, 4},
		{Result{Artifacts: []Artifact{{ResourceID: "ab", WorkerID: "c", Type: "def"}, {ResourceID: "g"}}}, 7},
		{Result{Artifacts: []Artifact{{Metadata: map[string]string{"a": "bc", "def": ""}}, {Metadata: map[string]string{"": "g"}}}}, 7},
		{Result{Metrics: map[string]float64{"seconds": 1, "a": 2}}, 24}, // 8 bytes for each value
	} {
		if got := c.result.Size(); got != c.want {
			t.Errorf("the size of %+v is %d, want %d", c.result, got, c.want)
		}
	}
}

// The size of a chunk is its text, its data and its metadata: the memory for the newest chunks of
// an attempt is limited.
func TestSizeOfChunk(t *testing.T) {
	c := Chunk{Channel: "log", Text: "abc", Data: []byte("de"), Metadata: map[string]string{"k": "vw", "lm": "n"}}
	if got, want := c.Size(), 3+2+6; got != want {
		t.Errorf("the size of %+v is %d, want %d", c, got, want)
	}
}

// V1 to V12: each reason belongs to one verdict; the reasons why a task failed, and that of a lease
// that ended by its report, belong to none. ExplainTask shows refused reports with this verdict.
func TestVerdictOfEachReason(t *testing.T) {
	t.Attr("rules", "S6")
	want := map[Reason]Verdict{
		None: VerdictCommitted, InvalidRequest: VerdictRejected, UnknownTask: VerdictRejected, InvalidLease: VerdictRejected,
		DuplicateReport: VerdictRejected, ResultTooLarge: VerdictRejected,
		AlreadyReported: VerdictCancelled, CoordinatorRecovered: VerdictCancelled, TaskGone: VerdictCancelled,
		Superseded:   VerdictCancelled,
		LeaseExpired: VerdictCancelled, DispatchUnacked: VerdictCancelled, TaskCancelled: VerdictCancelled,
		CancelTimeout:    VerdictCancelled,
		DeadlineExceeded: VerdictCancelled, Revoked: VerdictCancelled,
	}
	for r := NoReason; r <= ResourceGone; r++ {
		if got := r.Verdict(); got != want[r] {
			t.Errorf("the verdict of %v is %v, want %v", r, got, want[r])
		}
	}
}

// V1: check refuses a report whose form is bad, with an error that names the field and the limit,
// and accepts it at the limit.
func TestReportCheck(t *testing.T) {
	t.Attr("rules", "V1")
	limits := Limits{Output: 10, ID: 8, Labels: 2, Checkpoint: 10, Stack: 10}
	base := func(kind Kind) Report { return Report{Kind: kind, TaskID: "t", LeaseID: "l"} }
	failed := func(f Failure) Report { r := base(KindFail); r.Failure = &f; return r }
	made := func(a ...Artifact) Report { r := base(KindComplete); r.Result = &Result{Artifacts: a}; return r }
	beat := func(n int) Report { r := base(KindHeartbeat); r.Checkpoint = make([]byte, n); return r }
	released := func(d time.Duration) Report { r := base(KindRelease); r.Delay = d; return r }
	for _, c := range []struct {
		report Report
		want   string // the error; empty: none
	}{
		{base(KindStart), ""},
		{base(0), "report: has an unknown kind"},
		{base(KindAck + 1), "report: has an unknown kind"},
		{Report{Kind: KindStart, LeaseID: "l"}, "task_id: must not be empty"},
		{Report{Kind: KindStart, TaskID: "t"}, "lease_id: must not be empty"},
		{Report{Kind: KindStart, Invalid: bad("metrics", "has 65 entries")}, "metrics: has 65 entries"},
		{base(KindFail), "error: is missing"},
		{failed(Failure{Category: CategoryCancelled}), ""},
		{failed(Failure{Category: CategoryCancelled + 1}), "error.category: is 7, which is not a known category"},
		{failed(Failure{Message: strings.Repeat("m", 10), Stack: strings.Repeat("s", 10), Partial: make([]byte, 10)}), ""},
		{failed(Failure{Message: strings.Repeat("m", 11)}), "error.message: has 11 bytes; the limit is 10"},
		{failed(Failure{Stack: strings.Repeat("s", 11)}), "error.stack_trace: has 11 bytes; the limit is 10"},
		{failed(Failure{Partial: make([]byte, 11)}), "partial_progress: has 11 bytes; the limit is 10"},
		{failed(Failure{RetryAfter: -1}), "error.retry_after: is -1ns; it cannot be negative"},
		{beat(10), ""},
		{beat(11), "checkpoint: has 11 bytes; the limit is 10"},
		{released(MaxDelay), ""},
		{released(MaxDelay + 1), "delay: is 24h0m0.000000001s; the range is 0 to 24h0m0s"},
		{released(-1), "delay: is -1ns; the range is 0 to 24h0m0s"},
		{made(Artifact{ResourceID: "12345678", Metadata: map[string]string{"a": "", "b": ""}}), ""},
		{made(Artifact{ResourceID: "a"}, Artifact{}), "artifacts[1].resource_id: must not be empty"},
		{made(Artifact{ResourceID: "123456789"}), "artifacts[0].resource_id: has 9 bytes; the limit is 8"},
		{made(Artifact{ResourceID: "a", SizeBytes: -1}), "artifacts[0].size_bytes: is -1; it cannot be negative"},
		{made(Artifact{ResourceID: "a", Metadata: map[string]string{"a": "", "b": "", "c": ""}}), "artifacts[0].metadata: has 3 entries; the limit is 2"},
		{made(slices.Repeat([]Artifact{{ResourceID: "a"}}, MaxArtifacts)...), ""},
		{made(slices.Repeat([]Artifact{{ResourceID: "a"}}, MaxArtifacts+1)...), "artifacts: has 65 entries; the limit is 64"},
	} {
		got := ""
		if err := c.report.check(limits); err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("check of %+v:\n got %q\nwant %q", c.report, got, c.want)
		}
	}
}
