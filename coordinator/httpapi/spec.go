package httpapi

import (
	"cmp"
	"encoding/json"
	"fmt"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
)

// spec is the TaskSpec that a producer sends.
type spec struct {
	WorkspaceID         string            `json:"workspaceId,omitempty"`
	Queue               string            `json:"queue"`
	Type                string            `json:"type,omitempty"`
	Payload             json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64       []byte            `json:"payloadBase64,omitempty"`
	RunID               string            `json:"runId,omitempty"`
	TaskKey             string            `json:"taskKey,omitempty"`
	AssetID             string            `json:"assetId,omitempty"`
	IdempotencyKey      *string           `json:"idempotencyKey,omitempty"`
	Priority            int32             `json:"priority,omitempty"`
	RunAt               instant           `json:"runAt,omitzero"`
	Deadline            instant           `json:"deadline,omitzero"`
	AttemptTimeoutMs    millis            `json:"attemptTimeoutMs,omitzero"`
	StartTimeoutMs      millis            `json:"startTimeoutMs,omitzero"`
	RetryPolicy         *retryPolicy      `json:"retryPolicy,omitempty"`
	HeartbeatIntervalMs millis            `json:"heartbeatIntervalMs,omitzero"`
	HeartbeatTimeoutMs  millis            `json:"heartbeatTimeoutMs,omitzero"`
	CancelGracePeriodMs millis            `json:"cancelGracePeriodMs,omitzero"`
	RetentionMs         millis            `json:"retentionMs,omitzero"`
	Labels              map[string]string `json:"labels,omitempty"`
	Requirements        *requirements     `json:"requirements,omitempty"`
	ResourceRefs        []resourceRef     `json:"resourceRefs,omitempty"`
	Affinity            *affinity         `json:"affinity,omitempty"`
	ConcurrencyKey      string            `json:"concurrencyKey,omitempty"`
	ConcurrencyLimit    concurrencyLimit  `json:"concurrencyLimit,omitempty"`
	FairnessKey         string            `json:"fairnessKey,omitempty"`
	TraceMeta           *traceMeta        `json:"traceMeta,omitempty"`
	Traceparent         string            `json:"traceparent,omitempty"`
}

type retryPolicy struct {
	MaxAttempts            budget   `json:"maxAttempts,omitempty"`
	MaxLosses              budget   `json:"maxLosses,omitempty"`
	InitialBackoffMs       millis   `json:"initialBackoffMs,omitzero"`
	BackoffMultiplier      float64  `json:"backoffMultiplier,omitempty"`
	MaxBackoffMs           millis   `json:"maxBackoffMs,omitzero"`
	NonRetryableCategories []string `json:"nonRetryableCategories,omitempty"`
}

type requirements struct {
	Runtimes  []string           `json:"runtimes,omitempty"`
	Features  []string           `json:"features,omitempty"`
	Labels    map[string]string  `json:"labels,omitempty"`
	Resources map[string]float64 `json:"resources,omitempty"`
	Package   string             `json:"package,omitempty"`
}

type resourceRef struct {
	ResourceID string            `json:"resourceId"`
	WorkerID   string            `json:"workerId"`
	Type       string            `json:"type,omitempty"`
	Scope      string            `json:"scope,omitempty"`
	ExpiresAt  instant           `json:"expiresAt,omitzero"`
	Metadata   map[string]string `json:"metadata,omitempty"`
}

type affinity struct {
	Key   string `json:"key"`
	Mode  string `json:"mode,omitempty"`
	TTLMs millis `json:"ttlMs,omitzero"`
}

type traceMeta struct {
	HostNodeID      string   `json:"hostNodeId,omitempty"`
	MiddlewareChain []string `json:"middlewareChain,omitempty"`
	ChainIndex      *uint32  `json:"chainIndex,omitempty"`
}

