package coordinator

import (
	"fmt"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// parseSpec reads a spec and fills in its defaults. Paths in the error begin within the spec.
func parseSpec(m *lessorv1.TaskSpec, l lease.Limits) (*lease.Spec, error) {
	f := fields{limits: l}
	s := &lease.Spec{
		Queue: m.GetQueue(), Type: m.GetType(), Payload: m.GetPayload(), RunID: m.GetRunId(), TaskKey: m.GetTaskKey(),
		AssetID: m.GetAssetId(), IdempotencyKey: m.GetIdempotencyKey(), Priority: m.GetPriority(), Labels: m.GetLabels(),
		RunAt:             f.wall("run_at", m.GetRunAt()),
		Deadline:          f.wall("deadline", m.GetDeadline()),
		AttemptTimeout:    f.span("attempt_timeout", m.GetAttemptTimeout()),
		StartTimeout:      f.span("start_timeout", m.GetStartTimeout()),
		Retry:             parseRetryPolicy(&f, "retry_policy", m.GetRetryPolicy()),
		HeartbeatInterval: f.span("heartbeat_interval", m.GetHeartbeatInterval()),
		HeartbeatTimeout:  f.span("heartbeat_timeout", m.GetHeartbeatTimeout()),
		CancelGrace:       f.span("cancel_grace", m.GetCancelGrace()),
		Retention:         f.span("retention", m.GetRetention()),
		ConcurrencyKey:    m.GetConcurrencyKey(), ConcurrencyLimit: m.GetConcurrencyLimit(), FairnessKey: m.GetFairnessKey(),
		Requirements: parseRequirements(m.GetRequirements()),
		ResourceRefs: parseRefs(&f, m.GetResourceRefs()),
		Affinity:     parseAffinity(&f, m.GetAffinity()),
		Trace:        parseTrace(m.GetTraceMeta()),
	}
	if f.err != nil {
		return nil, f.err
	}
	if err := s.Fill(l); err != nil {
		return nil, err
	}
	return s, nil
}

func parseRetryPolicy(f *fields, name string, m *lessorv1.RetryPolicy) lease.RetryPolicy {
	p := lease.RetryPolicy{
		MaxAttempts:    m.GetMaxAttempts(),
		MaxLosses:      m.GetMaxLosses(),
		InitialBackoff: f.span(name+".initial_backoff", m.GetInitialBackoff()),
		Multiplier:     m.GetBackoffMultiplier(),
		MaxBackoff:     f.span(name+".max_backoff", m.GetMaxBackoff()),
	}
	const most = int(lease.CategoryCancelled)
	name += ".non_retryable_categories"
	sent := m.GetNonRetryableCategories()
	f.count(name, len(sent), most)
	for i, c := range sent[:min(len(sent), most)] {
		p.NonRetryable = append(p.NonRetryable, enum(f, fmt.Sprintf("%s[%d]", name, i), c, lease.CategoryCancelled))
	}
	return p
}

// submission is a parsed submit of one task or many.
type submission struct {
	workspace string
	specs     []*lease.Spec
	digests   []lease.Digest // of the specs with an idempotency key
}

// parseSubmit reads the specs of a submit, all of one workspace. path names the field that spec i came in.
func parseSubmit(sent []*lessorv1.TaskSpec, path func(i int) string, l lease.Limits) (*submission, error) {
	s := &submission{specs: make([]*lease.Spec, len(sent)), digests: make([]lease.Digest, len(sent))}
	for i, m := range sent {
		w, bad := workspace("workspace_id", m.GetWorkspaceId(), l)
		if i > 0 && bad == nil && w != s.workspace {
			bad = &lease.FieldError{Field: "workspace_id", Problem: fmt.Sprintf("is %q; a batch lies in one workspace, here %q", w, s.workspace)}
		}
		if bad != nil {
			return nil, bad.Under(path(i))
		}
		spec, err := parseSpec(m, l)
		if err != nil {
			return nil, under(path(i), err)
		}
		s.workspace, s.specs[i] = w, spec
		if spec.IdempotencyKey != "" {
			s.digests[i] = digestOf(m)
		}
	}
	return s, nil
}

// filter is a parsed TaskFilter.
type filter struct {
	workspace  string
	queue, run string
	typ, host  string
	states     map[lease.State]bool // empty: any
	labels     map[string]string
	sent       *lessorv1.TaskFilter // never nil
}

func parseFilter(f *fields, m *lessorv1.TaskFilter) filter {
	if m == nil {
		m = &lessorv1.TaskFilter{}
	}
	out := filter{
		workspace: f.workspace("filter.workspace_id", m.GetWorkspaceId()),
		queue:     f.id("filter.queue", m.GetQueue()),
		run:       f.id("filter.run_id", m.GetRunId()),
		typ:       f.id("filter.type", m.GetType()),
		host:      f.id("filter.host_node_id", m.GetHostNodeId()),
		states:    parseStates(f, m.GetStates()),
		labels:    m.GetLabels(),
		sent:      m,
	}
	f.count("filter.labels", len(out.labels), f.limits.Labels)
	return out
}

// parseStates reads the states of a filter, of which UNSPECIFIED means every one.
func parseStates(f *fields, sent []lessorv1.TaskState) map[lease.State]bool {
	const name, most = "filter.states", int(lease.Cancelled)
	f.count(name, len(sent), most)
	states := map[lease.State]bool{}
	for i, m := range sent[:min(len(sent), most)] {
		s := enum(f, fmt.Sprintf("%s[%d]", name, i), m, lease.Cancelled)
		if s == 0 {
			return nil
		}
		states[s] = true
	}
	return states
}

func (f *filter) matches(t *lease.Task) bool {
	s := t.Spec
	return (f.queue == "" || s.Queue == f.queue) &&
		(f.run == "" || s.RunID == f.run) &&
		(f.typ == "" || s.Type == f.typ) &&
		(f.host == "" || s.Trace != nil && s.Trace.Host == f.host) &&
		(len(f.states) == 0 || f.states[t.State()]) &&
		hasLabels(s.Labels, f.labels)
}

func hasLabels(have, want map[string]string) bool {
	for k, v := range want {
		if got, ok := have[k]; !ok || got != v {
			return false
		}
	}
	return true
}
