package convert

import (
	"errors"
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
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
)

// specCase changes a good spec. field is the path that the error must have, or "" if the spec stays
// good. problem is a part of the error's text.
type specCase struct {
	name           string
	change         func(*lessorv1.TaskSpec)
	field, problem string
}

func text(n int) string { return strings.Repeat("x", n) }

func labels(n int) map[string]string {
	m := map[string]string{}
	for i := range n {
		m[fmt.Sprint("k", i)] = "v"
	}
	return m
}

func refs(n int) []*lessorv1.ResourceRef {
	return slices.Repeat([]*lessorv1.ResourceRef{{ResourceId: "r", WorkerId: "w"}}, n)
}

var specSizes = []specCase{
	{"queue at the limit", func(s *lessorv1.TaskSpec) { s.Queue = text(256) }, "", ""},
	{"queue over", func(s *lessorv1.TaskSpec) { s.Queue = text(257) }, "queue", "has 257 bytes; the limit is 256"},
	{"queue empty", func(s *lessorv1.TaskSpec) { s.Queue = "" }, "queue", "must not be empty"},
	{"queue with a control character", func(s *lessorv1.TaskSpec) { s.Queue = "a\x00b" }, "queue", "control character at byte 1"},
	{"workspace at the limit", func(s *lessorv1.TaskSpec) { s.WorkspaceId = text(256) }, "", ""},
	{"workspace over", func(s *lessorv1.TaskSpec) { s.WorkspaceId = text(257) }, "workspace_id", "the limit is 256"},
	{"type over", func(s *lessorv1.TaskSpec) { s.Type = text(257) }, "type", "the limit is 256"},
	{"run over", func(s *lessorv1.TaskSpec) { s.RunId = text(257) }, "run_id", "the limit is 256"},
	{"task key over", func(s *lessorv1.TaskSpec) { s.TaskKey = text(257) }, "task_key", "the limit is 256"},
	{"asset over", func(s *lessorv1.TaskSpec) { s.AssetId = text(257) }, "asset_id", "the limit is 256"},
	{"idempotency key over", func(s *lessorv1.TaskSpec) { s.IdempotencyKey = text(257) }, "idempotency_key", "the limit is 256"},
	{"payload at the limit", func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20) }, "", ""},
	{"payload over", func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, 1<<20+1) }, "payload", "has 1048577 bytes; the limit is 1048576"},
	{"labels at the limit", func(s *lessorv1.TaskSpec) { s.Labels = labels(64) }, "", ""},
	{"labels over", func(s *lessorv1.TaskSpec) { s.Labels = labels(65) }, "labels", "has 65 entries; the limit is 64"},
	{"label value over", func(s *lessorv1.TaskSpec) { s.Labels = map[string]string{"k": text(257)} }, "labels", "256"},
	{"resources at the limit", func(s *lessorv1.TaskSpec) { s.ResourceRefs = refs(32) }, "", ""},
	{"resources over", func(s *lessorv1.TaskSpec) { s.ResourceRefs = refs(33) }, "resource_refs", "has 33 entries; the limit is 32"},
	{"label key empty", func(s *lessorv1.TaskSpec) { s.Labels = map[string]string{"": "v"} }, "labels", "empty key"},
}

// set returns a change that sets a duration of a spec.
func set(field func(*lessorv1.TaskSpec) **durationpb.Duration, d *durationpb.Duration) func(*lessorv1.TaskSpec) {
	return func(s *lessorv1.TaskSpec) { *field(s) = d }
}

// specDurations are the durations of a spec, with their ranges.
var specDurations = []struct {
	name      string
	field     func(*lessorv1.TaskSpec) **durationpb.Duration
	low, high time.Duration
}{
	{"attempt_timeout", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.AttemptTimeout }, lease.MinTimeout, lease.MaxTimeout},
	{"start_timeout", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.StartTimeout }, lease.MinTimeout, lease.MaxTimeout},
	{"heartbeat_timeout", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.HeartbeatTimeout }, lease.MinHeartbeatTimeout, lease.MaxHeartbeatTimeout},
	{"cancel_grace", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.CancelGrace }, 1, lease.MaxCancelGrace},
	{"retention", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.Retention }, lease.MinRetention, lease.MaxRetention},
	{"retry_policy.initial_backoff", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.RetryPolicy.InitialBackoff }, 1, lease.MaxInitialBackoff},
	{"retry_policy.max_backoff", func(s *lessorv1.TaskSpec) **durationpb.Duration { return &s.RetryPolicy.MaxBackoff }, time.Second, lease.MaxMaxBackoff},
}

