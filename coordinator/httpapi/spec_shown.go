package httpapi

import (
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// specOf converts the spec of a task, in which defaults are filled in.
func specOf(m *lessorv1.TaskSpec) spec {
	s := spec{
		WorkspaceID:         m.GetWorkspaceId(),
		Queue:               m.GetQueue(),
		Type:                m.GetType(),
		RunID:               m.GetRunId(),
		TaskKey:             m.GetTaskKey(),
		AssetID:             m.GetAssetId(),
		Priority:            m.GetPriority(),
		RunAt:               instantOf(m.GetRunAt()),
		Deadline:            instantOf(m.GetDeadline()),
		AttemptTimeoutMs:    millisOf(m.GetAttemptTimeout()),
		StartTimeoutMs:      millisOf(m.GetStartTimeout()),
		RetryPolicy:         retryPolicyOf(m.GetRetryPolicy()),
		HeartbeatIntervalMs: millisOf(m.GetHeartbeatInterval()),
		HeartbeatTimeoutMs:  millisOf(m.GetHeartbeatTimeout()),
		CancelGracePeriodMs: millisOf(m.GetCancelGrace()),
		RetentionMs:         millisOf(m.GetRetention()),
		Labels:              m.GetLabels(),
		ConcurrencyKey:      m.GetConcurrencyKey(),
		ConcurrencyLimit:    concurrencyLimit(m.GetConcurrencyLimit()),
		FairnessKey:         m.GetFairnessKey(),
		Traceparent:         m.GetTraceparent(),
	}
	if key := m.GetIdempotencyKey(); key != "" {
		s.IdempotencyKey = &key
	}
	s.Payload, s.PayloadBase64 = shown(m.GetPayload())
	if r := m.GetRequirements(); r != nil {
		s.Requirements = &requirements{
			Runtimes: r.GetRuntimes(), Features: r.GetFeatures(), Labels: r.GetLabels(),
			Resources: r.GetResources(), Package: r.GetPackage(),
		}
	}
	if a := m.GetAffinity(); a != nil {
		s.Affinity = &affinity{Key: a.GetKey(), Mode: enum(a.GetMode(), "AFFINITY_MODE_"), TTLMs: millisOf(a.GetTtl())}
	}
	if t := m.GetTraceMeta(); t != nil {
		s.TraceMeta = &traceMeta{
			HostNodeID: t.GetHostNodeId(), MiddlewareChain: t.GetMiddlewareChain(),
			ChainIndex: t.ChainIndex,
		}
	}
	for _, r := range m.GetResourceRefs() {
		s.ResourceRefs = append(s.ResourceRefs, resourceRef{
			ResourceID: r.GetResourceId(), WorkerID: r.GetWorkerId(), Type: r.GetType(), Scope: r.GetScope(),
			ExpiresAt: instantOf(r.GetExpiresAt()), Metadata: r.GetMetadata(),
		})
	}
	return s
}

func retryPolicyOf(m *lessorv1.RetryPolicy) *retryPolicy {
	if m == nil {
		return nil
	}
	r := &retryPolicy{
		MaxAttempts:       budget(m.GetMaxAttempts()),
		MaxLosses:         budget(m.GetMaxLosses()),
		InitialBackoffMs:  millisOf(m.GetInitialBackoff()),
		BackoffMultiplier: m.GetBackoffMultiplier(),
		MaxBackoffMs:      millisOf(m.GetMaxBackoff()),
	}
	for _, c := range m.GetNonRetryableCategories() {
		r.NonRetryableCategories = append(r.NonRetryableCategories, enum(c, "ERROR_CATEGORY_"))
	}
	return r
}
