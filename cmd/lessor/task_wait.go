package main

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/worker/producer"
)

// taskWaitCmd is lessor task wait.
type taskWaitCmd struct {
	remote        `embed:""`
	taskSelection `embed:""`
	Timeout       time.Duration `type:"positive" placeholder:"DURATION" help:"Exit with 124 if some have not ended by then (no limit)."`
}

// Help is shown below the flags.
func (taskWaitCmd) Help() string {
	return `Waits until all tasks are COMPLETED, FAILED or CANCELLED, and prints each with its state when it has ended. Exit code 0 means that all are COMPLETED,
1 that some are not, 4 that there is no such task (any more), 124 that the timeout is over. Instead of ids, conditions select the tasks that are there when the
command begins; with --run-id, also those that are submitted under it before all others have ended. While the coordinator is away, it goes on waiting.

Examples:
  lessor task wait t0000200000000001 && echo COMPLETED
  lessor task wait --run-id nightly --timeout 2h
  lessor submit --queue thumbs --lines urls.txt | xargs lessor task wait`
}

func (c taskWaitCmd) Run(a *app) error {
	filter, err := c.selected(c.Workspace)
	if err != nil {
		return err
	}
	ctx := a.ctx
	if c.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, c.Timeout)
		defer stop()
	}
	return c.with(a, func(cl *client) error {
		w := &taskWait{a: a, cl: cl, ends: make(taskCounts)}
		why, err := "", error(nil)
		if filter != nil {
			why, err = w.awaitSelected(ctx, filter)
		} else if err = w.reach(ctx, c.TaskID[0]); err == nil {
			why, err = w.await(ctx, c.TaskID)
		}
		switch {
		case ctx.Err() != nil && w.left > 0:
			return fail(exitTimeout, "", "after %v, %s left%s", c.Timeout, are(w.left, "task"), why)
		case ctx.Err() != nil && err != nil:
			return fail(exitTimeout, "", "after %v, the coordinator has not answered", c.Timeout)
		case err != nil:
			return err
		}
		return w.outcome()
	})
}

// maxTaskWaits is how many tasks are waited for at once. The others may end meanwhile.
const maxTaskWaits = 10_000

// taskWait waits for tasks and prints them.
type taskWait struct {
	a  *app
	cl *client

	begun   bool // some tasks were waited for
	ends    taskCounts
	missing uint64 // tasks that do not exist
	left    uint64 // tasks that have not ended
}

// reach returns an error if no coordinator answers: once the wait has begun, it is waited for.
func (w *taskWait) reach(ctx context.Context, id string) error {
	_, err := w.cl.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: id})
	if status.Code(err) == codes.NotFound { // the others are waited for
		return nil
	}
	return err
}

// awaitSelected waits for the tasks that a filter selects. A handler may submit further tasks of
// its run before it returns, so a run is asked for again until there is none that was not waited
// for. It refuses to select none: a misspelled name must not say that all is over.
func (w *taskWait) awaitSelected(ctx context.Context, filter *lessorv1.TaskFilter) (why string, err error) {
	known := make(map[string]bool)
	for {
		ids, err := w.selected(ctx, filter, known)
		if err == nil && len(known) == 0 {
			err = fail(exitNotFound, "lessor task list shows what tasks there are", "no task is selected")
		}
		if err != nil || len(ids) == 0 {
			return "", err
		}
		if why, err := w.await(ctx, ids); err != nil || w.left > 0 || filter.GetRunId() == "" {
			return why, err
		}
	}
}

// selected returns the ids of the tasks that a filter selects and that have not ended, but for
// those that are known. It prints those that have. All are known then.
func (w *taskWait) selected(
	ctx context.Context, filter *lessorv1.TaskFilter, known map[string]bool,
) (ids []string, err error) {
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: maxPage}
	for {
		page, err := w.page(ctx, req)
		if err != nil {
			return nil, err
		}
		for _, t := range page.GetTasks() {
			switch id := t.GetTaskId(); {
			case known[id]:
				continue
			case !words.Final(t.GetState()):
				ids = append(ids, id)
			default:
				if err := w.ended(t); err != nil {
					return nil, err
				}
			}
			known[t.GetTaskId()] = true
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return ids, nil
		}
	}
}

