package lease

import (
	"errors"
	"maps"
	"math"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Fill sets the defaults of the fields that the producer left out, and the size of the payload.
func TestFillSetsDefaults(t *testing.T) {
	s := Spec{Queue: "q", Payload: []byte("four"), ConcurrencyKey: "k"}
	if err := s.Fill(DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		field     string
		got, want any
	}{
		{"size", s.Size, 4},
		{"heartbeat_interval", s.HeartbeatInterval, 30 * time.Second}, // T8
		{"heartbeat_timeout", s.HeartbeatTimeout, 90 * time.Second},   // T8
		{"cancel_grace", s.CancelGrace, 30 * time.Second},             // T7
		{"retention", s.Retention, 72 * time.Hour},                    // T9
		{"attempt_timeout", s.AttemptTimeout, time.Duration(0)},       // T6: no limit
		{"start_timeout", s.StartTimeout, time.Duration(0)},           // T6: no limit
		{"concurrency_limit", s.ConcurrencyLimit, uint32(1)},          // T11
	} {
		if c.got != c.want {
			t.Errorf("%s is %v, want %v", c.field, c.got, c.want)
		}
	}
}

// S7: the limits that apply unless an operator sets others.
func TestDefaultLimits(t *testing.T) {
	t.Attr("rules", "S7")
	want := Limits{
		Payload: 1_048_576, Output: 1_048_576, ID: 256, Labels: 64, Checkpoint: 65_536, Stack: 65_536,
		Discarded: 65_536, Batch: 1000,
	}
	if got := DefaultLimits(); got != want {
		t.Errorf("the limits are %+v, want %+v", got, want)
	}
}

// T3: each field of the retry policy is the task's, else the queue's, else the default. The result
// always has initial_backoff <= max_backoff: the one that the task did not set is adjusted.
func TestRetryPolicyIsFilledFieldByField(t *testing.T) {
	t.Attr("rules", "T3")
	never := []Category{Timeout}
	whole := RetryPolicy{
		MaxAttempts: 7, MaxLosses: 8, InitialBackoff: time.Minute, Multiplier: 3,
		MaxBackoff: time.Hour, NonRetryable: never,
	}
	defaults := RetryPolicy{MaxAttempts: 5, MaxLosses: 3, InitialBackoff: time.Second, Multiplier: 2, MaxBackoff: 5 * time.Minute}
	for _, c := range []struct {
		name              string
		task, queue, want RetryPolicy
	}{
		{"nothing set", RetryPolicy{}, RetryPolicy{}, defaults},
		{"all set by the queue", RetryPolicy{}, whole, whole},
		{"all set by the task", whole, RetryPolicy{MaxAttempts: 1, MaxLosses: 1, InitialBackoff: 1, Multiplier: 1, MaxBackoff: 1}, whole},
		{
			"each sets something",
			RetryPolicy{MaxAttempts: 1},
			RetryPolicy{MaxAttempts: 9, MaxLosses: 4},
			RetryPolicy{MaxAttempts: 1, MaxLosses: 4, InitialBackoff: time.Second, Multiplier: 2, MaxBackoff: 5 * time.Minute},
		},
		{
			"an initial_backoff above the default max_backoff",
			RetryPolicy{InitialBackoff: time.Hour},
			RetryPolicy{},
			RetryPolicy{MaxAttempts: 5, MaxLosses: 3, InitialBackoff: time.Hour, Multiplier: 2, MaxBackoff: time.Hour},
		},
		{
			"a max_backoff below the queue's initial_backoff",
			RetryPolicy{MaxBackoff: time.Second},
			RetryPolicy{InitialBackoff: 100 * time.Second, MaxBackoff: time.Hour},
			RetryPolicy{MaxAttempts: 5, MaxLosses: 3, InitialBackoff: time.Second, Multiplier: 2, MaxBackoff: time.Second},
		},
		{
			"an initial_backoff above the queue's max_backoff",
			RetryPolicy{InitialBackoff: 100 * time.Second},
			RetryPolicy{InitialBackoff: time.Second, MaxBackoff: 2 * time.Second},
			RetryPolicy{
				MaxAttempts: 5, MaxLosses: 3, InitialBackoff: 100 * time.Second, Multiplier: 2,
				MaxBackoff: 100 * time.Second,
			},
		},
		{
			"an initial_backoff of the queue above the default max_backoff",
			RetryPolicy{},
			RetryPolicy{InitialBackoff: time.Hour},
			RetryPolicy{MaxAttempts: 5, MaxLosses: 3, InitialBackoff: time.Hour, Multiplier: 2, MaxBackoff: time.Hour},
		},
		{
			"a max_backoff below the default initial_backoff",
			RetryPolicy{MaxBackoff: time.Millisecond},
			RetryPolicy{},
			RetryPolicy{
				MaxAttempts: 5, MaxLosses: 3, InitialBackoff: time.Millisecond, Multiplier: 2,
				MaxBackoff: time.Millisecond,
			},
		},
	} {
		if got := c.task.withDefaults(c.queue); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s:\n got %+v\nwant %+v", c.name, got, c.want)
		}
	}
}