func durationCases() (all []specCase) {
	for _, d := range specDurations {
		all = append(all,
			specCase{d.name + " at its lower limit", set(d.field, durationpb.New(d.low)), "", ""},
			specCase{d.name + " at its upper limit", set(d.field, durationpb.New(d.high)), "", ""},
			specCase{d.name + " over", set(d.field, durationpb.New(d.high+1)), d.name, ""},
			specCase{d.name + " negative", set(d.field, durationpb.New(-time.Second)), d.name, "is -1s; it cannot be negative"},
			specCase{d.name + " by a nanosecond", set(d.field, durationpb.New(-1)), d.name, "cannot be negative"},
			specCase{
				d.name + " of mixed signs", set(d.field, &durationpb.Duration{Seconds: 1, Nanos: -1}), d.name,
				"not a valid duration",
			},
			specCase{
				d.name + " with too many nanoseconds", set(d.field, &durationpb.Duration{Nanos: 1e9}), d.name,
				"not a valid duration",
			},
			specCase{
				d.name + " of centuries",
				set(d.field, &durationpb.Duration{Seconds: math.MaxInt64 / 1_000_000_000}), d.name, d.high.String(),
			},
			specCase{
				d.name + " of any length",
				set(d.field, &durationpb.Duration{Seconds: math.MaxInt64, Nanos: 999_999_999}), d.name, d.high.String(),
			},
		)
	}
	return all
}

var specTimes = []specCase{
	{"run_at in the past", func(s *lessorv1.TaskSpec) { s.RunAt = &timestamppb.Timestamp{} }, "", ""},
	{"run_at before 1970", func(s *lessorv1.TaskSpec) { s.RunAt = &timestamppb.Timestamp{Seconds: -1} }, "run_at", "before 1970"},
	{"run_at invalid", func(s *lessorv1.TaskSpec) { s.RunAt = &timestamppb.Timestamp{Nanos: -1} }, "run_at", "not a valid timestamp"},
	{"run_at in year 9999", func(s *lessorv1.TaskSpec) { s.RunAt = timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)) }, "run_at", "the limit is 2262"},
	{"deadline in year 9999", func(s *lessorv1.TaskSpec) { s.Deadline = timestamppb.New(time.Date(9999, 1, 1, 0, 0, 0, 0, time.UTC)) }, "deadline", "the limit is 2262"},
	{"deadline before run_at", func(s *lessorv1.TaskSpec) {
		s.RunAt, s.Deadline = &timestamppb.Timestamp{Seconds: 10}, &timestamppb.Timestamp{Seconds: 10}
	}, "deadline", "later than run_at"},
	{"timeout of two intervals", func(s *lessorv1.TaskSpec) {
		s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second), durationpb.New(2*time.Second)
	}, "", ""},
	{"timeout below two intervals", func(s *lessorv1.TaskSpec) {
		s.HeartbeatInterval, s.HeartbeatTimeout = durationpb.New(time.Second), durationpb.New(2*time.Second-1)
	}, "heartbeat_timeout", "twice heartbeat_interval"},
	{"interval negative", func(s *lessorv1.TaskSpec) { s.HeartbeatInterval = durationpb.New(-time.Second) }, "heartbeat_interval", "cannot be negative"},
}

