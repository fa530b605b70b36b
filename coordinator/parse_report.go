package coordinator

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// maxMetrics is how many gauges a report may carry.
const maxMetrics = 64

// A report is read completely, whatever is wrong with it: the first bad field goes along in Report.Invalid and is judged in its turn
// (V1). Task and lease ids are taken as they came: of the wrong form they are unknown ids (V2, V3).

// claim is what every report, Start and Heartbeat begins with.
type claim interface {
	GetTaskId() string
	GetLeaseId() string
	GetAttempt() uint32
	GetWorkerId() string
}

// intake is what reports are read with: the limits, and memory for those of a frame, which is made at once.
type intake struct {
	limits  lease.Limits
	reports []lease.Report
	results []lease.Result // apart, since they are let go of before the reports
}

func (in *intake) claim(f *fields, kind lease.Kind, m claim) *lease.Report {
	r := cut(&in.reports)
	r.Kind, r.TaskID, r.LeaseID, r.Attempt = kind, m.GetTaskId(), m.GetLeaseId(), m.GetAttempt()
	r.Worker = f.id("worker_id", m.GetWorkerId())
	return r
}

// cut takes one off a piece, or makes one where it is used up.
func cut[T any](piece *[]T) *T {
	if len(*piece) == 0 {
		return new(T)
	}
	one := &(*piece)[0]
	*piece = (*piece)[1:]
	return one
}

func parseStart(m *lessorv1.StartRequest, in *intake) *lease.Report {
	f := fields{limits: in.limits}
	r := in.claim(&f, lease.KindStart, m)
	f.wall("started_at", m.GetStartedAt())
	r.Invalid = f.err
	return r
}

func parseHeartbeat(m *lessorv1.HeartbeatRequest, in *intake) *lease.Report {
	f := fields{limits: in.limits}
	r := in.claim(&f, lease.KindHeartbeat, m)
	f.wall("heartbeat_at", m.GetHeartbeatAt())
	parseProgress(&f, m.GetProgress())
	parseMetrics(&f, m.GetMetrics())
	r.Checkpoint = m.GetCheckpoint()
	r.Invalid = f.err
	return r
}

func parseComplete(m *lessorv1.CompleteRequest, in *intake) *lease.Report {
	f := fields{limits: in.limits}
	r := in.claim(&f, lease.KindComplete, m)
	f.id("report_id", m.GetReportId())
	r.Result = cut(&in.results)
	r.Result.Output = m.GetOutput()
	r.Result.Artifacts = parseArtifacts(&f, m.GetArtifacts())
	r.Result.Metrics = parseMetrics(&f, m.GetMetrics())
	f.wall("completed_at", m.GetCompletedAt())
	r.Invalid = f.err
	return r
}

func parseFail(m *lessorv1.FailRequest, in *intake) *lease.Report {
	f := fields{limits: in.limits}
	r := in.claim(&f, lease.KindFail, m)
	f.id("report_id", m.GetReportId())
	if e := m.GetError(); e != nil {
		r.Failure = &lease.Failure{
			Category: enum(&f, "error.category", e.GetCategory(), lease.CategoryCancelled),
			Message:  e.GetMessage(), Stack: e.GetStackTrace(), Retryable: e.Retryable,
			RetryAfter: f.span("error.retry_after", e.GetRetryAfter()),
			Phase:      f.id("cancelled_during_phase", m.GetCancelledDuringPhase()),
			Partial:    m.GetPartialProgress(),
			Metrics:    parseMetrics(&f, m.GetMetrics()),
		}
	}
	f.wall("completed_at", m.GetCompletedAt())
	r.Invalid = f.err
	return r
}

func parseRelease(m *lessorv1.ReleaseRequest, in *intake) *lease.Report {
	f := fields{limits: in.limits}
	r := in.claim(&f, lease.KindRelease, m)
	f.id("report_id", m.GetReportId())
	r.Detail = f.text("reason", m.GetReason(), maxReason)
	r.Delay = f.span("delay", m.GetDelay())
	r.Invalid = f.err
	return r
}

// intakeOf is an intake of so many reports, completes of which carry a result.
func intakeOf(l lease.Limits, reports, completes int) *intake {
	return &intake{l, make([]lease.Report, reports), make([]lease.Result, completes)}
}

// parseReports reads the items of a reports frame.
func parseReports(all []*lessorv1.Report, l lease.Limits) []*lease.Report {
	completes := 0
	for _, m := range all {
		if m.GetComplete() != nil {
			completes++
		}
	}
	in := intakeOf(l, len(all), completes)
	reports := make([]*lease.Report, len(all))
	for i, m := range all {
		reports[i] = parseReport(m, in)
	}
	return reports
}

// parseReport reads one of them. One that holds none of the kinds is answered as a Start without ids.
func parseReport(m *lessorv1.Report, in *intake) *lease.Report {
	switch m := m.GetReport().(type) {
	case *lessorv1.Report_Start:
		return parseStart(m.Start, in)
	case *lessorv1.Report_Complete:
		return parseComplete(m.Complete, in)
	case *lessorv1.Report_Fail:
		return parseFail(m.Fail, in)
	case *lessorv1.Report_Release:
		return parseRelease(m.Release, in)
	}
	return &lease.Report{Kind: lease.KindStart, Invalid: &lease.FieldError{Field: "report", Problem: "is empty"}}
}

func parseArtifacts(f *fields, sent []*lessorv1.Artifact) []lease.Artifact {
	f.count("artifacts", len(sent), lease.MaxArtifacts)
	sent = sent[:min(len(sent), lease.MaxArtifacts)]
	all := make([]lease.Artifact, len(sent))
	for i, m := range sent {
		path := fmt.Sprintf("artifacts[%d].", i)
		all[i] = lease.Artifact{
			ResourceID: m.GetResourceId(),
			WorkerID:   f.id(path+"worker_id", m.GetWorkerId()),
			Type:       f.id(path+"type", m.GetType()),
			SizeBytes:  m.GetSizeBytes(),
			ExpiresAt:  f.wall(path+"expires_at", m.GetExpiresAt()),
			Inline:     m.GetInline(),
			Metadata:   m.GetMetadata(),
		}
	}
	return all
}

func parseMetrics(f *fields, sent map[string]float64) map[string]float64 {
	f.count("metrics", len(sent), maxMetrics)
	for name := range sent {
		f.id("metrics", name)
	}
	return sent
}

func parseProgress(f *fields, m *lessorv1.Progress) {
	parseFraction(f, "progress.fraction", m.GetFraction())
	f.text("progress.message", m.GetMessage(), f.limits.Stack)
	f.id("progress.stage", m.GetStage())
}

func parseFraction(f *fields, name string, v float64) {
	if !(v >= 0 && v <= 1) { // also catches NaN
		f.fail(name, "is %v; the range is 0 to 1", v)
	}
}