// T3, T13: a policy sets something if any field is set. An update of a queue's policy without any
// field would clear the policy.
func TestRetryPolicyIsSet(t *testing.T) {
	t.Attr("rules", "T13")
	for _, p := range []RetryPolicy{
		{MaxAttempts: 1}, {MaxLosses: 1}, {InitialBackoff: 1}, {Multiplier: 1}, {MaxBackoff: 1}, {NonRetryable: []Category{Timeout}},
	} {
		if !p.IsSet() {
			t.Errorf("%+v: IsSet is false, want true", p)
		}
	}
	if p := (RetryPolicy{NonRetryable: []Category{}}); p.IsSet() {
		t.Errorf("%+v: IsSet is true, want false", p)
	}
}

// T8: if only one of heartbeat_interval and heartbeat_timeout is set, Fill derives the other: the
// timeout is three intervals, both within their ranges.
func TestFillDerivesHeartbeatIntervalAndTimeout(t *testing.T) {
	t.Attr("rules", "T8")
	for _, c := range []struct{ interval, timeout, wantInterval, wantTimeout time.Duration }{
		{interval: 10 * time.Second, wantInterval: 10 * time.Second, wantTimeout: 30 * time.Second},
		{timeout: 30 * time.Second, wantInterval: 10 * time.Second, wantTimeout: 30 * time.Second},
		{interval: MinHeartbeatInterval, wantInterval: MinHeartbeatInterval, wantTimeout: MinHeartbeatTimeout},
		{interval: 12 * time.Hour, wantInterval: 12 * time.Hour, wantTimeout: MaxHeartbeatTimeout},
		{timeout: MinHeartbeatTimeout, wantInterval: MinHeartbeatTimeout / 3, wantTimeout: MinHeartbeatTimeout},
	} {
		s := Spec{Queue: "q", HeartbeatInterval: c.interval, HeartbeatTimeout: c.timeout}
		if err := s.Fill(DefaultLimits()); err != nil {
			t.Errorf("interval %v, timeout %v: %v", c.interval, c.timeout, err)
		}
		if s.HeartbeatInterval != c.wantInterval || s.HeartbeatTimeout != c.wantTimeout {
			t.Errorf("interval %v, timeout %v became %v, %v; want %v, %v",
				c.interval, c.timeout, s.HeartbeatInterval, s.HeartbeatTimeout, c.wantInterval, c.wantTimeout)
		}
	}
}

