package httpapi

import (
	"context"
	"net/http"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
)

// bulkRequest is what the requests to change many tasks have in common: which tasks, and from where
// on. Unlike those for one task they must have a body.
type bulkRequest struct {
	Filter    *taskFilter `json:"filter"`
	All       bool        `json:"all"`
	PageToken string      `json:"pageToken"`
	RequestID string      `json:"requestId"`
}

// cancelTasksRequest asks all tasks that a filter selects to end.
type cancelTasksRequest struct {
	bulkRequest
	Reason string `json:"reason"`
}

// retryTasksRequest asks for new rounds of all tasks that a filter selects.
type retryTasksRequest struct {
	bulkRequest
	Deadline instant `json:"deadline"`
}

// deleteTasksRequest asks to remove all tasks that a filter selects.
type deleteTasksRequest struct {
	bulkRequest
	Force bool `json:"force"`
}

// bulkResponse counts what a request has changed. With a NextPageToken there is more to do.
type bulkResponse struct {
	Changed       uint64 `json:"changed"`
	Skipped       uint64 `json:"skipped"`
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// cancelMany answers POST /v1/tasks:batchCancel.
func (a *api) cancelMany(w http.ResponseWriter, r *http.Request) *problem {
	var m cancelTasksRequest
	filter, p := a.selection(w, r, &m, &m.bulkRequest)
	if p != nil {
		return a.misread(r, lessorv1.TaskService_BatchCancelTasks_FullMethodName,
			&lessorv1.BatchCancelTasksRequest{}, p)
	}
	return changeMany(w, r, a.tasks.BatchCancelTasks, &lessorv1.BatchCancelTasksRequest{
		Filter: filter, All: m.All, Reason: m.Reason, PageToken: m.PageToken, RequestId: m.RequestID,
	})
}

// retryMany answers POST /v1/tasks:batchRetry.
func (a *api) retryMany(w http.ResponseWriter, r *http.Request) *problem {
	var m retryTasksRequest
	filter, p := a.selection(w, r, &m, &m.bulkRequest)
	if p != nil {
		return a.misread(r, lessorv1.TaskService_BatchRetryTasks_FullMethodName, &lessorv1.BatchRetryTasksRequest{}, p)
	}
	return changeMany(w, r, a.tasks.BatchRetryTasks, &lessorv1.BatchRetryTasksRequest{
		Filter: filter, All: m.All, Deadline: stamp(m.Deadline), PageToken: m.PageToken, RequestId: m.RequestID,
	})
}

// removeMany answers POST /v1/tasks:batchDelete.
func (a *api) removeMany(w http.ResponseWriter, r *http.Request) *problem {
	var m deleteTasksRequest
	filter, p := a.selection(w, r, &m, &m.bulkRequest)
	if p != nil {
		return a.misread(r, lessorv1.TaskService_BatchDeleteTasks_FullMethodName,
			&lessorv1.BatchDeleteTasksRequest{}, p)
	}
	return changeMany(w, r, a.tasks.BatchDeleteTasks, &lessorv1.BatchDeleteTasksRequest{
		Filter: filter, All: m.All, Force: m.Force, PageToken: m.PageToken, RequestId: m.RequestID,
	})
}

// selection reads the body of a request to change many tasks, and returns its filter. m is the part
// that is in each such body.
func (a *api) selection(
	w http.ResponseWriter, r *http.Request, body any, m *bulkRequest,
) (*lessorv1.TaskFilter, *problem) {
	if p := a.decode(w, r, body, strict); p != nil || m.Filter == nil {
		return nil, p
	}
	filter, p := m.Filter.proto()
	if p != nil {
		return nil, p.under("filter")
	}
	return filter, nil
}

// changeMany makes the call that changes tasks. It may take many steps.
func changeMany[Req any, Res interface{ GetResult() *lessorv1.BatchResult }](
	w http.ResponseWriter, r *http.Request, call func(context.Context, Req, ...grpc.CallOption) (Res, error),
	request Req,
) *problem {
	hurry := patient(w)
	done, err := call(r.Context(), request)
	hurry()
	if err != nil {
		p := failed(err)
		// elsewhere it has no name in JSON
		if path, _ := detail.Field(status.Convert(err)); strings.HasPrefix(path, "filter.") {
			p = p.under("filter")
		}
		return p
	}
	result := done.GetResult()
	writeJSON(w, http.StatusOK, bulkResponse{
		Changed: result.GetChanged(), Skipped: result.GetSkipped(),
		NextPageToken: result.GetNextPageToken(),
	})
	return nil
}
