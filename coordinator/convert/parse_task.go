package convert

import (
	"fmt"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
	"github.com/lessor-dev/lessor/lease"
)

// ParseSpec reads a spec and fills in the defaults. The paths in its errors begin within the spec.
func ParseSpec(m *lessorv1.TaskSpec, l lease.Limits) (*lease.Spec, error) {
	f := Fields{Limits: l}
	s := &lease.Spec{
		Queue:             m.GetQueue(),
		Type:              m.GetType(),
		Payload:           m.GetPayload(),
		RunID:             m.GetRunId(),
		TaskKey:           m.GetTaskKey(),
		AssetID:           m.GetAssetId(),
		IdempotencyKey:    m.GetIdempotencyKey(),
		Priority:          m.GetPriority(),
		Labels:            m.GetLabels(),
		RunAt:             f.Wall("run_at", m.GetRunAt()),
		Deadline:          f.Wall("deadline", m.GetDeadline()),
		AttemptTimeout:    f.Span("attempt_timeout", m.GetAttemptTimeout(), lease.MaxTimeout),
		StartTimeout:      f.Span("start_timeout", m.GetStartTimeout(), lease.MaxTimeout),
		Retry:             ParseRetryPolicy(&f, "retry_policy", m.GetRetryPolicy()),
		HeartbeatInterval: f.Span("heartbeat_interval", m.GetHeartbeatInterval(), lease.MaxHeartbeatTimeout/2),
		HeartbeatTimeout:  f.Span("heartbeat_timeout", m.GetHeartbeatTimeout(), lease.MaxHeartbeatTimeout),
		CancelGrace:       f.Span("cancel_grace", m.GetCancelGrace(), lease.MaxCancelGrace),
		Retention:         f.Span("retention", m.GetRetention(), lease.MaxRetention),
		ConcurrencyKey:    m.GetConcurrencyKey(),
		ConcurrencyLimit:  m.GetConcurrencyLimit(),
		FairnessKey:       m.GetFairnessKey(),
		Requirements:      parseRequirements(m.GetRequirements()),
		ResourceRefs:      parseRefs(&f, m.GetResourceRefs()),
		Affinity:          parseAffinity(&f, m.GetAffinity()),
		Trace:             parseTrace(m.GetTraceMeta()),
		Traceparent:       f.Traceparent("traceparent", m.GetTraceparent()),
	}
	if f.Err != nil {
		return nil, f.Err
	}
	if err := s.Fill(l); err != nil {
		return nil, err
	}
	return s, nil
}

// ParseRetryPolicy reads a retry policy, zero if there is none; name is the path of the field.
func ParseRetryPolicy(f *Fields, name string, m *lessorv1.RetryPolicy) lease.RetryPolicy {
	if m == nil {
		return lease.RetryPolicy{} // without the names of its fields, which cost as much as the rest of a small spec
	}
	p := lease.RetryPolicy{
		MaxAttempts:    m.GetMaxAttempts(),
		MaxLosses:      m.GetMaxLosses(),
		InitialBackoff: f.Span(name+".initial_backoff", m.GetInitialBackoff(), lease.MaxInitialBackoff),
		Multiplier:     m.GetBackoffMultiplier(),
		MaxBackoff:     f.Span(name+".max_backoff", m.GetMaxBackoff(), lease.MaxMaxBackoff),
	}
	const most = int(lease.CategoryCancelled)
	name += ".non_retryable_categories"
	sent := m.GetNonRetryableCategories()
	f.Count(name, len(sent), most)
	for i, c := range sent[:min(len(sent), most)] {
		p.NonRetryable = append(p.NonRetryable, enum(f, fmt.Sprintf("%s[%d]", name, i), c, lease.CategoryCancelled))
	}
	return p
}

// ParsedSubmit is a parsed submit of one task or many.
type ParsedSubmit struct {
	Workspace string
	Specs     []*lease.Spec
	Digests   []lease.Digest // by spec; zero for a spec without an idempotency key
}