// S7, T8: Fill accepts each field at the end of its range (good), and refuses it beyond (bad) with
// an error that names the field and the limit.
func TestFillLimits(t *testing.T) {
	t.Attr("rules", "S7 T8")
	limits := Limits{Payload: 10, ID: 8, Labels: 2}
	full, over := strings.Repeat("x", 8), strings.Repeat("x", 9)
	labels := func(n int) map[string]string {
		m := map[string]string{}
		for i := range n {
			m[strconv.Itoa(i)] = ""
		}
		return m
	}
	for _, c := range []struct {
		good, bad Spec
		field     string
		limit     string // what the refusal must contain
	}{
		{Spec{Queue: "q"}, Spec{Queue: "\x00"}, "queue", "control character"},
		{Spec{Queue: "a ~é"}, Spec{Queue: "a\x1f"}, "queue", "control character at byte 1"},
		{Spec{Queue: "q"}, Spec{Queue: "\x7f"}, "queue", "control character"},
		{Spec{Queue: full}, Spec{Queue: over}, "queue", "8"},
		{Spec{Type: full}, Spec{Type: over}, "type", "8"},
		{Spec{RunID: full}, Spec{RunID: over}, "run_id", "8"},
		{Spec{TaskKey: full}, Spec{TaskKey: over}, "task_key", "8"},
		{Spec{AssetID: full}, Spec{AssetID: over}, "asset_id", "8"},
		{Spec{IdempotencyKey: full}, Spec{IdempotencyKey: over}, "idempotency_key", "8"},
		{Spec{ConcurrencyKey: full}, Spec{ConcurrencyKey: over}, "concurrency_key", "8"},
		{
			Spec{ConcurrencyKey: "k", ConcurrencyLimit: MaxConcurrency},
			Spec{ConcurrencyKey: "k", ConcurrencyLimit: MaxConcurrency + 1},
			"concurrency_limit", "1000000",
		},
		{Spec{}, Spec{ConcurrencyLimit: 1}, "concurrency_limit", "concurrency_key"},
		{Spec{FairnessKey: full}, Spec{FairnessKey: over}, "fairness_key", "8"},
		{Spec{Payload: make([]byte, 10)}, Spec{Payload: make([]byte, 11)}, "payload", "10"},
		{Spec{Labels: labels(2)}, Spec{Labels: labels(3)}, "labels", "2"},
		{Spec{Labels: map[string]string{full: full}}, Spec{Labels: map[string]string{over: ""}}, "labels", `key "xxxxxxxxx" has 9 bytes; the limit is 8`},
		{Spec{Labels: map[string]string{full: full}}, Spec{Labels: map[string]string{"k": over}}, "labels", `the value of key "k" has 9 bytes; the limit is 8`},
		{Spec{Labels: map[string]string{"k": ""}}, Spec{Labels: map[string]string{"": "v"}}, "labels", "empty key"},
		{Spec{AttemptTimeout: MinTimeout}, Spec{AttemptTimeout: MinTimeout - 1}, "attempt_timeout", "100ms"},
		{Spec{AttemptTimeout: MaxTimeout}, Spec{AttemptTimeout: MaxTimeout + 1}, "attempt_timeout", "720h"},
		{Spec{StartTimeout: MinTimeout}, Spec{StartTimeout: MinTimeout - 1}, "start_timeout", "100ms"},
		{Spec{StartTimeout: MaxTimeout}, Spec{StartTimeout: MaxTimeout + 1}, "start_timeout", "720h"},
		{Spec{HeartbeatInterval: MinHeartbeatInterval}, Spec{HeartbeatInterval: -1}, "heartbeat_interval", "10ms"},
		{Spec{HeartbeatInterval: 12 * time.Hour}, Spec{HeartbeatInterval: 12*time.Hour + 1}, "heartbeat_interval", "12h"},
		{Spec{HeartbeatInterval: MinHeartbeatInterval}, Spec{HeartbeatInterval: math.MaxInt64}, "heartbeat_interval", "12h"},
		{Spec{HeartbeatTimeout: MinHeartbeatTimeout}, Spec{HeartbeatTimeout: MinHeartbeatTimeout - 1}, "heartbeat_timeout", "100ms"},
		{Spec{HeartbeatTimeout: MaxHeartbeatTimeout}, Spec{HeartbeatTimeout: MaxHeartbeatTimeout + 1}, "heartbeat_timeout", "24h"},
		{Spec{HeartbeatTimeout: MinHeartbeatTimeout}, Spec{HeartbeatTimeout: 1}, "heartbeat_timeout", "100ms"},
		{Spec{HeartbeatTimeout: MinHeartbeatTimeout}, Spec{HeartbeatTimeout: -time.Hour}, "heartbeat_timeout", "100ms"},
		{
			Spec{HeartbeatInterval: time.Second, HeartbeatTimeout: 2 * time.Second}, // T8
			Spec{HeartbeatInterval: time.Second, HeartbeatTimeout: 2*time.Second - 1}, "heartbeat_timeout", "at least 2s",
		},
		{Spec{CancelGrace: 1}, Spec{CancelGrace: -1}, "cancel_grace", "1ns"},
		{Spec{CancelGrace: MaxCancelGrace}, Spec{CancelGrace: MaxCancelGrace + 1}, "cancel_grace", "24h"},
		{Spec{Retention: MinRetention}, Spec{Retention: MinRetention - 1}, "retention", "1s"},
		{Spec{Retention: MaxRetention}, Spec{Retention: MaxRetention + 1}, "retention", "87600h"},
		{Spec{RunAt: 1}, Spec{RunAt: -1}, "run_at", "1970"},
		{Spec{Deadline: 1}, Spec{Deadline: -1}, "deadline", "1970"},
		{Spec{RunAt: 5, Deadline: 6}, Spec{RunAt: 5, Deadline: 5}, "deadline", "run_at"},
		{retrying(RetryPolicy{MaxAttempts: MaxBudget}), retrying(RetryPolicy{MaxAttempts: MaxBudget + 1}), "retry_policy.max_attempts", "1000000"},
		{retrying(RetryPolicy{MaxLosses: MaxBudget}), retrying(RetryPolicy{MaxLosses: MaxBudget + 1}), "retry_policy.max_losses", "1000000"},
		{retrying(RetryPolicy{InitialBackoff: 1}), retrying(RetryPolicy{InitialBackoff: -1}), "retry_policy.initial_backoff", "1ns"},
		{
			retrying(RetryPolicy{InitialBackoff: MaxInitialBackoff}),
			retrying(RetryPolicy{InitialBackoff: MaxInitialBackoff + 1}), "retry_policy.initial_backoff", "24h",
		},
		{retrying(RetryPolicy{Multiplier: 1}), retrying(RetryPolicy{Multiplier: 0.999}), "retry_policy.backoff_multiplier", "1 to 100"},
		{retrying(RetryPolicy{Multiplier: 100}), retrying(RetryPolicy{Multiplier: 100.001}), "retry_policy.backoff_multiplier", "1 to 100"},
		{retrying(RetryPolicy{Multiplier: 1}), retrying(RetryPolicy{Multiplier: math.NaN()}), "retry_policy.backoff_multiplier", "1 to 100"},
		{retrying(RetryPolicy{Multiplier: 1}), retrying(RetryPolicy{Multiplier: math.Inf(1)}), "retry_policy.backoff_multiplier", "1 to 100"},
		{
			retrying(RetryPolicy{InitialBackoff: 5, MaxBackoff: 5}),
			retrying(RetryPolicy{InitialBackoff: 5, MaxBackoff: 4}), "retry_policy.max_backoff", "5ns",
		},
		{retrying(RetryPolicy{MaxBackoff: MaxMaxBackoff}), retrying(RetryPolicy{MaxBackoff: MaxMaxBackoff + 1}), "retry_policy.max_backoff", "168h"},
		{
			retrying(RetryPolicy{NonRetryable: []Category{CategoryCancelled}}),
			retrying(RetryPolicy{NonRetryable: []Category{UserCode, CategoryCancelled + 1}}),
			"retry_policy.non_retryable_categories[1]", "7",
		},
		{
			retrying(RetryPolicy{NonRetryable: []Category{UserCode}}),
			retrying(RetryPolicy{NonRetryable: []Category{NoCategory}}), "retry_policy.non_retryable_categories[0]", "0",
		},
	} {
		checkFill(t, c.good, limits, "", "")
		checkFill(t, c.bad, limits, c.field, c.limit)
	}
	nameless := Spec{}
	if err := nameless.Fill(limits); err == nil || err.Error() != "queue: must not be empty" {
		t.Errorf("a spec without a queue: the error is %v, want %q", err, "queue: must not be empty")
	}
}

