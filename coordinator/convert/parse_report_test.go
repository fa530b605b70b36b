package convert

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// gauges returns n metrics.
func gauges(n int) map[string]float64 {
	m := map[string]float64{}
	for k := range labels(n) {
		m[k] = 1
	}
	return m
}

// V1: a bad field is not an error of the conversion. It is noted in the report, so that the report
// is judged and gets a verdict.
func TestBadFieldsAreNotedInTheReport(t *testing.T) {
	t.Attr("rules", "V1")
	in := &Intake{limits: lease.DefaultLimits()}
	start := func(m *lessorv1.StartRequest) *lease.Report { return ParseStart(m, in) }
	beat := func(m *lessorv1.HeartbeatRequest) *lease.Report { return ParseHeartbeat(m, in) }
	complete := func(m *lessorv1.CompleteRequest) *lease.Report { return ParseComplete(m, in) }
	fail := func(m *lessorv1.FailRequest) *lease.Report { return ParseFail(m, in) }
	release := func(m *lessorv1.ReleaseRequest) *lease.Report { return ParseRelease(m, in) }
	artifact := func(a *lessorv1.Artifact) *lessorv1.CompleteRequest {
		return &lessorv1.CompleteRequest{Artifacts: []*lessorv1.Artifact{{}, a}}
	}
	failure := func(e *lessorv1.TaskError) *lessorv1.FailRequest { return &lessorv1.FailRequest{Error: e} }
	badTime := &timestamppb.Timestamp{Seconds: math.MinInt64}

	for _, tt := range []struct {
		name           string
		report         *lease.Report
		field, problem string
	}{
		{"good start", start(&lessorv1.StartRequest{TaskId: text(500), LeaseId: text(500), StartedAt: timestamppb.Now()}), "", ""},
		{"worker over", start(&lessorv1.StartRequest{WorkerId: text(257)}), "worker_id", "the limit is 256"},
		{"started_at", start(&lessorv1.StartRequest{StartedAt: badTime}), "started_at", "not a valid timestamp"},
		{"heartbeat_at", beat(&lessorv1.HeartbeatRequest{HeartbeatAt: badTime}), "heartbeat_at", "not a valid timestamp"},
		{"fraction at its ends", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Fraction: 1}}), "", ""},
		{"fraction over", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Fraction: 1.01}}), "progress.fraction", "0 to 1"},
		{"fraction negative", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Fraction: -0.1}}), "progress.fraction", "0 to 1"},
		{"fraction NaN", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Fraction: math.NaN()}}), "progress.fraction", "0 to 1"},
		{"stage over", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Stage: text(257)}}), "progress.stage", "the limit is 256"},
		{"words at the limit", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Message: text(64 << 10)}}), "", ""},
		{"words over", beat(&lessorv1.HeartbeatRequest{Progress: &lessorv1.Progress{Message: text(64<<10 + 1)}}), "progress.message", "the limit is 65536"},
		{"gauges at the limit", beat(&lessorv1.HeartbeatRequest{Metrics: gauges(64)}), "", ""},
		{"gauges over", beat(&lessorv1.HeartbeatRequest{Metrics: gauges(65)}), "metrics", "has 65 entries; the limit is 64"},
		{"gauge's name over", complete(&lessorv1.CompleteRequest{Metrics: map[string]float64{text(257): 1}}), "metrics", "the limit is 256"},
		{"report_id over", complete(&lessorv1.CompleteRequest{ReportId: text(257)}), "report_id", "the limit is 256"},
		{"completed_at", complete(&lessorv1.CompleteRequest{CompletedAt: badTime}), "completed_at", "not a valid timestamp"},
		{"started_at of a complete", complete(&lessorv1.CompleteRequest{StartedAt: badTime}), "started_at", "not a valid timestamp"},
		{"started_at of a fail", fail(&lessorv1.FailRequest{StartedAt: badTime}), "started_at", "not a valid timestamp"},
		{"started_at of a release", release(&lessorv1.ReleaseRequest{StartedAt: badTime}), "started_at", "not a valid timestamp"},
		{"artifacts over", complete(&lessorv1.CompleteRequest{Artifacts: make([]*lessorv1.Artifact, 65)}), "artifacts", "the limit is 64"},
		{"artifact's worker", complete(artifact(&lessorv1.Artifact{WorkerId: text(257)})), "artifacts[1].worker_id", "the limit is 256"},
		{"artifact's type", complete(artifact(&lessorv1.Artifact{Type: text(257)})), "artifacts[1].type", "the limit is 256"},
		{"artifact's end", complete(artifact(&lessorv1.Artifact{ExpiresAt: badTime})), "artifacts[1].expires_at", "not a valid timestamp"},
		{"good fail", fail(failure(&lessorv1.TaskError{Category: 6, RetryAfter: durationpb.New(time.Hour)})), "", ""},
		{"category unknown", fail(failure(&lessorv1.TaskError{Category: 7})), "error.category", "is 7"},
		{"category that would wrap around", fail(failure(&lessorv1.TaskError{Category: 256})), "error.category", "is 256"},
		{"category negative", fail(failure(&lessorv1.TaskError{Category: -1})), "error.category", "is -1"},
		{"retry_after negative", fail(failure(&lessorv1.TaskError{RetryAfter: durationpb.New(-1)})), "error.retry_after", "negative"},
		{"phase over", fail(&lessorv1.FailRequest{Error: &lessorv1.TaskError{}, CancelledDuringPhase: text(257)}), "cancelled_during_phase", "the limit is 256"},
		{"report_id of a fail over", fail(&lessorv1.FailRequest{ReportId: text(257)}), "report_id", "the limit is 256"},
		{"completed_at of a fail", fail(&lessorv1.FailRequest{CompletedAt: badTime}), "completed_at", "not a valid timestamp"},
		{"report_id at the limit", release(&lessorv1.ReleaseRequest{ReportId: text(256)}), "", ""},
		{"report_id of a release over", release(&lessorv1.ReleaseRequest{ReportId: text(257)}), "report_id", "the limit is 256"},
		{"delay negative", release(&lessorv1.ReleaseRequest{Delay: durationpb.New(-time.Second)}), "delay", "negative"},
		{"delay invalid", release(&lessorv1.ReleaseRequest{Delay: &durationpb.Duration{Seconds: 1, Nanos: -1}}), "delay", "not a valid duration"},
		{"retry_after of any length", fail(failure(&lessorv1.TaskError{RetryAfter: &durationpb.Duration{Seconds: math.MaxInt64}})), "", ""},
		{"reason over", release(&lessorv1.ReleaseRequest{Reason: text(1025)}), "reason", "the limit is 1024"},
		{"no kind", parseReport(&lessorv1.Report{}, in), "report", "has no kind that this coordinator knows"},
	} {
		switch bad := tt.report.Invalid; {
		case tt.field == "" && bad != nil:
			t.Errorf("%s: the noted fault is %v, want none", tt.name, bad)
		case tt.field != "" && (bad == nil || bad.Field != tt.field || !strings.Contains(bad.Problem, tt.problem)):
			t.Errorf("%s: the noted fault is %v, want one of %s with %q", tt.name, bad, tt.field, tt.problem)
		}
	}
}