var specPolicies = []specCase{
	{"budgets at the limit", func(s *lessorv1.TaskSpec) { s.RetryPolicy.MaxAttempts, s.RetryPolicy.MaxLosses = 1_000_000, 1_000_000 }, "", ""},
	{"max_attempts over", func(s *lessorv1.TaskSpec) { s.RetryPolicy.MaxAttempts = 1_000_001 }, "retry_policy.max_attempts", "the limit is 1000000"},
	{"max_losses over", func(s *lessorv1.TaskSpec) { s.RetryPolicy.MaxLosses = 1_000_001 }, "retry_policy.max_losses", "the limit is 1000000"},
	{"multiplier at its ends", func(s *lessorv1.TaskSpec) { s.RetryPolicy.BackoffMultiplier = 100 }, "", ""},
	{"multiplier over", func(s *lessorv1.TaskSpec) { s.RetryPolicy.BackoffMultiplier = 100.5 }, "retry_policy.backoff_multiplier", "1 to 100"},
	{"multiplier below", func(s *lessorv1.TaskSpec) { s.RetryPolicy.BackoffMultiplier = 0.9 }, "retry_policy.backoff_multiplier", "1 to 100"},
	{"multiplier NaN", func(s *lessorv1.TaskSpec) { s.RetryPolicy.BackoffMultiplier = math.NaN() }, "retry_policy.backoff_multiplier", "1 to 100"},
	{"categories", categories(1, 2, 3, 4, 5, 6), "", ""},
	{"too many categories", categories(1, 2, 3, 4, 5, 6, 1), "retry_policy.non_retryable_categories", "has 7 entries; the limit is 6"},
	{"category unspecified", categories(1, 0), "retry_policy.non_retryable_categories[1]", "not a known category"},
	{"category unknown", categories(7), "retry_policy.non_retryable_categories[0]", "is 7"},
	{"category that would wrap around", categories(257), "retry_policy.non_retryable_categories[0]", "is 257"},
	{"category negative", categories(-1), "retry_policy.non_retryable_categories[0]", "is -1"},
}

func categories(list ...lessorv1.ErrorCategory) func(*lessorv1.TaskSpec) {
	return func(s *lessorv1.TaskSpec) { s.RetryPolicy.NonRetryableCategories = list }
}

// S4, S7: the error for a bad spec has the path of the field, the problem, and the limit.
func TestSpecIsChecked(t *testing.T) {
	t.Attr("rules", "S4 S7")
	for _, cases := range [][]specCase{specSizes, durationCases(), specTimes, specPolicies} {
		for _, tt := range cases {
			spec := &lessorv1.TaskSpec{Queue: "q", RetryPolicy: &lessorv1.RetryPolicy{}}
			tt.change(spec)
			_, err := ParseSubmit([]*lessorv1.TaskSpec{spec}, func(int) string { return "task" }, lease.DefaultLimits())
			wantField(t, tt.name, err, tt.field, tt.problem, "task.")
		}
	}
}

// wantField checks that err is an error of this field whose text contains problem. An empty field
// means no error.
func wantField(t *testing.T, name string, err error, field, problem, prefix string) {
	t.Helper()
	var bad *lease.FieldError
	switch {
	case field == "" && err != nil:
		t.Errorf("%s: %v, want no error", name, err)
	case field == "":
	case !errors.As(err, &bad):
		t.Errorf("%s: the error is %v, want one of %s%s", name, err, prefix, field)
	case bad.Field != prefix+field || !strings.Contains(bad.Problem, problem):
		t.Errorf("%s: the error is %q, want %s%s with %q", name, bad, prefix, field, problem)
	}
}

// T1: all tasks of a batch must be in one workspace. The path of the error names the bad spec.
func TestBatchMustBeInOneWorkspace(t *testing.T) {
	t.Attr("rules", "T1")
	path := func(i int) string { return fmt.Sprintf("tasks[%d]", i) }
	same := []*lessorv1.TaskSpec{{Queue: "q"}, {Queue: "q", WorkspaceId: DefaultWorkspace}}
	sub, err := ParseSubmit(same, path, lease.DefaultLimits())
	if err != nil || sub.Workspace != DefaultWorkspace {
		t.Errorf("the batch is %v (%v), want one of the default workspace", sub, err)
	}
	_, err = ParseSubmit([]*lessorv1.TaskSpec{{Queue: "q"}, {Queue: "q", WorkspaceId: "b"}}, path, lease.DefaultLimits())
	wantField(t, "two workspaces", err, "tasks[1].workspace_id", `is "b"`, "")
	_, err = ParseSubmit([]*lessorv1.TaskSpec{{Queue: "q"}, {Queue: "q"}, {}}, path, lease.DefaultLimits())
	wantField(t, "bad spec", err, "tasks[2].queue", "must not be empty", "")
}

