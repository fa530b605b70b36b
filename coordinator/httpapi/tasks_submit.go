package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// submitRequest is a spec, and an id that is written to the log.
type submitRequest struct {
	spec
	RequestID string `json:"requestId"`
}

// submitResponse has the task, which is durable. Created is false if the idempotencyKey belongs to
// a task that was made before.
type submitResponse struct {
	Task    task `json:"task"`
	Created bool `json:"created"`
}

// submit answers POST /v1/tasks: 201 for a new task, 200 for one that existed.
func (a *api) submit(w http.ResponseWriter, r *http.Request) *problem {
	var m submitRequest
	var asked *lessorv1.TaskSpec
	p := a.decode(w, r, &m, strict)
	if p == nil {
		asked, p = m.proto()
	}
	if p != nil {
		return a.misread(r, lessorv1.TaskService_SubmitTask_FullMethodName, &lessorv1.SubmitTaskRequest{}, p)
	}
	made, err := a.tasks.SubmitTask(r.Context(), &lessorv1.SubmitTaskRequest{Task: asked, RequestId: m.RequestID})
	if err != nil {
		return failed(err)
	}
	status := http.StatusOK
	if made.GetCreated() {
		status = http.StatusCreated
		w.Header().Set("Location", "/v1/tasks/"+made.GetTask().GetTaskId())
	}
	writeJSON(w, status, submitResponse{Task: taskOf(made.GetTask()), Created: made.GetCreated()})
	return nil
}