// V13: everything that the digest of a report covers is converted.
func TestReportContentIsConverted(t *testing.T) {
	t.Attr("rules", "V13")
	no := false
	r := ParseFail(&lessorv1.FailRequest{
		TaskId: "t", LeaseId: "l", Attempt: 3, WorkerId: "w", CancelledDuringPhase: "p", PartialProgress: []byte("half"),
		Error: &lessorv1.TaskError{
			Category: lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT, Message: "m", StackTrace: "s", Retryable: &no,
			RetryAfter: durationpb.New(time.Second),
		},
		Metrics: map[string]float64{"loss": 0.5},
	}, &Intake{limits: lease.DefaultLimits()})
	f := r.Failure
	if r.Kind != lease.KindFail || r.TaskID != "t" || r.LeaseID != "l" || r.Attempt != 3 || r.Worker != "w" {
		t.Errorf("the report is %+v, want kind, ids, attempt and worker of the request", r)
	}
	if f.Category != lease.Timeout || f.Message != "m" || f.Stack != "s" || f.Retryable == nil || *f.Retryable ||
		f.RetryAfter != time.Second || f.Phase != "p" || string(f.Partial) != "half" || f.Metrics["loss"] != 0.5 {
		t.Errorf("the failure is %+v, want all fields of the request", f)
	}
	if r := ParseFail(&lessorv1.FailRequest{}, &Intake{limits: lease.DefaultLimits()}); r.Failure != nil {
		t.Error("a missing error became a failure; it must stay missing, so that the rules refuse the report (V1)")
	}
}

// V5, V13: an error without a category is converted to USER_CODE, and its repeat has the digest
// that builds which stored no category have recorded.
func TestErrorWithoutCategoryIsUserCode(t *testing.T) {
	t.Attr("rules", "V5 V13")
	r := ParseFail(&lessorv1.FailRequest{Error: &lessorv1.TaskError{Message: "m"}}, &Intake{limits: lease.DefaultLimits()})
	if r.Invalid != nil || r.Failure.Category != lease.UserCode {
		t.Errorf("the report is %+v with the failure %+v, want a good one of USER_CODE", r, r.Failure)
	}
	stored := lease.Report{Kind: lease.KindFail, Failure: &lease.Failure{Message: "m"}}
	if r.Digest() != stored.Digest() {
		t.Error("the digest differs from that of a failure without a category, so a repeat across an upgrade would be DUPLICATE_REPORT")
	}
}

