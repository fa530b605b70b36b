package lease

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// Spec is what a producer submitted, with the defaults filled in. It never changes after the
// submit. All versions of the task share it.
type Spec struct {
	Queue             string
	Type              string
	Payload           []byte // nil while the payload is only on disk
	Size              int    // length of the payload in bytes, even while Payload is nil
	RunID             string
	TaskKey           string
	AssetID           string
	IdempotencyKey    string
	Priority          int32
	RunAt             Wall
	Deadline          Wall
	AttemptTimeout    time.Duration
	StartTimeout      time.Duration
	Retry             RetryPolicy
	HeartbeatInterval time.Duration
	HeartbeatTimeout  time.Duration // the TTL of a lease
	CancelGrace       time.Duration
	Labels            map[string]string
	Retention         time.Duration
	ConcurrencyKey    string // the live leases of the space with the same key are limited (T11); empty: no limit
	ConcurrencyLimit  uint32 // with ConcurrencyKey: the largest number of these leases, including this task's
	// FairnessKey: the fairness keys of a queue take turns (T12). Tasks without one share the empty
	// key.
	FairnessKey  string
	Traceparent  string        // of the submit, perhaps with a mark of package tracing; not covered by the digest
	Requirements *Requirements // what a worker must have (W12); nil: nothing
	ResourceRefs []ResourceRef // all on one worker; only that worker may get the task
	Affinity     *Affinity     // nil: none
	Trace        *Trace        // not covered by the digest; nil: none
}

// Defaults of a Spec.
const (
	DefaultHeartbeatInterval = 30 * time.Second
	DefaultHeartbeatTimeout  = 90 * time.Second
	DefaultCancelGrace       = 30 * time.Second
	DefaultRetention         = 72 * time.Hour
	DefaultAffinityTTL       = 10 * time.Minute
)

// Limits that cannot be configured.
const (
	MinHeartbeatTimeout  = 100 * time.Millisecond
	MinHeartbeatInterval = 10 * time.Millisecond
	MaxHeartbeatTimeout  = 24 * time.Hour
	MinTimeout           = 100 * time.Millisecond
	MaxTimeout           = 30 * 24 * time.Hour
	MaxCancelGrace       = 24 * time.Hour
	MaxDelay             = 24 * time.Hour // of the delay of a Release and the retry_after of a Fail
	MinRetention         = time.Second
	MaxRetention         = 10 * 365 * 24 * time.Hour
	MaxConcurrency       = 1_000_000
	MinAffinityTTL       = time.Second
	MaxAffinityTTL       = 24 * time.Hour
	MaxRequired          = 16 // runtimes that a task may require; the same for features, labels and resources
	MaxResourceRefs      = 32
	MaxRefMetadata       = 8  // entries of one ResourceRef
	MaxMiddlewares       = 64 // names in trace_meta.middleware_chain
)

// Limits are the limits that an operator may set (S7).
type Limits struct {
	Payload    int // bytes of a payload
	Output     int // bytes of an output
	ID         int // bytes of any identifier, label key or label value
	Labels     int // labels of a task
	Checkpoint int // bytes of a checkpoint
	Stack      int // bytes of an error's message, and of its stack
	Discarded  int // bytes of a discarded result that is kept (V15)
	Batch      int // tasks of a batch; see MaxFrameItems
}

// MaxFrameItems is how many items a frame of a stream may have. Workers and producers fill frames
// up to the default limit of a batch, and do not know the limit that an operator set. So a lower
// limit of batches does not apply to frames.
func (l Limits) MaxFrameItems() int { return max(l.Batch, DefaultLimits().Batch) }

// DefaultLimits are the limits of S7.
func DefaultLimits() Limits {
	return Limits{
		Payload: 1 << 20, Output: 1 << 20, ID: 256, Labels: 64,
		Checkpoint: 64 << 10, Stack: 64 << 10, Discarded: 64 << 10, Batch: 1000,
	}
}

// Fill sets every zero field to its default, except in the retry policy: Submit fills that in,
// because it depends on the queue (T3). Then it checks all fields. It returns nil or a *FieldError.
func (s *Spec) Fill(l Limits) error {
	s.Size = len(s.Payload)
	s.fill()
	if err := s.check(l); err != nil {
		return err
	}
	return nil
}

func (s *Spec) fill() {
	switch {
	case s.HeartbeatInterval == 0 && s.HeartbeatTimeout == 0:
		s.HeartbeatInterval, s.HeartbeatTimeout = DefaultHeartbeatInterval, DefaultHeartbeatTimeout
	case s.HeartbeatInterval == 0:
		s.HeartbeatInterval = max(s.HeartbeatTimeout/3, 1)
	case s.HeartbeatTimeout == 0:
		s.HeartbeatTimeout = min(max(3*min(s.HeartbeatInterval, MaxHeartbeatTimeout), MinHeartbeatTimeout),
			MaxHeartbeatTimeout)
	}
	setDefault(&s.CancelGrace, DefaultCancelGrace)
	setDefault(&s.Retention, DefaultRetention)
	if s.ConcurrencyKey != "" {
		setDefault(&s.ConcurrencyLimit, 1)
	}
	if s.Affinity != nil {
		setDefault(&s.Affinity.Mode, Preferred)
		setDefault(&s.Affinity.TTL, DefaultAffinityTTL)
	}
}

