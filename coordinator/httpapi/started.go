package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// startedRequest says that execution begins.
type startedRequest struct {
	claim
	StartedAt instant `json:"startedAt"`
	Begun     bool    `json:"begun"`
}

// started answers POST /v1/tasks/{task_id}/started.
func (a *api) started(w http.ResponseWriter, r *http.Request, h Holder) *problem {
	var m startedRequest
	if p := a.read(w, r, h, &m, &m.claim, lease.KindStart); p != nil {
		return p
	}
	return report(w, r, h, a.workers.Start, &lessorv1.StartRequest{
		TaskId:      h.Ticket.Task.String(),
		LeaseId:     h.LeaseID,
		Attempt:     h.Ticket.Attempt,
		WorkerId:    m.WorkerID,
		Traceparent: m.Traceparent,
		StartedAt:   stamp(m.StartedAt),
		Begun:       m.Begun,
	}, func(v *lessorv1.StartResponse) any { return aliveOf(v) })
}