// SpecsPerTurn is after how many specs whoever reads more of them gives up the processor (package
// turn): each takes 1 us, one with many labels 10 us.
const SpecsPerTurn = 32

// ParseSubmit reads the specs of a submit, which must all be of one workspace. path(i) returns the
// path of the field that spec i came in.
func ParseSubmit(sent []*lessorv1.TaskSpec, path func(i int) string, l lease.Limits) (*ParsedSubmit, error) {
	s := &ParsedSubmit{Specs: make([]*lease.Spec, len(sent)), Digests: make([]lease.Digest, len(sent))}
	var read turn.Counter
	for i, m := range sent {
		read.Every(SpecsPerTurn)
		w, bad := Workspace("workspace_id", m.GetWorkspaceId(), l)
		if i > 0 && bad == nil && w != s.Workspace {
			bad = &lease.FieldError{
				Field: "workspace_id",
				Problem: fmt.Sprintf("is %q; all tasks of a batch must be in the same workspace, here %q",
					w, s.Workspace),
			}
		}
		if bad != nil {
			return nil, bad.Under(path(i))
		}
		spec, err := ParseSpec(m, l)
		if err != nil {
			return nil, Under(path(i), err)
		}
		s.Workspace, s.Specs[i] = w, spec
		if spec.IdempotencyKey != "" {
			s.Digests[i] = DigestOf(m)
		}
	}
	return s, nil
}

// Filter is a parsed TaskFilter.
type Filter struct {
	Workspace      string
	Run            string // empty: any
	IdempotencyKey string // empty: any
	queue          string
	typ, host      string
	concurrencyKey string
	worker         string
	created, ended span
	states         map[lease.State]bool    // empty: any
	reasons        map[lease.Reason]bool   // empty: any, or none
	categories     map[lease.Category]bool // empty: any, or no error
	labels         map[string]string
	Sent           *lessorv1.TaskFilter // never nil
}

// ParseFilter reads a filter; nil selects every task of the default workspace.
func ParseFilter(f *Fields, m *lessorv1.TaskFilter) Filter {
	if m == nil {
		m = &lessorv1.TaskFilter{}
	}
	out := Filter{
		Workspace:      f.Workspace("filter.workspace_id", m.GetWorkspaceId()),
		queue:          f.ID("filter.queue", m.GetQueue()),
		Run:            f.ID("filter.run_id", m.GetRunId()),
		IdempotencyKey: f.ID("filter.idempotency_key", m.GetIdempotencyKey()),
		typ:            f.ID("filter.type", m.GetType()),
		host:           f.ID("filter.host_node_id", m.GetHostNodeId()),
		concurrencyKey: f.ID("filter.concurrency_key", m.GetConcurrencyKey()),
		worker:         f.ID("filter.worker_id", m.GetWorkerId()),
		created:        f.span("created_after", m.GetCreatedAfter(), "created_before", m.GetCreatedBefore()),
		ended:          f.span("finished_after", m.GetFinishedAfter(), "finished_before", m.GetFinishedBefore()),
		states:         parseChoice(f, "filter.states", m.GetStates(), lease.Cancelled),
		reasons:        parseChoice(f, "filter.reasons", m.GetReasons(), lease.ResourceGone),
		categories:     parseChoice(f, "filter.error_categories", m.GetErrorCategories(), lease.CategoryCancelled),
		labels:         m.GetLabels(),
		Sent:           m,
	}
	for i, sent := range m.GetReasons() {
		if f.Err == nil && !lease.Reason(sent).EndsTasks() { // it would select nothing, without a word
			f.Fail(fmt.Sprintf("filter.reasons[%d]", i), "is %v, for which no task ends", lease.Reason(sent))
		}
	}
	f.Count("filter.labels", len(out.labels), f.Limits.Labels)
	if _, empty := out.labels[""]; empty { // no task has such a label
		f.Fail("filter.labels", "has an empty key")
	}
	return out
}

// span is a condition on a time: from <= t < to. 0 is no limit.
type span struct{ from, to lease.Wall }

func (s span) has(t lease.Wall) bool { return t >= s.from && (s.to == 0 || t < s.to) }