func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

func (s *Spec) check(l Limits) *FieldError {
	if s.Queue == "" {
		return bad("queue", "must not be empty")
	}
	for _, f := range []struct{ name, value string }{
		{"queue", s.Queue},
		{"type", s.Type},
		{"run_id", s.RunID},
		{"task_key", s.TaskKey},
		{"asset_id", s.AssetID},
		{"idempotency_key", s.IdempotencyKey},
		{"concurrency_key", s.ConcurrencyKey},
		{"fairness_key", s.FairnessKey},
	} {
		if err := CheckID(f.name, f.value, l); err != nil {
			return err
		}
	}
	if len(s.Payload) > l.Payload {
		return bad("payload", "has %d bytes; the limit is %d", len(s.Payload), l.Payload)
	}
	switch {
	case s.ConcurrencyKey == "" && s.ConcurrencyLimit != 0:
		return bad("concurrency_limit", "is %d, but concurrency_key is not set", s.ConcurrencyLimit)
	case s.ConcurrencyLimit > MaxConcurrency:
		return bad("concurrency_limit", "is %d; the limit is %d", s.ConcurrencyLimit, MaxConcurrency)
	}
	if err := s.checkTimes(); err != nil {
		return err
	}
	if err := s.Retry.check(); err != nil {
		return err.Under("retry_policy")
	}
	if err := s.checkPlacement(l); err != nil {
		return err
	}
	if err := s.Trace.check(l); err != nil {
		return err.Under("trace_meta")
	}
	return checkLabels("labels", s.Labels, l.Labels, l)
}

func (s *Spec) checkTimes() *FieldError {
	for _, f := range []struct {
		name     string
		value    time.Duration
		min, max time.Duration
		optional bool
	}{
		{"attempt_timeout", s.AttemptTimeout, MinTimeout, MaxTimeout, true},
		{"start_timeout", s.StartTimeout, MinTimeout, MaxTimeout, true},
		{"heartbeat_timeout", s.HeartbeatTimeout, MinHeartbeatTimeout, MaxHeartbeatTimeout, false},
		{"heartbeat_interval", s.HeartbeatInterval, MinHeartbeatInterval, MaxHeartbeatTimeout / 2, false},
		{"cancel_grace", s.CancelGrace, 1, MaxCancelGrace, false},
		{"retention", s.Retention, MinRetention, MaxRetention, false},
	} {
		if f.optional && f.value == 0 {
			continue
		}
		if f.value < f.min || f.value > f.max {
			return bad(f.name, "is %v; the range is %v to %v", f.value, f.min, f.max)
		}
	}
	if s.HeartbeatTimeout < 2*s.HeartbeatInterval {
		return bad("heartbeat_timeout", "is %v; it must be at least %v, twice heartbeat_interval (%v)",
			s.HeartbeatTimeout, 2*s.HeartbeatInterval, s.HeartbeatInterval)
	}
	if s.RunAt < 0 {
		return bad("run_at", "is before 1970")
	}
	if s.Deadline < 0 {
		return bad("deadline", "is before 1970")
	}
	if s.Deadline != 0 && s.RunAt >= s.Deadline {
		return bad("deadline", "must be later than run_at")
	}
	return nil
}

// checkLabels checks a map of free text.
func checkLabels(field string, labels map[string]string, most int, l Limits) *FieldError {
	if len(labels) == 0 {
		return nil
	}
	if len(labels) > most {
		return bad(field, "has %d entries; the limit is %d", len(labels), most)
	}
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		if k == "" {
			return bad(field, "has an empty key")
		}
		if len(k) > l.ID {
			return bad(field, "key %q has %d bytes; the limit is %d", Clip(k, 40), len(k), l.ID)
		}
		if v := labels[k]; len(v) > l.ID {
			return bad(field, "the value of key %q has %d bytes; the limit is %d", Clip(k, 40), len(v), l.ID)
		}
	}
	return nil
}

// CheckID checks the form that every identifier shares: at most l.ID bytes, no control characters.
func CheckID(field, value string, l Limits) *FieldError {
	if len(value) > l.ID {
		return bad(field, "has %d bytes; the limit is %d", len(value), l.ID)
	}
	if i := strings.IndexFunc(value, func(r rune) bool { return r < 0x20 || r == 0x7f }); i >= 0 {
		return bad(field, "has a control character at byte %d", i)
	}
	return nil
}

// Clip cuts a text to at most that many bytes, between two characters, and adds "..." if it cuts.
func Clip(s string, most int) string {
	if len(s) <= most {
		return s
	}
	return strings.ToValidUTF8(s[:most], "") + "..."
}