// T13: Check accepts the settings of a queue at the end of each range (good), and refuses them
// beyond (bad) with an error that names the field and the limit.
func TestSettingsLimits(t *testing.T) {
	t.Attr("rules", "T13")
	rate := func(perSecond float64, burst uint32) Settings {
		return Settings{Rate: Rate{PerSecond: perSecond, Burst: burst}}
	}
	weight := func(w float64) Settings { return Settings{Weights: map[string]float64{"k": w}} }
	long := strings.Repeat("x", 257)
	for _, c := range []struct {
		good, bad Settings
		want      string
	}{
		{Settings{MaxInflight: MaxConcurrency}, Settings{MaxInflight: MaxConcurrency + 1}, "max_inflight: is 1000001; the limit is 1000000"},
		{rate(1, 0), rate(0, 1), "rate_limit.per_second: is missing; rate_limit.burst needs it"},
		{rate(MinRate, 0), rate(MinRate/2, 0), "rate_limit.per_second: is 5.787037037037037e-06 grants a second; the range is 1.16e-05 (one a day) to 1000000"},
		{rate(MaxRate, 0), rate(2*MaxRate, 0), "rate_limit.per_second: is 2e+06 grants a second; the range is 1.16e-05 (one a day) to 1000000"},
		{rate(1, 1), rate(math.NaN(), 0), "rate_limit.per_second: is NaN grants a second; the range is 1.16e-05 (one a day) to 1000000"},
		{rate(1, MaxRate), rate(1, MaxRate+1), "rate_limit.burst: is 1000001; the limit is 1000000"},
		{Settings{Weights: mapOf(1000, 1.0)}, Settings{Weights: mapOf(1001, 1.0)}, "fairness_weights: has 1001 entries; the limit is 1000"},
		{weight(MinWeight), weight(MinWeight / 2), `fairness_weights["k"]: is 0.0005; the range is 0.001 to 1000`},
		{weight(MaxWeight), weight(MaxWeight + 1), `fairness_weights["k"]: is 1001; the range is 0.001 to 1000`},
		{weight(1), weight(math.NaN()), `fairness_weights["k"]: is NaN; the range is 0.001 to 1000`},
		{
			Settings{Weights: map[string]float64{"": 1, long[1:]: 1}},
			Settings{Weights: map[string]float64{long: 1}},
			`fairness_weights["` + long[:40] + `..."]: has 257 bytes; the limit is 256`,
		},
		{Settings{}, Settings{Retry: RetryPolicy{MaxLosses: MaxBudget + 1}}, "retry_policy.max_losses: is 1000001; the limit is 1000000"},
	} {
		if err := c.good.Check(DefaultLimits()); err != nil {
			t.Errorf("settings within the limits are refused: %v", err)
		}
		if err := c.bad.Check(DefaultLimits()); err == nil || err.Error() != c.want {
			t.Errorf("the error is %v, want %s", err, c.want)
		}
	}
}