// span reads the limits of a span in a filter.
func (f *Fields) span(after string, from *timestamppb.Timestamp, before string, to *timestamppb.Timestamp) span {
	s := span{f.limit("filter."+after, from), f.limit("filter."+before, to)}
	if s.from != 0 && s.to != 0 && s.to <= s.from {
		f.Fail("filter."+before, "is %s; it must be later than %s, %s",
			s.to.Time().Format(time.RFC3339Nano), after, s.from.Time().Format(time.RFC3339Nano))
	}
	return s
}

// limit reads a limit on the time of a task; an absent one is 0. A timestamp without content looks
// like a limit, but would select every task, or none.
func (f *Fields) limit(name string, ts *timestamppb.Timestamp) lease.Wall {
	if ts != nil && ts.GetSeconds() == 0 && ts.GetNanos() == 0 {
		f.Fail(name, "is the first instant of 1970, or not set; leave it out for no limit")
	}
	return f.Wall(name, ts)
}

// parseChoice reads the values of an enum of which a filter selects any.
func parseChoice[T ~uint8, E ~int32](f *Fields, name string, sent []E, last T) map[T]bool {
	most := int(last)
	f.Count(name, len(sent), most)
	chosen := map[T]bool{}
	for i, m := range sent[:min(len(sent), most)] {
		field := fmt.Sprintf("%s[%d]", name, i)
		v := enum(f, field, m, last)
		if v == 0 { // it must not select every value: a bulk command would change more tasks than the other values say
			f.Fail(field, "is not set; leave all of %s out to select every task", name)
		}
		chosen[v] = true
	}
	return chosen
}

// Matches reports whether the filter selects a task. The task must be of the filter's workspace:
// Matches does not look at that.
func (f *Filter) Matches(t *lease.Task) bool {
	return f.MayMatch(t) && (len(f.states) == 0 || f.states[t.State()]) &&
		(len(f.reasons) == 0 || f.reasons[t.Reason]) &&
		(len(f.categories) == 0 || f.categories[t.ErrorCategory]) &&
		(f.ended == span{} || t.FinishedAt != 0 && f.ended.has(t.FinishedAt)) &&
		(f.worker == "" || newestWorker(t) == f.worker)
}

// newestWorker returns the worker that holds the task or, if no worker does, held it last; "" if
// none ever did.
func newestWorker(t *lease.Task) string {
	if t.Lease != nil {
		return t.Lease.Worker
	}
	return t.Last.Worker
}

// OnlyHeld reports whether the filter selects only tasks of which a worker has the lease.
func (f *Filter) OnlyHeld() bool {
	for s := range f.states {
		if !s.Held() {
			return false
		}
	}
	return len(f.states) > 0
}

// MayMatch reports whether the filter selects the task in any version. The answer never changes: it
// looks only at what no version changes.
func (f *Filter) MayMatch(t *lease.Task) bool {
	s := t.Spec
	return (f.queue == "" || s.Queue == f.queue) &&
		(f.Run == "" || s.RunID == f.Run) &&
		(f.IdempotencyKey == "" || s.IdempotencyKey == f.IdempotencyKey) &&
		(f.typ == "" || s.Type == f.typ) &&
		(f.host == "" || s.Trace != nil && s.Trace.Host == f.host) &&
		(f.concurrencyKey == "" || s.ConcurrencyKey == f.concurrencyKey) &&
		f.created.has(t.CreatedAt) &&
		HasLabels(s.Labels, f.labels)
}

// Selects reports whether the filter has any condition in addition to the workspace.
func (f *Filter) Selects() bool {
	return f.queue != "" || f.Run != "" || f.IdempotencyKey != "" || f.typ != "" || f.host != "" ||
		f.concurrencyKey != "" || f.worker != "" ||
		f.created != span{} || f.ended != span{} || len(f.states) > 0 || len(f.reasons) > 0 ||
		len(f.categories) > 0 || len(f.labels) > 0
}

// HasLabels reports whether have contains each label of want with the same value.
func HasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
