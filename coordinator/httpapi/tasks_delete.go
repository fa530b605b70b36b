package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// deleteRequest is the query of a delete.
type deleteRequest struct {
	Force     bool   `json:"force"`
	RequestID string `json:"requestId"`
}

// remove answers DELETE /v1/tasks/{task_id}.
func (a *api) remove(w http.ResponseWriter, r *http.Request) *problem {
	var m deleteRequest
	request := &lessorv1.DeleteTaskRequest{TaskId: r.PathValue("task_id")}
	if p := a.query(w, r, &m); p != nil {
		return a.misread(r, lessorv1.TaskService_DeleteTask_FullMethodName, request, p)
	}
	request.Force, request.RequestId = m.Force, m.RequestID
	if _, err := a.tasks.DeleteTask(r.Context(), request); err != nil {
		return failed(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
