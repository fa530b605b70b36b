package convert

import (
	"cmp"
	"fmt"
	"maps"
	"math"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// maxMetrics is how many gauges a report may carry.
const maxMetrics = 64

// A parser reads all of a report even if a field is bad. It keeps the error about the first bad
// field in Report.Invalid, and package lease judges the report (V1). Task and lease ids are not
// checked here: an id of the wrong form counts as an unknown id (V2, V3).

// claim has the fields that all reports, Start and Heartbeat included, share.
type claim interface {
	GetTaskId() string
	GetLeaseId() string
	GetAttempt() uint32
	GetWorkerId() string
}

// Intake holds the limits for the parsers of reports, and the memory for all reports of a frame,
// which is allocated at once.
type Intake struct {
	limits  lease.Limits
	reports []lease.Report
	results []lease.Result // a separate slice, because results are released before the reports
}

func (in *Intake) claim(f *Fields, kind lease.Kind, m claim) *lease.Report {
	r := cut(&in.reports)
	r.Kind, r.TaskID, r.LeaseID, r.Attempt = kind, m.GetTaskId(), m.GetLeaseId(), m.GetAttempt()
	r.Worker = f.ID("worker_id", m.GetWorkerId())
	return r
}

// cut takes the next element from a slice that was allocated in advance, or allocates one if the
// slice is used up.
func cut[T any](piece *[]T) *T {
	if len(*piece) == 0 {
		return new(T)
	}
	one := &(*piece)[0]
	*piece = (*piece)[1:]
	return one
}

// ParseStart reads the report that an attempt begins.
func ParseStart(m *lessorv1.StartRequest, in *Intake) *lease.Report {
	f := Fields{Limits: in.limits}
	r := in.claim(&f, lease.KindStart, m)
	r.At = f.Wall("started_at", m.GetStartedAt())
	r.Started = m.GetBegun()
	r.Invalid = f.Err
	return r
}

// ParseHeartbeat reads the renewal of a lease. Its progress is read by HeartbeatFeed.
func ParseHeartbeat(m *lessorv1.HeartbeatRequest, in *Intake) *lease.Report {
	f := Fields{Limits: in.limits}
	r := in.claim(&f, lease.KindHeartbeat, m)
	r.At = f.Wall("heartbeat_at", m.GetHeartbeatAt())
	parseProgress(&f, m.GetProgress())
	ParseMetrics(&f, m.GetMetrics())
	r.Checkpoint = m.GetCheckpoint()
	r.Invalid = f.Err
	return r
}

// ParseComplete reads the report that an attempt succeeded.
func ParseComplete(m *lessorv1.CompleteRequest, in *Intake) *lease.Report {
	f := Fields{Limits: in.limits}
	r := in.claim(&f, lease.KindComplete, m)
	r.ID = f.ID("report_id", m.GetReportId())
	r.Result = cut(&in.results)
	r.Result.Output = m.GetOutput()
	r.Result.Artifacts = parseArtifacts(&f, m.GetArtifacts())
	r.Result.Metrics = ParseMetrics(&f, m.GetMetrics())
	r.At = f.Wall("completed_at", m.GetCompletedAt())
	r.Started = f.started(m.GetStartedAt())
	r.Invalid = f.Err
	return r
}

// ParseFail reads the report that an attempt failed.
func ParseFail(m *lessorv1.FailRequest, in *Intake) *lease.Report {
	f := Fields{Limits: in.limits}
	r := in.claim(&f, lease.KindFail, m)
	r.ID = f.ID("report_id", m.GetReportId())
	if e := m.GetError(); e != nil {
		r.Failure = &lease.Failure{
			Category:   cmp.Or(enum(&f, "error.category", e.GetCategory(), lease.CategoryCancelled), lease.UserCode),
			Message:    e.GetMessage(),
			Stack:      e.GetStackTrace(),
			Retryable:  e.Retryable,
			RetryAfter: f.Span("error.retry_after", e.GetRetryAfter(), NoLimit),
			Phase:      f.ID("cancelled_during_phase", m.GetCancelledDuringPhase()),
			Partial:    m.GetPartialProgress(),
			Metrics:    ParseMetrics(&f, m.GetMetrics()),
		}
	}
	r.At = f.Wall("completed_at", m.GetCompletedAt())
	r.Started = f.started(m.GetStartedAt())
	r.Invalid = f.Err
	return r
}

// ParseRelease reads the report that a worker gives a task back.
func ParseRelease(m *lessorv1.ReleaseRequest, in *Intake) *lease.Report {
	f := Fields{Limits: in.limits}
	r := in.claim(&f, lease.KindRelease, m)
	r.ID = f.ID("report_id", m.GetReportId())
	r.Detail = f.Text("reason", m.GetReason(), MaxReason)
	r.Delay = f.Span("delay", m.GetDelay(), lease.MaxDelay)
	r.Started = f.started(m.GetStartedAt())
	r.Invalid = f.Err
	return r
}

// started reports whether a report that closes an attempt says when the attempt began.
func (f *Fields) started(at *timestamppb.Timestamp) bool {
	f.Wall("started_at", at)
	return at != nil
}

// NewIntake returns an intake with memory for the given number of reports, and for the results of
// the Completes among them.
func NewIntake(l lease.Limits, reports, completes int) *Intake {
	return &Intake{l, make([]lease.Report, reports), make([]lease.Result, completes)}
}

// ParseReports reads the items of a reports frame.
func ParseReports(all []*lessorv1.Report, l lease.Limits) []*lease.Report {
	completes := 0
	for _, m := range all {
		if m.GetComplete() != nil {
			completes++
		}
	}
	in := NewIntake(l, len(all), completes)
	reports := make([]*lease.Report, len(all))
	for i, m := range all {
		reports[i] = parseReport(m, in)
	}
	return reports
}

// LogFields returns what the log says of a report: its task, and if it is well-formed its report_id
// and the worker's own time.
func LogFields(r *lease.Report) (fields []any) {
	if _, ok := lease.ParseTaskID(r.TaskID); ok {
		fields = append(fields, "id", r.TaskID)
	}
	if r.Invalid == nil && r.ID != "" {
		fields = append(fields, "corr", r.ID)
	}
	if r.Invalid == nil && r.At != 0 {
		fields = append(fields, "worker_time", r.At.Time())
	}
	return fields
}

// parseReport reads one report. A report of another kind, as a newer worker may send it, has no ids
// that could be read: it is REJECTED (V1), and its answer and the metrics claim no kind for it.
func parseReport(m *lessorv1.Report, in *Intake) *lease.Report {
	switch m := m.GetReport().(type) {
	case *lessorv1.Report_Start:
		return ParseStart(m.Start, in)
	case *lessorv1.Report_Complete:
		return ParseComplete(m.Complete, in)
	case *lessorv1.Report_Fail:
		return ParseFail(m.Fail, in)
	case *lessorv1.Report_Release:
		return ParseRelease(m.Release, in)
	}
	return &lease.Report{
		Invalid: &lease.FieldError{Field: "report", Problem: "has no kind that this coordinator knows"},
	}
}

func parseArtifacts(f *Fields, sent []*lessorv1.Artifact) []lease.Artifact {
	f.Count("artifacts", len(sent), lease.MaxArtifacts)
	sent = sent[:min(len(sent), lease.MaxArtifacts)]
	all := make([]lease.Artifact, len(sent))
	for i, m := range sent {
		path := fmt.Sprintf("artifacts[%d].", i)
		all[i] = lease.Artifact{
			ResourceID: m.GetResourceId(),
			WorkerID:   f.ID(path+"worker_id", m.GetWorkerId()),
			Type:       f.ID(path+"type", m.GetType()),
			SizeBytes:  m.GetSizeBytes(),
			ExpiresAt:  f.Wall(path+"expires_at", m.GetExpiresAt()),
			Inline:     m.GetInline(),
			Metadata:   m.GetMetadata(),
		}
	}
	return all
}

// ParseMetrics checks the gauges of a report, heartbeat or item of feedback. It removes those
// without a name or a finite value: nobody could ask for the former, JSON has no words for the
// latter, and to refuse the report would lose its result.
func ParseMetrics(f *Fields, sent map[string]float64) map[string]float64 {
	maps.DeleteFunc(sent, func(name string, value float64) bool {
		return name == "" || math.IsNaN(value) ||
			math.IsInf(value, 0)
	})
	f.Count("metrics", len(sent), maxMetrics)
	for name := range sent {
		f.ID("metrics", name)
	}
	return sent
}

func parseProgress(f *Fields, m *lessorv1.Progress) {
	parseFraction(f, "progress.fraction", m.GetFraction())
	f.Text("progress.message", m.GetMessage(), f.Limits.Stack)
	f.ID("progress.stage", m.GetStage())
}

func parseFraction(f *Fields, name string, v float64) {
	if !(v >= 0 && v <= 1) { // also catches NaN
		f.Fail(name, "is %v; the range is 0 to 1", v)
	}
}
