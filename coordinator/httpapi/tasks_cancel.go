package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// cancelRequest asks a task to end. The body may be left out.
type cancelRequest struct {
	Reason    string `json:"reason"`
	RequestID string `json:"requestId"`
}

// cancel answers POST /v1/tasks/{task_id}:cancel.
func (a *api) cancel(w http.ResponseWriter, r *http.Request) *problem {
	var m cancelRequest
	request := &lessorv1.CancelTaskRequest{TaskId: r.PathValue("task_id")}
	if p := a.decodeIfSent(w, r, &m); p != nil {
		return a.misread(r, lessorv1.TaskService_CancelTask_FullMethodName, request, p)
	}
	request.Reason, request.RequestId = m.Reason, m.RequestID
	done, err := a.tasks.CancelTask(r.Context(), request)
	if err != nil {
		return failed(err)
	}
	writeJSON(w, http.StatusOK, taskResponse{Task: taskOf(done.GetTask())})
	return nil
}
