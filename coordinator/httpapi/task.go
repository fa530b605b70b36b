package httpapi

import (
	"encoding/json"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// task is the answer form of a task. The printed output of its attempts is only in the gRPC API.
type task struct {
	TaskID               string             `json:"taskId"`
	TenantID             string             `json:"tenantId"`
	Spec                 spec               `json:"spec"`
	State                string             `json:"state"`
	Reason               string             `json:"reason,omitempty"`
	Round                uint32             `json:"round"`
	Attempt              uint32             `json:"attempt"`
	Failures             uint32             `json:"failures"`
	Losses               uint32             `json:"losses"`
	Quarantined          bool               `json:"quarantined,omitempty"`
	CreatedAt            instant            `json:"createdAt"`
	RetryAt              instant            `json:"retryAt,omitzero"`
	FinishedAt           instant            `json:"finishedAt,omitzero"`
	Lease                *leaseInfo         `json:"lease,omitempty"`
	Progress             *progress          `json:"progress,omitempty"`
	CancelReason         string             `json:"cancelReason,omitempty"`
	CancelRequestedAt    instant            `json:"cancelRequestedAt,omitzero"`
	Output               json.RawMessage    `json:"output,omitempty"`
	OutputBase64         []byte             `json:"outputBase64,omitempty"`
	Artifacts            []artifact         `json:"artifacts,omitempty"`
	Error                *taskError         `json:"error,omitempty"`
	Metrics              map[string]float64 `json:"metrics,omitempty"`
	CancelledDuringPhase string             `json:"cancelledDuringPhase,omitempty"`
	PartialProgress      json.RawMessage    `json:"partialProgress,omitempty"`
	PartialBase64        []byte             `json:"partialProgressBase64,omitempty"`
	Checkpoint           json.RawMessage    `json:"checkpoint,omitempty"`
	CheckpointBase64     []byte             `json:"checkpointBase64,omitempty"`
	Discarded            []discardedResult  `json:"discarded,omitempty"`
	AdoptedAttempt       uint32             `json:"adoptedAttempt,omitempty"`
	History              []historyEvent     `json:"history,omitempty"`
	HistoryDropped       uint32             `json:"historyDropped,omitempty"`
}

// leaseInfo is the public part of a live lease.
type leaseInfo struct {
	Attempt      uint32  `json:"attempt"`
	WorkerID     string  `json:"workerId"`
	SessionID    string  `json:"sessionId,omitempty"`
	FencingToken uint64  `json:"fencingToken"`
	GrantedAt    instant `json:"grantedAt"`
	AckedAt      instant `json:"ackedAt,omitzero"`
	StartedAt    instant `json:"startedAt,omitzero"`
	HeartbeatAt  instant `json:"heartbeatAt,omitzero"`
	ExpiresAt    instant `json:"expiresAt"`
}

// progress is how far an attempt has come.
type progress struct {
	ProgressPct float64            `json:"progressPct"`
	Message     string             `json:"message,omitempty"`
	Stage       string             `json:"stage,omitempty"`
	Metrics     map[string]float64 `json:"metrics,omitempty"`
	Attempt     uint32             `json:"attempt"`
}

// historyEvent is one durable fact of a task's life (T10).
type historyEvent struct {
	Sequence       uint64  `json:"sequence"`
	Type           string  `json:"type"`
	At             instant `json:"at"`
	Attempt        uint32  `json:"attempt,omitempty"`
	Actor          string  `json:"actor,omitempty"`
	Reason         string  `json:"reason,omitempty"`
	Detail         string  `json:"detail,omitempty"`
	TaskState      string  `json:"taskState"`
	RefusedKind    string  `json:"refusedKind,omitempty"`
	RefusedVerdict string  `json:"refusedVerdict,omitempty"`
}

// discardedResult is a result that came too late, and is kept (V15).
type discardedResult struct {
	Attempt      uint32          `json:"attempt"`
	WorkerID     string          `json:"workerId,omitempty"`
	At           instant         `json:"at"`
	Reason       string          `json:"reason"`
	SizeBytes    int64           `json:"sizeBytes"`
	Output       json.RawMessage `json:"output,omitempty"`
	OutputBase64 []byte          `json:"outputBase64,omitempty"`
	Artifacts    []artifact      `json:"artifacts,omitempty"`
}

func taskOf(m *lessorv1.Task) task {
	t := task{
		TaskID:               m.GetTaskId(),
		TenantID:             m.GetTenantId(),
		Spec:                 specOf(m.GetSpec()),
		State:                stateName(m.GetState()),
		Reason:               enum(m.GetReason(), "REASON_"),
		Round:                m.GetRound(),
		Attempt:              m.GetAttempt(),
		Failures:             m.GetFailures(),
		Losses:               m.GetLosses(),
		Quarantined:          m.GetQuarantined(),
		CreatedAt:            instantOf(m.GetCreatedAt()),
		RetryAt:              instantOf(m.GetRetryAt()),
		FinishedAt:           instantOf(m.GetFinishedAt()),
		Lease:                leaseInfoOf(m.GetLease()),
		Progress:             progressOf(m.GetProgress()),
		CancelReason:         m.GetCancelReason(),
		CancelRequestedAt:    instantOf(m.GetCancelRequestedAt()),
		Artifacts:            artifactsOf(m.GetArtifacts()),
		Error:                taskErrorOf(m.GetError()),
		Metrics:              gauges(m.GetMetrics()),
		CancelledDuringPhase: m.GetCancelledDuringPhase(),
		AdoptedAttempt:       m.GetAdoptedAttempt(),
		HistoryDropped:       m.GetHistoryDropped(),
	}
	t.Output, t.OutputBase64 = shown(m.GetOutput())
	t.Checkpoint, t.CheckpointBase64 = shown(m.GetCheckpoint())
	t.PartialProgress, t.PartialBase64 = shown(m.GetPartialProgress())
	for _, d := range m.GetDiscarded() {
		t.Discarded = append(t.Discarded, discardedResultOf(d))
	}
	for _, e := range m.GetHistory() {
		t.History = append(t.History, historyEventOf(e))
	}
	return t
}

func leaseInfoOf(m *lessorv1.LeaseInfo) *leaseInfo {
	if m == nil {
		return nil
	}
	return &leaseInfo{
		Attempt:      m.GetAttempt(),
		WorkerID:     m.GetWorkerId(),
		SessionID:    m.GetSessionId(),
		FencingToken: m.GetFencingToken(),
		GrantedAt:    instantOf(m.GetGrantedAt()),
		AckedAt:      instantOf(m.GetAckedAt()),
		StartedAt:    instantOf(m.GetStartedAt()),
		HeartbeatAt:  instantOf(m.GetHeartbeatAt()),
		ExpiresAt:    instantOf(m.GetExpiresAt()),
	}
}

func progressOf(m *lessorv1.Progress) *progress {
	if m == nil {
		return nil
	}
	return &progress{
		ProgressPct: percent(m.GetFraction()), Message: m.GetMessage(), Stage: m.GetStage(),
		Metrics: gauges(m.GetMetrics()), Attempt: m.GetAttempt(),
	}
}

func historyEventOf(m *lessorv1.HistoryEvent) historyEvent {
	return historyEvent{
		Sequence:       m.GetSequence(),
		Type:           enum(m.GetType(), "HISTORY_EVENT_TYPE_"),
		At:             instantOf(m.GetAt()),
		Attempt:        m.GetAttempt(),
		Actor:          m.GetActor(),
		Reason:         enum(m.GetReason(), "REASON_"),
		Detail:         m.GetDetail(),
		TaskState:      stateName(m.GetTaskState()),
		RefusedKind:    enum(m.GetRefusedKind(), "REFUSED_KIND_"),
		RefusedVerdict: enum(m.GetRefusedVerdict(), "VERDICT_"),
	}
}

func discardedResultOf(m *lessorv1.DiscardedResult) discardedResult {
	d := discardedResult{
		Attempt:   m.GetAttempt(),
		WorkerID:  m.GetWorkerId(),
		At:        instantOf(m.GetAt()),
		Reason:    enum(m.GetReason(), "REASON_"),
		SizeBytes: m.GetSizeBytes(),
		Artifacts: artifactsOf(m.GetArtifacts()),
	}
	d.Output, d.OutputBase64 = shown(m.GetOutput())
	return d
}
