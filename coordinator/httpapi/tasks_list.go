package httpapi

import (
	"bytes"
	"fmt"
	"net/http"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/strictjson"
	"github.com/lessor-dev/lessor/internal/turn"
)

// listRequest is the query of a list: a TaskFilter, which page, and in which order.
type listRequest struct {
	conditions
	Labels      []string `json:"labels"`
	PageSize    items    `json:"pageSize"`
	PageToken   string   `json:"pageToken"`
	NewestFirst bool     `json:"newestFirst"`
}

// listResponse is a page of tasks.
type listResponse struct {
	Tasks         []task `json:"tasks"`
	NextPageToken string `json:"nextPageToken,omitempty"`
}

// list answers GET /v1/tasks.
func (a *api) list(w http.ResponseWriter, r *http.Request) *problem {
	var m listRequest
	var filter *lessorv1.TaskFilter
	p := a.query(w, r, &m)
	if p == nil {
		filter, p = m.filter()
	}
	if p != nil {
		return a.misread(r, lessorv1.TaskService_ListTasks_FullMethodName, &lessorv1.ListTasksRequest{}, p)
	}
	page, err := a.tasks.ListTasks(r.Context(), &lessorv1.ListTasksRequest{
		Filter: filter, PageSize: uint32(m.PageSize), PageToken: m.PageToken, NewestFirst: m.NewestFirst,
	})
	if err != nil {
		return failed(err)
	}
	body := pageBody(page)
	writeHead(w, http.StatusOK)
	_, _ = w.Write(body) // an error means that the caller is gone
	return nil
}

// tasksPerTurn is after how many tasks the encoding of a page gives up the processor (package
// turn).
const tasksPerTurn = 8

// pageBody encodes a listResponse. It does so task by task: package json would keep the processor
// for all of a large page, up to 20 ms.
func pageBody(page *lessorv1.ListTasksResponse) []byte {
	var out bytes.Buffer
	encoder := encoderTo(&out)
	// a buffer takes everything
	_ = encoder.Encode(listResponse{Tasks: []task{}, NextPageToken: page.GetNextPageToken()})
	head, tail, _ := bytes.Cut(bytes.Clone(out.Bytes()), []byte("]"))
	out.Reset()
	out.Write(head)
	var written turn.Counter
	for i, t := range page.GetTasks() {
		if i > 0 {
			out.WriteByte(',')
		}
		_ = encoder.Encode(taskOf(t))
		written.Every(tasksPerTurn)
	}
	out.WriteByte(']')
	out.Write(tail)
	return out.Bytes()
}

// filter converts the conditions of a list.
func (m *listRequest) filter() (*lessorv1.TaskFilter, *problem) {
	f, p := m.proto()
	if p != nil {
		return nil, p
	}
	for i, label := range m.Labels {
		field := fmt.Sprintf("labels[%d]", i)
		key, value, isPair := strings.Cut(label, "=")
		if !isPair {
			return nil, invalid(field, "is %q; a label is written as key=value", strictjson.Clip(label))
		}
		if _, twice := f.GetLabels()[key]; twice {
			return nil, invalid(field, "has a key that is sent twice")
		}
		if f.Labels == nil {
			f.Labels = map[string]string{}
		}
		f.Labels[key] = value
	}
	return f, nil
}
