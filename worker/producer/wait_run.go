package producer

import (
	"context"
	"math/rand/v2"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// Run names the tasks that were submitted under one run_id.
type Run struct {
	// ID is their run_id. Required.
	ID string
	// WorkspaceID is their workspace. Empty means "default".
	WorkspaceID string
}

// RunCounts says how many tasks of a run have ended in each state.
type RunCounts struct {
	Completed, Failed, Cancelled int
}

// WaitRun waits until all tasks of a run are COMPLETED, FAILED or CANCELLED, and returns how many
// of each there are. It needs only the name of the run, so it may be called in another process than
// Submit. Tasks that are submitted under the run before all others have ended are waited for, too,
// so that a handler can submit the next task of its run before it returns; and so are those that
// are retried before that (T9). Tasks that were deleted, by somebody or after their retention, are
// not counted. To get the tasks that failed, call ListTasks with the run and FAILED in its filter.
//
// Like Wait, WaitRun goes on when the coordinator is away, when a quota is used up, and when a new
// credential has replaced the one with which it began. So only ctx limits how long it waits. Close
// does not end it.
//
// The error is a status: NOT_FOUND if the run has no task (any more), because a misspelled run is
// not over; INVALID_ARGUMENT if its ID is empty, or an id is not valid; CANCELLED or
// DEADLINE_EXCEEDED if ctx has ended; or the coordinator's refusal. The counts are zero then.
//
// A run may have any number of tasks. WaitRun lists them in pages of up to 1,000, of which it has
// one in memory, and waits for one task at a time (X5). It reads a page about eight times while the
// tasks of the page end, in whatever order, and reads a run of several pages once more when all
// have ended. A task that is retried during this last reading may be counted as it was before.
func (c *Client) WaitRun(ctx context.Context, run Run) (RunCounts, error) {
	if run.ID == "" { // the list would be of all tasks
		return RunCounts{}, invalid("run_id", "is required")
	}
	w := &runWait{client: c, list: &lessorv1.ListTasksRequest{
		Filter: &lessorv1.TaskFilter{WorkspaceId: run.WorkspaceID, RunId: run.ID}, PageSize: maxPage,
	}}
	for {
		counts, again, err := w.read(ctx)
		switch {
		case err != nil:
			return RunCounts{}, err
		case again:
		case counts == RunCounts{}:
			return counts, status.Errorf(codes.NotFound, "the run %q has no task", run.ID)
		default:
			return counts, nil
		}
	}
}

// maxPage is the largest page of a list.
const maxPage = 1000

// runWait is a WaitRun in progress.
type runWait struct {
	client   *Client
	list     *lessorv1.ListTasksRequest // of the page that is read
	answered bool                       // the last call got its page
}

// read reads the run in the order of submit, so that tasks that are submitted meanwhile come last.
// It leaves a page when none of its tasks is open. again says that it has waited after it had left
// a page, whose tasks may have been retried since.
func (w *runWait) read(ctx context.Context) (counts RunCounts, again bool, err error) {
	for {
		page, err := w.page(ctx)
		if err != nil {
			return counts, false, err
		}
		if id := anyOpen(page.GetTasks()); id != "" {
			if _, err := w.client.Wait(ctx, id); err != nil && status.Code(err) != codes.NotFound {
				return counts, false, err
			}
			again = again || w.list.GetPageToken() != ""
			continue
		}
		counts.add(page.GetTasks())
		if w.list.PageToken = page.GetNextPageToken(); w.list.GetPageToken() == "" {
			return counts, again, nil
		}
	}
}

// anyOpen returns the id of one of the tasks that have not ended; "" if all have. It draws it: then
// half of the others have ended, on average, when this one has, whatever their order. So a page of
// n tasks is read about ln n times, without the outputs that a Wait for each would bring.
func anyOpen(tasks []*lessorv1.Task) (id string) {
	open := 0
	for _, t := range tasks {
		if words.Final(t.GetState()) {
			continue
		}
		if open++; rand.IntN(open) == 0 {
			id = t.GetTaskId()
		}
	}
	return id
}

// page reads a page. Like a stream of Wait, a call that fails after one that was answered is
// repeated once also if the credential was refused, or something on the way has cut it.
func (w *runWait) page(ctx context.Context) (*lessorv1.ListTasksResponse, error) {
	var last error // of the last try
	for failures := 0; ; failures++ {
		page, err := open(ctx, func() (*lessorv1.ListTasksResponse, error) {
			return w.client.tasks.ListTasks(ctx, w.list)
		})
		if err == nil {
			w.answered = true
			return page, nil
		}
		if ctx.Err() != nil {
			return nil, contextEnded(ctx, "the last try", last)
		}
		pause, ok := waitAgain(ctx, err, w.answered, failures)
		if !ok {
			return nil, err
		}
		w.answered, last = false, err
		w.client.trouble.tell(err)
		sleep(ctx, pause) // if ctx ends, the next try says so
	}
}

// add counts tasks that have ended.
func (n *RunCounts) add(tasks []*lessorv1.Task) {
	for _, t := range tasks {
		switch t.GetState() {
		case lessorv1.TaskState_TASK_STATE_COMPLETED:
			n.Completed++
		case lessorv1.TaskState_TASK_STATE_FAILED:
			n.Failed++
		default:
			n.Cancelled++
		}
	}
}