// A timestamp of 0 differs from no timestamp: it is a deadline at the beginning of 1970, which has
// passed.
func TestTimestampZeroIsNotAbsent(t *testing.T) {
	s, err := ParseSpec(&lessorv1.TaskSpec{Queue: "q", Deadline: &timestamppb.Timestamp{}}, lease.DefaultLimits())
	if err != nil || s.Deadline == 0 {
		t.Errorf("the spec is %v (%v), want a deadline in the past", s, err)
	}
}

// A spec that is converted to package lease and back has every field as it was sent.
func TestSpecSurvivesConversion(t *testing.T) {
	sent := fullSpec()
	proto.Merge(sent, placedSpec())
	sent.ConcurrencyKey, sent.ConcurrencyLimit, sent.FairnessKey = "c", 3, "f"
	sent.TraceMeta = &lessorv1.TraceMeta{HostNodeId: "h", MiddlewareChain: []string{"a", "b"}, ChainIndex: proto.Uint32(1)}
	sent.Traceparent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for fields, i := sent.ProtoReflect().Descriptor().Fields(), 0; i < fields.Len(); i++ {
		if !sent.ProtoReflect().Has(fields.Get(i)) {
			t.Errorf("the test does not set the field %s, so that it does not check it", fields.Get(i).Name())
		}
	}
	s, err := ParseSpec(sent, lease.DefaultLimits())
	if err != nil {
		t.Fatal(err)
	}
	back := specProto("w", s)
	back.Payload = s.Payload
	if !proto.Equal(back, sent) {
		t.Errorf("sent %v\n got %v", sent, back)
	}
}

