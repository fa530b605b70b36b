package httpapi

import (
	"fmt"
	"net/http"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
)

// batchSubmitRequest has specs, and an id that is written to the log.
type batchSubmitRequest struct {
	Tasks     []spec `json:"tasks"`
	RequestID string `json:"requestId"`
}

// batchSubmitResponse has a result for each spec, in order; all tasks are durable.
type batchSubmitResponse struct {
	Results []submitResult `json:"results"`
}

// submitResult is one task of a batch. Created is false if the idempotencyKey belongs to a task
// that was made before.
type submitResult struct {
	TaskID  string `json:"taskId"`
	Created bool   `json:"created"`
	State   string `json:"state"`
}

// batchSubmit answers POST /v1/tasks:batchSubmit. All tasks are made, or none.
func (a *api) batchSubmit(w http.ResponseWriter, r *http.Request) *problem {
	var m batchSubmitRequest
	request := &lessorv1.BatchSubmitTasksRequest{}
	p := a.decode(w, r, &m, strict)
	if p == nil {
		request.Tasks, p = m.protos()
	}
	if p != nil {
		return a.misread(r, lessorv1.TaskService_BatchSubmitTasks_FullMethodName,
			&lessorv1.BatchSubmitTasksRequest{}, p)
	}
	request.RequestId = m.RequestID
	made, err := a.tasks.BatchSubmitTasks(r.Context(), request)
	if err != nil {
		return failed(err)
	}
	answer := batchSubmitResponse{Results: make([]submitResult, len(made.GetResults()))}
	for i, one := range made.GetResults() {
		answer.Results[i] = submitResult{
			TaskID: one.GetTaskId(), Created: one.GetCreated(),
			State: stateName(one.GetState()),
		}
	}
	writeJSON(w, http.StatusOK, answer)
	return nil
}

// specsPerTurn is after how many specs the conversion of a batch gives up the processor (package
// turn).
const specsPerTurn = 32

func (m *batchSubmitRequest) protos() ([]*lessorv1.TaskSpec, *problem) {
	all := make([]*lessorv1.TaskSpec, len(m.Tasks))
	var read turn.Counter
	for i := range m.Tasks {
		read.Every(specsPerTurn)
		var p *problem
		if all[i], p = m.Tasks[i].proto(); p != nil {
			return nil, p.under(fmt.Sprintf("tasks[%d]", i))
		}
	}
	return all, nil
}
