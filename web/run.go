package web

import (
	"context"
	"net/http"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// run shows how far a run is.
func (p *pages) run(r *http.Request) (view, error) {
	id := r.URL.Query().Get("id")
	if id == "" {
		return view{}, malformed("id", "is the name of a run, and must be there")
	}
	n, err := p.tally(r.Context(), &lessorv1.TaskFilter{WorkspaceId: workspaceOf(r), RunId: id})
	if err != nil {
		return view{}, err
	}
	return view{Title: "Run " + id, Template: "run", Live: true, Data: struct {
		ID        string
		Workspace string
		tally
		States      []lessorv1.TaskState
		FailedInAll int
	}{id, workspaceOf(r), n, words.States(), n.Counts[lessorv1.TaskState_TASK_STATE_FAILED]}}, nil
}

// tally is what the page of a run says of its tasks.
type tally struct {
	Total, Ended int
	Counts       map[lessorv1.TaskState]int
	Failed       []*lessorv1.Task       // the first ones
	First, Last  *timestamppb.Timestamp // when the first one was submitted, and when the last one ended
	Whole        bool                   // it has all tasks
}

// tallied is how many tasks the page of a run asks for at once.
const tallied = 1000

// tally counts the tasks that a filter selects. Of many it counts the first ones: it stops where a
// search does. A task that moves meanwhile has the state that it had when its part was read.
func (p *pages) tally(ctx context.Context, filter *lessorv1.TaskFilter) (tally, error) {
	n := tally{Counts: map[lessorv1.TaskState]int{}}
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: tallied}
	began := time.Now()
	for calls := 0; calls < mostCalls && time.Since(began) < longestSearch; calls++ {
		page, err := p.tasks.ListTasks(ctx, req)
		if calls > 0 && status.Code(err) == codes.ResourceExhausted {
			break
		}
		if err != nil {
			return n, err
		}
		for _, t := range page.GetTasks() {
			n.add(t)
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			n.Whole = true
			break
		}
	}
	return n, nil
}

func (n *tally) add(t *lessorv1.Task) {
	n.Total++
	n.Counts[t.GetState()]++
	if at := t.GetCreatedAt(); n.First == nil || at.AsTime().Before(n.First.AsTime()) {
		n.First = at
	}
	if words.Final(t.GetState()) {
		n.Ended++
		if at := t.GetFinishedAt(); n.Last == nil || at.AsTime().After(n.Last.AsTime()) {
			n.Last = at
		}
	}
	if t.GetState() == lessorv1.TaskState_TASK_STATE_FAILED && len(n.Failed) < rowsPerPage {
		n.Failed = append(n.Failed, t)
	}
}
