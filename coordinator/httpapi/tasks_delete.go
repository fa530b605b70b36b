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

// remove answers DELETE /v1/tasks/{task_id}. A body is refused, because not everything on the way passes on the body of a DELETE.
func (a *api) remove(w http.ResponseWriter, r *http.Request) *problem {
	var m deleteRequest
	request := &lessorv1.DeleteTaskRequest{TaskId: r.PathValue("task_id")}
	p := a.query(r, &m)
	if body, unread := a.body(w, r); p == nil {
		if p = unread; p == nil && len(body) > 0 {
			p = invalid("", "a DELETE has no body; its fields are parameters of the URL, such as ?force=true")
		}
	}
	if p != nil {
		return a.misread(r, lessorv1.TaskService_DeleteTask_FullMethodName, request, p)
	}
	request.Force, request.RequestId = m.Force, m.RequestID
	if _, err := a.tasks.DeleteTask(r.Context(), request); err != nil {
		return failed(err)
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