// V13: a result that is converted to package lease and back has every field as it was sent.
func TestResultSurvivesConversion(t *testing.T) {
	t.Attr("rules", "V13")
	sent := &lessorv1.CompleteRequest{
		Output: []byte("out"), Metrics: map[string]float64{"loss": 0.5},
		Artifacts: []*lessorv1.Artifact{
			{ResourceId: "a", WorkerId: "w", Type: "model", SizeBytes: 3, ExpiresAt: Stamp(4), Inline: true, Metadata: map[string]string{"k": "v"}},
			{ResourceId: "b"},
		},
	}
	r := ParseComplete(sent, NewIntake(lease.DefaultLimits(), 1, 1))
	back := &lessorv1.CompleteRequest{
		Output: r.Result.Output, Metrics: r.Result.Metrics,
		Artifacts: ArtifactsProto(r.Result.Artifacts),
	}
	if !proto.Equal(back, sent) {
		t.Errorf("sent %v\n got %v", sent, back)
	}
}

// A gauge without a name or a finite value is left out and does not count. No report is refused for
// it: its result would be lost, or its lease not be renewed.
func TestGaugeWithoutANameOrValueIsLeftOut(t *testing.T) {
	sent := func(n int) map[string]float64 {
		all := gauges(n)
		all[""], all["nan"], all["inf"], all["-inf"] = 1, math.NaN(), math.Inf(1), math.Inf(-1)
		return all
	}
	wantGauges := func(name string, got map[string]float64, err *lease.FieldError, n int) {
		t.Helper()
		if want := gauges(n); err != nil || !maps.Equal(got, want) {
			t.Errorf("%s has the gauges %v, and is refused with %v; want %v", name, got, err, want)
		}
	}
	for _, n := range []int{0, 1, maxMetrics} {
		in := &Intake{limits: lease.DefaultLimits()}
		done := ParseComplete(&lessorv1.CompleteRequest{Metrics: sent(n)}, in)
		wantGauges("a Complete", done.Result.Metrics, done.Invalid, n)
		failed := ParseFail(&lessorv1.FailRequest{Error: &lessorv1.TaskError{}, Metrics: sent(n)}, in)
		wantGauges("a Fail", failed.Failure.Metrics, failed.Invalid, n)
		feed, err := ParseFeedback(&lessorv1.FeedbackItem{TaskId: "t", LeaseId: "l", Metrics: sent(n)}, in.limits)
		wantGauges("feedback", feed.Metrics, err, n)
		beat := &lessorv1.HeartbeatRequest{Metrics: sent(n)}
		renewal := ParseHeartbeat(beat, in)
		feed, shown := HeartbeatFeed(beat)
		wantGauges("a heartbeat", feed.Metrics, renewal.Invalid, n)
		if shown != (n > 0) {
			t.Errorf("a heartbeat with %d gauges that have a name is shown to watchers: %t", n, shown)
		}
	}
}

// The reports of a frame come in its order, and none has anything of another one. Those that close
// an attempt note whether they say when it began.
func TestReportsOfAFrame(t *testing.T) {
	began := timestamppb.Now()
	reports := ParseReports([]*lessorv1.Report{
		{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{TaskId: "a", Output: []byte("1"), StartedAt: began}}},
		{Report: &lessorv1.Report_Start{Start: &lessorv1.StartRequest{TaskId: "b"}}},
		{},
		{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{TaskId: "c", Output: []byte("2")}}},
		{Report: &lessorv1.Report_Fail{Fail: &lessorv1.FailRequest{TaskId: "d", StartedAt: began}}},
		{Report: &lessorv1.Report_Release{Release: &lessorv1.ReleaseRequest{TaskId: "e", Reason: "r", StartedAt: began}}},
	}, lease.DefaultLimits())
	var got []string
	for _, r := range reports {
		output := ""
		if r.Result != nil {
			output = string(r.Result.Output)
		}
		got = append(got, fmt.Sprintf("%v %s %q %q %t", r.Kind, r.TaskID, output, r.Detail, r.Started))
	}
	want := []string{
		`complete a "1" "" true`, `start b "" "" false`, `unspecified  "" "" false`, `complete c "2" "" false`,
		`fail d "" "" true`, `release e "" "r" true`,
	}
	if !slices.Equal(got, want) {
		t.Errorf("the reports are\n%s, want\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// The checkpoint of a heartbeat is part of its report.
func TestCheckpointIsConverted(t *testing.T) {
	r := ParseHeartbeat(&lessorv1.HeartbeatRequest{Checkpoint: []byte("half")}, &Intake{limits: lease.DefaultLimits()})
	if string(r.Checkpoint) != "half" {
		t.Errorf("the checkpoint is %q, want that of the heartbeat", r.Checkpoint)
	}
}
