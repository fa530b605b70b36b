package httpapi

import (
	"encoding/json"
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// heartbeatRequest renews the lease. Its checkpoint is durable; its progress and metrics are not.
type heartbeatRequest struct {
	claim
	HeartbeatAt      instant          `json:"heartbeatAt"`
	ProgressPct      *float64         `json:"progressPct"`
	Message          string           `json:"message"`
	Stage            string           `json:"stage"`
	Metrics          entries[float64] `json:"metrics"`
	Checkpoint       json.RawMessage  `json:"checkpoint"`
	CheckpointBase64 []byte           `json:"checkpointBase64"`
}

// heartbeat answers POST /v1/tasks/{task_id}/heartbeat.
func (a *api) heartbeat(w http.ResponseWriter, r *http.Request, h Holder) *problem {
	var m heartbeatRequest
	if p := a.read(w, r, h, &m, &m.claim, lease.KindHeartbeat); p != nil {
		return p
	}
	if pct := m.ProgressPct; pct != nil && (*pct < 0 || *pct > 100) {
		return rejected(invalid("progressPct", "is %v; the range is 0 to 100", *pct), lease.KindHeartbeat)
	}
	checkpoint, p := bytesOf("checkpoint", m.Checkpoint, m.CheckpointBase64)
	if p != nil {
		return rejected(p, lease.KindHeartbeat)
	}
	return report(w, r, h, a.workers.Heartbeat, &lessorv1.HeartbeatRequest{
		TaskId:      h.Ticket.Task.String(),
		LeaseId:     h.LeaseID,
		Attempt:     h.Ticket.Attempt,
		WorkerId:    m.WorkerID,
		Traceparent: m.Traceparent,
		HeartbeatAt: stamp(m.HeartbeatAt),
		Progress:    m.progress(),
		Metrics:     m.Metrics,
		Checkpoint:  checkpoint,
	}, func(v *lessorv1.HeartbeatResponse) any { return aliveOf(v) })
}

// progress returns the progress in the heartbeat, or nil if it has none. A progress without a
// percentage is 0, as in a Heartbeat over gRPC.
func (m *heartbeatRequest) progress() *lessorv1.Progress {
	if m.ProgressPct == nil && m.Message == "" && m.Stage == "" {
		return nil
	}
	p := &lessorv1.Progress{Message: m.Message, Stage: m.Stage}
	if m.ProgressPct != nil {
		p.Fraction = *m.ProgressPct / 100
	}
	return p
}
