package httpapi

import (
	"encoding/json"
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// leaseRequest asks for work.
type leaseRequest struct {
	WorkerID     string        `json:"workerId"`
	WorkspaceID  string        `json:"workspaceId"`
	Queues       []string      `json:"queues"`
	MaxTasks     items         `json:"maxTasks"`
	WaitMs       millis        `json:"waitMs"`
	Capabilities *capabilities `json:"capabilities"`
	RequestID    string        `json:"requestId"`
	Packages     []string      `json:"packages"`
}

// capabilities is what the worker can do.
type capabilities struct {
	Types        []string           `json:"types"`
	Runtimes     []string           `json:"runtimes"`
	Features     []string           `json:"features"`
	Labels       map[string]string  `json:"labels"`
	Resources    map[string]float64 `json:"resources"`
	SingleFlight bool               `json:"singleFlight"`
}

// leaseResponse holds the granted tasks.
type leaseResponse struct {
	Assignments []assignment `json:"assignments"`
}

// assignment is the TaskEnvelope of the worker contract: one granted task, with all that its worker
// needs.
type assignment struct {
	TaskID              string             `json:"taskId"`
	RunID               string             `json:"runId"`
	AssetID             string             `json:"assetId"`
	TaskKey             string             `json:"taskKey"`
	TenantID            string             `json:"tenantId"`
	WorkspaceID         string             `json:"workspaceId"`
	Attempt             uint32             `json:"attempt"`
	Resources           map[string]float64 `json:"resources"`
	EnqueuedAt          instant            `json:"enqueuedAt"`
	Deadline            *instant           `json:"deadline"`
	CallbackBaseURL     string             `json:"callbackBaseUrl"`
	TaskToken           string             `json:"taskToken"`
	TokenExpiresAt      instant            `json:"tokenExpiresAt"`
	HeartbeatIntervalMs millis             `json:"heartbeatIntervalMs"`
	HeartbeatTimeoutMs  millis             `json:"heartbeatTimeoutMs"`
	CancelGracePeriodMs millis             `json:"cancelGracePeriodMs"`

	AttemptID        string            `json:"attemptId"`
	LeaseID          string            `json:"leaseId"`
	FencingToken     uint64            `json:"fencingToken"`
	RunSeq           uint64            `json:"runSeq,omitempty"`
	ExpiresAt        instant           `json:"expiresAt"`
	ExpiresInMs      millis            `json:"expiresInMs"`
	ServerTime       instant           `json:"serverTime"`
	Queue            string            `json:"queue"`
	Type             string            `json:"type"`
	Payload          json.RawMessage   `json:"payload,omitempty"`
	PayloadBase64    []byte            `json:"payloadBase64,omitempty"`
	Checkpoint       json.RawMessage   `json:"checkpoint,omitempty"`
	CheckpointBase64 []byte            `json:"checkpointBase64,omitempty"`
	Traceparent      string            `json:"traceparent,omitempty"`
	Labels           map[string]string `json:"labels,omitempty"`
	ResourceRefs     []resourceRef     `json:"resourceRefs,omitempty"`
	TraceMeta        *traceMeta        `json:"traceMeta,omitempty"`
}

// lease answers POST /v1/leases. The response hands the tasks over to the worker (W5).
func (a *api) lease(w http.ResponseWriter, r *http.Request) *problem {
	var m leaseRequest
	if p := a.decode(w, r, &m, strict); p != nil {
		return a.misread(r, lessorv1.WorkerService_Lease_FullMethodName, &lessorv1.LeaseRequest{}, p)
	}
	hurry := patient(w)
	granted, err := a.workers.Lease(r.Context(), &lessorv1.LeaseRequest{
		WorkerId:     m.WorkerID,
		WorkspaceId:  m.WorkspaceID,
		Queues:       m.Queues,
		MaxTasks:     uint32(m.MaxTasks),
		Wait:         m.WaitMs.span(),
		Capabilities: m.Capabilities.proto(),
		RequestId:    m.RequestID,
		Packages:     m.Packages,
	})
	hurry()
	if err != nil {
		return failed(err)
	}
	answer := leaseResponse{Assignments: make([]assignment, len(granted.GetAssignments()))}
	for i, g := range granted.GetAssignments() {
		answer.Assignments[i] = assignmentOf(g)
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

func (c *capabilities) proto() *lessorv1.Capabilities {
	if c == nil {
		return nil
	}
	return &lessorv1.Capabilities{
		Types: c.Types, Runtimes: c.Runtimes, Features: c.Features, Labels: c.Labels, Resources: c.Resources,
		Concurrency: &lessorv1.Concurrency{SingleFlight: c.SingleFlight},
	}
}

func assignmentOf(m *lessorv1.Assignment) assignment {
	t := specOf(m.GetTask().GetSpec())
	g := assignment{
		TaskID:              m.GetTask().GetTaskId(),
		RunID:               t.RunID,
		AssetID:             t.AssetID,
		TaskKey:             t.TaskKey,
		TenantID:            m.GetTask().GetTenantId(),
		WorkspaceID:         t.WorkspaceID,
		Attempt:             m.GetAttempt(),
		Resources:           map[string]float64{},
		EnqueuedAt:          instantOf(m.GetTask().GetCreatedAt()),
		CallbackBaseURL:     m.GetCallbackBaseUrl(),
		TaskToken:           m.GetTaskToken(),
		TokenExpiresAt:      instantOf(m.GetTokenExpiresAt()),
		HeartbeatIntervalMs: millisOf(m.GetHeartbeatInterval()),
		HeartbeatTimeoutMs:  millisOf(m.GetHeartbeatTimeout()),
		CancelGracePeriodMs: millisOf(m.GetCancelGrace()),
		AttemptID:           m.GetAttemptId(),
		LeaseID:             m.GetLeaseId(),
		FencingToken:        m.GetFencingToken(),
		RunSeq:              m.GetRunSeq(),
		ExpiresAt:           instantOf(m.GetExpiresAt()),
		ExpiresInMs:         millisOf(m.GetExpiresIn()),
		ServerTime:          instantOf(m.GetServerTime()),
		Queue:               t.Queue,
		Type:                t.Type,
		Payload:             t.Payload,
		PayloadBase64:       t.PayloadBase64,
		Traceparent:         m.GetTraceparent(),
		Labels:              t.Labels,
		ResourceRefs:        t.ResourceRefs,
		TraceMeta:           t.TraceMeta,
	}
	if !t.Deadline.IsZero() {
		g.Deadline = &t.Deadline
	}
	if t.Requirements != nil && t.Requirements.Resources != nil {
		g.Resources = t.Requirements.Resources
	}
	g.Checkpoint, g.CheckpointBase64 = shown(m.GetCheckpoint())
	return g
}