// A filter with a bad field is refused with the path of the field and the limit.
func TestFilterIsChecked(t *testing.T) {
	state := func(list ...lessorv1.TaskState) *lessorv1.TaskFilter { return &lessorv1.TaskFilter{States: list} }
	for _, tt := range []struct {
		name           string
		filter         *lessorv1.TaskFilter
		field, problem string
	}{
		{"nil", nil, "", ""},
		{"queue over", &lessorv1.TaskFilter{Queue: text(257)}, "filter.queue", "the limit is 256"},
		{"run over", &lessorv1.TaskFilter{RunId: text(257)}, "filter.run_id", "the limit is 256"},
		{"type over", &lessorv1.TaskFilter{Type: text(257)}, "filter.type", "the limit is 256"},
		{"host over", &lessorv1.TaskFilter{HostNodeId: text(257)}, "filter.host_node_id", "the limit is 256"},
		{"key over", &lessorv1.TaskFilter{ConcurrencyKey: text(257)}, "filter.concurrency_key", "the limit is 256"},
		{"idempotency key over", &lessorv1.TaskFilter{IdempotencyKey: text(257)}, "filter.idempotency_key", "the limit is 256"},
		{"worker over", &lessorv1.TaskFilter{WorkerId: text(257)}, "filter.worker_id", "the limit is 256"},
		{"after no time", &lessorv1.TaskFilter{CreatedAfter: &timestamppb.Timestamp{}}, "filter.created_after", "is the first instant of 1970"},
		{"before no time", &lessorv1.TaskFilter{CreatedBefore: &timestamppb.Timestamp{}}, "filter.created_before", "is the first instant of 1970"},
		{"after a bad time", &lessorv1.TaskFilter{CreatedAfter: &timestamppb.Timestamp{Nanos: -1}}, "filter.created_after", "is not a valid timestamp"},
		{"before an early time", &lessorv1.TaskFilter{CreatedBefore: at(-1)}, "filter.created_before", "it cannot be before 1970"},
		{"before a late time", &lessorv1.TaskFilter{CreatedBefore: at(1e10)}, "filter.created_before", "the limit is 2262-04-11T23:47:15Z"},
		{
			"no time between", &lessorv1.TaskFilter{CreatedAfter: at(60), CreatedBefore: at(60)}, "filter.created_before",
			"is 1970-01-01T00:01:00Z; it must be later than created_after, 1970-01-01T00:01:00Z",
		},
		{"one instant between", &lessorv1.TaskFilter{CreatedAfter: at(60), CreatedBefore: &timestamppb.Timestamp{Seconds: 60, Nanos: 1}}, "", ""},
		{"ended after no time", &lessorv1.TaskFilter{FinishedAfter: &timestamppb.Timestamp{}}, "filter.finished_after", "is the first instant of 1970"},
		{
			"no end between", &lessorv1.TaskFilter{FinishedAfter: at(60), FinishedBefore: at(60)}, "filter.finished_before",
			"is 1970-01-01T00:01:00Z; it must be later than finished_after, 1970-01-01T00:01:00Z",
		},
		{"unknown reason", &lessorv1.TaskFilter{Reasons: []lessorv1.Reason{18, 99}}, "filter.reasons[1]", "is 99"},
		{"a reason that is not set", &lessorv1.TaskFilter{Reasons: []lessorv1.Reason{18, 0}}, "filter.reasons[1]", "is not set"},
		{"a reason of a lease", &lessorv1.TaskFilter{Reasons: []lessorv1.Reason{18, 10}}, "filter.reasons[1]", "is LEASE_EXPIRED, for which no task ends"},
		{"unknown category", &lessorv1.TaskFilter{ErrorCategories: []lessorv1.ErrorCategory{5, 7}}, "filter.error_categories[1]", "is 7"},
		{"a category that is not set", &lessorv1.TaskFilter{ErrorCategories: []lessorv1.ErrorCategory{0}}, "filter.error_categories[0]", "is not set"},
		{"too many reasons", &lessorv1.TaskFilter{Reasons: make([]lessorv1.Reason, 22)}, "filter.reasons", "the limit is 21"},
		{"workspace over", &lessorv1.TaskFilter{WorkspaceId: text(257)}, "filter.workspace_id", "the limit is 256"},
		{"label key empty", &lessorv1.TaskFilter{Labels: map[string]string{"": "v"}}, "filter.labels", "has an empty key"},
		{"labels over", &lessorv1.TaskFilter{Labels: labels(65)}, "filter.labels", "the limit is 64"},
		{"every state", state(1, 2, 3, 4, 5, 6, 7, 8), "", ""},
		{"unknown state", state(1, 9), "filter.states[1]", "is 9"},
		{"a state that is not set", state(7, 0), "filter.states[1]", "is not set"},
		{"wrapping state", state(256), "filter.states[0]", "is 256"},
		{"too many states", state(1, 1, 1, 1, 1, 1, 1, 1, 1), "filter.states", "the limit is 8"},
	} {
		f := &Fields{Limits: lease.DefaultLimits()}
		ParseFilter(f, tt.filter)
		var err error
		if f.Err != nil {
			err = f.Err
		}
		wantField(t, tt.name, err, tt.field, tt.problem, "")
	}
}