func retrying(p RetryPolicy) Spec { return Spec{Retry: p} }

// checkFill expects that Fill refuses s with an error that names field and limit, or accepts s if
// field is empty. It sets the queue if s has none.
func checkFill(t *testing.T, s Spec, l Limits, field, limit string) {
	t.Helper()
	setDefault(&s.Queue, "q")
	err := s.Fill(l)
	if field == "" {
		if err != nil {
			t.Errorf("a spec within the limits is refused: %v", err)
		}
		return
	}
	var refusal *FieldError
	switch {
	case !errors.As(err, &refusal):
		t.Errorf("a spec with a bad %s: the error is %v, want a *FieldError", field, err)
	case refusal.Field != field:
		t.Errorf("a spec with a bad %s: the refusal names %q instead: %v", field, refusal.Field, err)
	case !strings.Contains(refusal.Problem, limit):
		t.Errorf("a spec with a bad %s: the refusal does not contain %q: %v", field, limit, err)
	}
}

// Fill must not write to the maps of the spec: the caller may use them elsewhere.
func TestFillDoesNotChangeMaps(t *testing.T) {
	labels := map[string]string{"a": "1", "b": "2"}
	before := maps.Clone(labels)
	s := Spec{Queue: "q", Labels: labels}
	if err := s.Fill(DefaultLimits()); err != nil {
		t.Fatal(err)
	}
	if !maps.Equal(labels, before) {
		t.Errorf("Fill changed the labels to %v, want %v", labels, before)
	}
}

// Clip cuts a text off after a number of bytes, never within a character, and shows that by "...".
func TestClip(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		// the last byte that fits is half of the é
		{"", ""}, {"four", "four"}, {"fives", "five..."}, {"abcé", "abc..."},
	} {
		if got := Clip(c.in, 4); got != c.want {
			t.Errorf("Clip(%q, 4) = %q, want %q", c.in, got, c.want)
		}
	}
}
