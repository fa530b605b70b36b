package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// adoptRequest asks for a result that came too late. The body may be left out.
type adoptRequest struct {
	Attempt   uint32 `json:"attempt"`
	RequestID string `json:"requestId"`
}

// adopt answers POST /v1/tasks/{task_id}:adopt.
func (a *api) adopt(w http.ResponseWriter, r *http.Request) *problem {
	var m adoptRequest
	request := &lessorv1.AdoptResultRequest{TaskId: r.PathValue("task_id")}
	if p := a.decodeIfSent(w, r, &m); p != nil {
		return a.misread(r, lessorv1.TaskService_AdoptResult_FullMethodName, request, p)
	}
	request.Attempt, request.RequestId = m.Attempt, m.RequestID
	done, err := a.tasks.AdoptResult(r.Context(), request)
	if err != nil {
		return failed(err)
	}
	writeJSON(w, http.StatusOK, taskResponse{Task: taskOf(done.GetTask())})
	return nil
}