// A filter matches a task if all its conditions do. No states match every state.
func TestFilterMatches(t *testing.T) {
	task := &lease.Task{Rest: lease.Ready, CreatedAt: 60e9, Last: lease.Ended{Worker: "w"}, Spec: &lease.Spec{
		Queue: "q", RunID: "r", Type: "t", ConcurrencyKey: "k", IdempotencyKey: "i", Labels: map[string]string{"a": "1", "b": ""},
		Trace: &lease.Trace{Host: "h"},
	}}
	untraced, spec := *task, *task.Spec
	untraced.Spec, spec.Trace = &spec, nil
	for name, tt := range map[string]struct {
		filter *lessorv1.TaskFilter
		want   bool
	}{
		"nothing": {nil, true},
		"all": {&lessorv1.TaskFilter{
			Queue: "q", RunId: "r", Type: "t", HostNodeId: "h", ConcurrencyKey: "k", States: []lessorv1.TaskState{2},
			Labels:         map[string]string{"b": ""},
			IdempotencyKey: "i", WorkerId: "w", CreatedAfter: at(60), CreatedBefore: at(61),
		}, true},
		"idempotency":   {&lessorv1.TaskFilter{IdempotencyKey: "k"}, false},
		"worker":        {&lessorv1.TaskFilter{WorkerId: "v"}, false},
		"at":            {&lessorv1.TaskFilter{CreatedAfter: at(60)}, true},
		"later":         {&lessorv1.TaskFilter{CreatedAfter: &timestamppb.Timestamp{Seconds: 60, Nanos: 1}}, false},
		"until":         {&lessorv1.TaskFilter{CreatedBefore: at(60)}, false},
		"earlier":       {&lessorv1.TaskFilter{CreatedBefore: &timestamppb.Timestamp{Seconds: 60, Nanos: 1}}, true},
		"queue":         {&lessorv1.TaskFilter{Queue: "p"}, false},
		"run":           {&lessorv1.TaskFilter{RunId: "s"}, false},
		"type":          {&lessorv1.TaskFilter{Type: "u"}, false},
		"host":          {&lessorv1.TaskFilter{HostNodeId: "i"}, false},
		"key":           {&lessorv1.TaskFilter{ConcurrencyKey: "l"}, false},
		"state":         {&lessorv1.TaskFilter{States: []lessorv1.TaskState{7, 8}}, false},
		"label":         {&lessorv1.TaskFilter{Labels: map[string]string{"a": "2"}}, false},
		"missing label": {&lessorv1.TaskFilter{Labels: map[string]string{"c": ""}}, false},
	} {
		f := &Fields{Limits: lease.DefaultLimits()}
		filter := ParseFilter(f, tt.filter)
		if got := filter.Matches(task); got != tt.want {
			t.Errorf("%s: the filter matches: %v, want %v", name, got, tt.want)
		}
		if filter.Matches(&untraced) != (tt.want && tt.filter.GetHostNodeId() == "") {
			t.Errorf("%s: the filter matches a task without trace_meta: %v", name, filter.Matches(&untraced))
		}
	}
}

// A filter by the time or the reason of an end selects only tasks that have ended, one by the error
// of an attempt all that have one.
func TestFilterByEnd(t *testing.T) {
	tasks := map[string]*lease.Task{
		"failed":    {Rest: lease.Failed, Reason: lease.StartTimeout, FinishedAt: 60e9},
		"completed": {Rest: lease.Completed, FinishedAt: 60e9, ErrorCategory: lease.Timeout},
		"ready":     {Rest: lease.Ready, ErrorCategory: lease.DataQuality},
	}
	startTimeout, cancelled := lessorv1.Reason(lease.StartTimeout), lessorv1.Reason(lease.TaskCancelled)
	for name, tt := range map[string]struct {
		filter *lessorv1.TaskFilter
		want   string
	}{
		"at":            {&lessorv1.TaskFilter{FinishedAfter: at(60), FinishedBefore: at(61)}, "completed failed"},
		"later":         {&lessorv1.TaskFilter{FinishedAfter: &timestamppb.Timestamp{Seconds: 60, Nanos: 1}}, ""},
		"until":         {&lessorv1.TaskFilter{FinishedBefore: at(60)}, ""},
		"earlier":       {&lessorv1.TaskFilter{FinishedBefore: &timestamppb.Timestamp{Seconds: 60, Nanos: 1}}, "completed failed"},
		"reason":        {&lessorv1.TaskFilter{Reasons: []lessorv1.Reason{cancelled, startTimeout}}, "failed"},
		"other reason":  {&lessorv1.TaskFilter{Reasons: []lessorv1.Reason{cancelled}}, ""},
		"error":         {&lessorv1.TaskFilter{ErrorCategories: []lessorv1.ErrorCategory{2, 5}}, "completed ready"},
		"other error":   {&lessorv1.TaskFilter{ErrorCategories: []lessorv1.ErrorCategory{1}}, ""},
		"error, state":  {&lessorv1.TaskFilter{ErrorCategories: []lessorv1.ErrorCategory{2, 5}, States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_COMPLETED}}, "completed"},
		"reason, later": {&lessorv1.TaskFilter{Reasons: []lessorv1.Reason{startTimeout}, FinishedAfter: at(61)}, ""},
	} {
		filter := ParseFilter(&Fields{Limits: lease.DefaultLimits()}, tt.filter)
		var got []string
		for _, key := range slices.Sorted(maps.Keys(tasks)) {
			task := tasks[key]
			task.Spec = &lease.Spec{}
			if filter.Matches(task) {
				got = append(got, key)
			}
			if !filter.MayMatch(task) {
				t.Errorf("%s: the filter says that it never matches the %s task, which may end", name, key)
			}
		}
		if got := strings.Join(got, " "); got != tt.want {
			t.Errorf("%s: the filter matches %q, want %q", name, got, tt.want)
		}
	}
}

