package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// retryRequest asks for a new round. The body may be left out.
type retryRequest struct {
	Deadline  instant `json:"deadline"`
	RequestID string  `json:"requestId"`
}

// retry answers POST /v1/tasks/{task_id}:retry.
func (a *api) retry(w http.ResponseWriter, r *http.Request) *problem {
	var m retryRequest
	request := &lessorv1.RetryTaskRequest{TaskId: r.PathValue("task_id")}
	if p := a.decodeIfSent(w, r, &m); p != nil {
		return a.misread(r, lessorv1.TaskService_RetryTask_FullMethodName, request, p)
	}
	request.Deadline, request.RequestId = stamp(m.Deadline), m.RequestID
	done, err := a.tasks.RetryTask(r.Context(), request)
	if err != nil {
		return failed(err)
	}
	writeJSON(w, http.StatusOK, taskResponse{Task: taskOf(done.GetTask())})
	return nil
}