// page lists a page of tasks. Once the wait has begun, it outlives the coordinator.
func (w *taskWait) page(ctx context.Context, req *lessorv1.ListTasksRequest) (*lessorv1.ListTasksResponse, error) {
	for {
		page, err := w.cl.tasks.ListTasks(ctx, req)
		if status.Code(err) != codes.Unavailable || !w.begun || ctx.Err() != nil {
			return page, err
		}
		select {
		case <-time.After(time.Second):
		case <-ctx.Done():
		}
	}
}

// ended counts and prints a task that has ended.
func (w *taskWait) ended(t *lessorv1.Task) error {
	w.ends[t.GetState()]++
	if w.a.json {
		return printJSON(w.a.out, t, listLeftOut...)
	}
	_, err := fmt.Fprintln(w.a.out, stateLine(t))
	return err
}

// awaited is the end of a wait.
type awaited struct {
	id   string
	task *lessorv1.Task
	err  error
}

// await waits until the tasks or ctx have ended. why says what was wrong with the coordinator when
// ctx ended; "" if nothing was.
func (w *taskWait) await(ctx context.Context, ids []string) (why string, failure error) {
	w.begun, w.left = true, uint64(len(ids))
	p := producer.NewWithConfig(w.cl, producer.Config{Logger: slog.New(notes{w.a})})
	defer func() { _ = p.Close() }()
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	for one := range awaitEach(ctx, p, ids) {
		switch code := status.Code(one.err); {
		case failure != nil: // the wait was given up
		case one.err == nil:
			w.left--
			failure = w.ended(one.task)
		case code == codes.NotFound:
			w.left--
			w.missing++
			w.a.note("%s", withID(one.id, one.err).text)
		case ctx.Err() != nil:
			if _, try, ok := strings.Cut(status.Convert(one.err).Message(), "; "); ok {
				why = "; " + try
			}
		default:
			failure = withID(one.id, one.err)
		}
		if failure != nil {
			stop()
		}
	}
	return why, failure
}

// notes is a handler for a command without a log. It prints the warnings of the SDK as a command
// notes something.
type notes struct{ a *app }

func (notes) Enabled(_ context.Context, level slog.Level) bool { return level >= slog.LevelWarn }

// Handle prints the message and the values of its attributes, of which it has an error.
func (n notes) Handle(_ context.Context, r slog.Record) error {
	text := r.Message
	r.Attrs(func(a slog.Attr) bool {
		text += ": " + a.Value.String()
		return true
	})
	n.a.note("%s", printable(text))
	return nil
}

func (n notes) WithAttrs([]slog.Attr) slog.Handler { return n }
func (n notes) WithGroup(string) slog.Handler      { return n }

func awaitEach(ctx context.Context, p *producer.Client, ids []string) <-chan awaited {
	ends := make(chan awaited)
	go func() {
		defer close(ends)
		var all errgroup.Group
		all.SetLimit(maxTaskWaits)
		for _, id := range ids {
			all.Go(func() error {
				task, err := p.Wait(ctx, id)
				ends <- awaited{id, task, err}
				return nil
			})
		}
		_ = all.Wait()
	}()
	return ends
}

// outcome is what the command returns when nothing is left to wait for.
func (w *taskWait) outcome() error {
	switch completed := w.ends[lessorv1.TaskState_TASK_STATE_COMPLETED]; {
	case w.missing > 0:
		return fail(exitNotFound, "", "%d of %d tasks do not exist", w.missing, w.ends.total()+w.missing)
	case completed < w.ends.total():
		return fail(exitFailed, "\"lessor task explain ID\" says why", "not all are COMPLETED: %v", w.ends)
	}
	return nil
}