// proto converts a spec. The gRPC call checks its content.
func (s *spec) proto() (*lessorv1.TaskSpec, *problem) {
	payload, p := bytesOf("payload", s.Payload, s.PayloadBase64)
	if p != nil {
		return nil, p
	}
	var key string
	if sent := s.IdempotencyKey; sent != nil {
		if key = *sent; key == "" { // perhaps an unset variable of a script: a repeat would make a second task
			return nil, invalid("idempotencyKey", "must not be empty; leave it out")
		}
	}
	if p := s.checkSpans(); p != nil {
		return nil, p
	}
	policy, p := s.RetryPolicy.proto()
	if p != nil {
		return nil, p
	}
	near, p := s.Affinity.proto()
	if p != nil {
		return nil, p
	}
	m := &lessorv1.TaskSpec{
		WorkspaceId:       s.WorkspaceID,
		Queue:             s.Queue,
		Type:              s.Type,
		Payload:           payload,
		RunId:             s.RunID,
		TaskKey:           s.TaskKey,
		AssetId:           s.AssetID,
		IdempotencyKey:    key,
		Priority:          s.Priority,
		RunAt:             stamp(s.RunAt),
		Deadline:          stamp(s.Deadline),
		AttemptTimeout:    s.AttemptTimeoutMs.span(),
		StartTimeout:      s.StartTimeoutMs.span(),
		RetryPolicy:       policy,
		HeartbeatInterval: s.HeartbeatIntervalMs.span(),
		HeartbeatTimeout:  s.HeartbeatTimeoutMs.span(),
		CancelGrace:       s.CancelGracePeriodMs.span(),
		Retention:         s.RetentionMs.span(),
		Labels:            s.Labels,
		Requirements:      s.Requirements.proto(),
		Affinity:          near,
		ConcurrencyKey:    s.ConcurrencyKey,
		ConcurrencyLimit:  uint32(s.ConcurrencyLimit),
		FairnessKey:       s.FairnessKey,
		TraceMeta:         s.TraceMeta.proto(),
		Traceparent:       s.Traceparent,
	}
	for _, r := range s.ResourceRefs {
		m.ResourceRefs = append(m.ResourceRefs, &lessorv1.ResourceRef{
			ResourceId: r.ResourceID, WorkerId: r.WorkerID, Type: r.Type, Scope: r.Scope,
			ExpiresAt: stamp(r.ExpiresAt), Metadata: r.Metadata,
		})
	}
	return m, nil
}

// checkSpans refuses spans that are negative or too long. So does the gRPC call, but one that fits
// into no time.Duration is cut before, and the error would name another number than was sent.
func (s *spec) checkSpans() *problem {
	policy, near := cmp.Or(s.RetryPolicy, &retryPolicy{}), cmp.Or(s.Affinity, &affinity{})
	for _, f := range []struct {
		name string
		sent millis
		most time.Duration
	}{
		{"attemptTimeoutMs", s.AttemptTimeoutMs, lease.MaxTimeout},
		{"startTimeoutMs", s.StartTimeoutMs, lease.MaxTimeout},
		{"retryPolicy.initialBackoffMs", policy.InitialBackoffMs, lease.MaxInitialBackoff},
		{"retryPolicy.maxBackoffMs", policy.MaxBackoffMs, lease.MaxMaxBackoff},
		{"heartbeatIntervalMs", s.HeartbeatIntervalMs, lease.MaxHeartbeatTimeout / 2},
		{"heartbeatTimeoutMs", s.HeartbeatTimeoutMs, lease.MaxHeartbeatTimeout},
		{"cancelGracePeriodMs", s.CancelGracePeriodMs, lease.MaxCancelGrace},
		{"retentionMs", s.RetentionMs, lease.MaxRetention},
		{"affinity.ttlMs", near.TTLMs, lease.MaxAffinityTTL},
	} {
		if f.sent < 0 {
			return invalid(f.name, "is %d; it cannot be negative", f.sent)
		}
		if most := f.most.Milliseconds(); int64(f.sent) > most {
			return invalid(f.name, "is %d; the limit is %d", f.sent, most)
		}
	}
	return nil
}

func (r *retryPolicy) proto() (*lessorv1.RetryPolicy, *problem) {
	if r == nil {
		return nil, nil
	}
	m := &lessorv1.RetryPolicy{
		MaxAttempts: uint32(r.MaxAttempts), MaxLosses: uint32(r.MaxLosses), InitialBackoff: r.InitialBackoffMs.span(),
		BackoffMultiplier: r.BackoffMultiplier, MaxBackoff: r.MaxBackoffMs.span(),
	}
	for i, name := range r.NonRetryableCategories {
		category, known := words.CategoryNamed(name)
		if !known {
			return nil, unknownCategory(fmt.Sprintf("retryPolicy.nonRetryableCategories[%d]", i), name)
		}
		m.NonRetryableCategories = append(m.NonRetryableCategories, category)
	}
	return m, nil
}

func (r *requirements) proto() *lessorv1.Requirements {
	if r == nil {
		return nil
	}
	return &lessorv1.Requirements{
		Runtimes: r.Runtimes, Features: r.Features, Labels: r.Labels,
		Resources: r.Resources, Package: r.Package,
	}
}

func (a *affinity) proto() (*lessorv1.Affinity, *problem) {
	if a == nil {
		return nil, nil
	}
	mode, known := words.AffinityModeNamed(a.Mode)
	if a.Mode != "" && !known {
		return nil, invalid("affinity.mode", "is %q; it is STICKY or PREFERRED", strictjson.Clip(a.Mode))
	}
	return &lessorv1.Affinity{Key: a.Key, Mode: mode, Ttl: a.TTLMs.span()}, nil
}

func (t *traceMeta) proto() *lessorv1.TraceMeta {
	if t == nil {
		return nil
	}
	return &lessorv1.TraceMeta{HostNodeId: t.HostNodeID, MiddlewareChain: t.MiddlewareChain, ChainIndex: t.ChainIndex}
}