// The reasons that people may name in a filter are those that a filter takes.
func TestReasonsOfAnEnd(t *testing.T) {
	for r := lease.NoReason + 1; r <= lease.ResourceGone; r++ {
		if _, named := words.EndReasonNamed(words.Name(lessorv1.Reason(r))); named != r.EndsTasks() {
			t.Errorf("%v can be named: %v, and ends tasks: %v", r, named, r.EndsTasks())
		}
	}
}

// The worker of a filter is the one that holds the task. Only if no worker does, it is the one that
// held it last.
func TestFilterByWorker(t *testing.T) {
	held := &lease.Task{Spec: &lease.Spec{}, Lease: &lease.Lease{Worker: "new"}, Last: lease.Ended{Worker: "old"}}
	ended := &lease.Task{Spec: &lease.Spec{}, Last: lease.Ended{Worker: "old"}}
	fresh := &lease.Task{Spec: &lease.Spec{}}
	for worker, want := range map[string]string{"new": "held", "old": "ended", "": "held ended fresh"} {
		filter := ParseFilter(&Fields{Limits: lease.DefaultLimits()}, &lessorv1.TaskFilter{WorkerId: worker})
		for name, task := range map[string]*lease.Task{"held": held, "ended": ended, "fresh": fresh} {
			if got := filter.Matches(task); got != strings.Contains(want, name) {
				t.Errorf("worker %q: the filter matches the %s task: %v", worker, name, got)
			}
			if !filter.MayMatch(task) {
				t.Errorf("worker %q: the filter says that it never matches the %s task, whose worker may change", worker, name)
			}
		}
	}
}

func at(second int64) *timestamppb.Timestamp { return &timestamppb.Timestamp{Seconds: second} }

// A filter selects if it has any condition besides the workspace. Bulk calls need one, so that
// nobody cancels all tasks by mistake.
func TestFilterSelects(t *testing.T) {
	for name, tt := range map[string]struct {
		filter *lessorv1.TaskFilter
		want   bool
	}{
		"nothing":   {nil, false},
		"workspace": {&lessorv1.TaskFilter{WorkspaceId: "w"}, false},
		"queue":     {&lessorv1.TaskFilter{Queue: "q"}, true},
		"run":       {&lessorv1.TaskFilter{RunId: "r"}, true},
		"type":      {&lessorv1.TaskFilter{Type: "t"}, true},
		"host":      {&lessorv1.TaskFilter{HostNodeId: "h"}, true},
		"key":       {&lessorv1.TaskFilter{ConcurrencyKey: "k"}, true},
		"repeats":   {&lessorv1.TaskFilter{IdempotencyKey: "i"}, true},
		"worker":    {&lessorv1.TaskFilter{WorkerId: "w"}, true},
		"after":     {&lessorv1.TaskFilter{CreatedAfter: at(1)}, true},
		"before":    {&lessorv1.TaskFilter{CreatedBefore: at(1)}, true},
		"state":     {&lessorv1.TaskFilter{States: []lessorv1.TaskState{7}}, true},
		"ended":     {&lessorv1.TaskFilter{FinishedAfter: at(1)}, true},
		"ended by":  {&lessorv1.TaskFilter{FinishedBefore: at(1)}, true},
		"reason":    {&lessorv1.TaskFilter{Reasons: []lessorv1.Reason{18}}, true},
		"error":     {&lessorv1.TaskFilter{ErrorCategories: []lessorv1.ErrorCategory{5}}, true},
		"label":     {&lessorv1.TaskFilter{Labels: map[string]string{"a": ""}}, true},
	} {
		filter := ParseFilter(&Fields{Limits: lease.DefaultLimits()}, tt.filter)
		if got := filter.Selects(); got != tt.want {
			t.Errorf("%s: the filter selects: %v, want %v", name, got, tt.want)
		}
	}
}
