package httpapi

import (
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskResponse answers with a task.
type taskResponse struct {
	Task task `json:"task"`
}

// get answers GET /v1/tasks/{task_id}.
func (a *api) get(w http.ResponseWriter, r *http.Request) *problem {
	found, err := a.tasks.GetTask(r.Context(), &lessorv1.GetTaskRequest{TaskId: r.PathValue("task_id")})
	if err != nil {
		return failed(err)
	}
	writeJSON(w, http.StatusOK, taskResponse{Task: taskOf(found.GetTask())})
	return nil
}
