package main

import (
	"fmt"
	"math"
	"strings"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskListCmd is lessor task list.
type taskListCmd struct {
	remote      `embed:""`
	taskFilter  `embed:""`
	Limit       *uint `placeholder:"N" help:"Most tasks to list (100); 0 lists all."`
	NewestFirst bool  `help:"Begin with the task that was submitted last, instead of the first one."`
}

// listedByDefault is the most tasks that are listed without --limit.
const listedByDefault = 100

// Help is shown below the flags.
func (taskListCmd) Help() string {
	return `DETAIL is the worker that has the task, or when the task is due, and the last error with its category. TASK KEY is the --task-key of its submit.

Examples:
  lessor task list --queue mail --state FAILED --newest-first
  lessor task list --concurrency-key db-1 --state LEASED,RUNNING,CANCELLING
  lessor task list --run-id nightly --limit 0 --json | jq -r .task_id`
}

// maxPage is the largest page that a coordinator returns.
const maxPage = 1000

func (c taskListCmd) Run(a *app) error {
	filter, err := c.filter(c.Workspace)
	if err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		list := newTaskListing(a)
		more, err := c.print(a, cl, list, filter)
		if err := list.end(err); err != nil {
			return err
		}
		if more && c.Limit == nil { // who has set a limit knows
			a.note("there are more than %d; see --limit", listedByDefault)
		}
		return nil
	})
}

// listLeftOut has the paths of the fields that a list leaves out.
var listLeftOut = []string{
	"spec.payload", "output", "artifacts", "metrics", "checkpoint", "history", "history_dropped", "feedback",
	"discarded.output", "discarded.artifacts",
	"error.stack_trace", "middlewares", "cancelled_during_phase", "partial_progress",
}

func newTaskListing(a *app) *listing {
	list := newListing(a, "TASK", "STATE", "QUEUE", "TYPE", "ATTEMPT", "AGE", "TASK KEY", "DETAIL")
	list.leftOut = listLeftOut
	list.clipLast()
	return list
}

// print adds tasks to list up to the limit and reports whether there are more.
func (c taskListCmd) print(a *app, cl *client, list *listing, filter *lessorv1.TaskFilter) (more bool, err error) {
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: maxPage, NewestFirst: c.NewestFirst}
	limit := uint(listedByDefault)
	if c.Limit != nil {
		limit = *c.Limit
	}
	for left := int(min(limit, math.MaxInt)); ; {
		if limit > 0 {
			req.PageSize = uint32(min(left+1, maxPage)) // one more than wanted shows whether there are more
		}
		page, err := cl.tasks.ListTasks(a.ctx, req)
		if err != nil {
			return false, err
		}
		for _, t := range page.GetTasks() {
			if limit > 0 && left == 0 {
				return true, nil
			}
			left--
			if err := list.add(t, taskCells(t)...); err != nil {
				return false, err
			}
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return false, nil
		}
		if err := list.pageEnds(); err != nil {
			return false, err
		}
	}
}

func taskCells(t *lessorv1.Task) []string {
	return []string{
		t.GetTaskId(),
		words.Name(t.GetState()),
		t.GetSpec().GetQueue(),
		t.GetSpec().GetType(),
		fmt.Sprint(t.GetAttempt()),
		age(t.GetCreatedAt()),
		t.GetSpec().GetTaskKey(),
		taskDetail(t, time.Now()),
	}
}

// taskDetail says who has a task, or when it is due, and why it has not succeeded.
func taskDetail(t *lessorv1.Task, now time.Time) string {
	var parts []string
	if l := t.GetLease(); l != nil {
		parts = append(parts, "worker "+l.GetWorkerId())
	}
	if due := t.GetRetryAt(); due != nil && t.GetState() == lessorv1.TaskState_TASK_STATE_SCHEDULED {
		parts = append(parts, "due in "+words.Age(due.AsTime().Sub(now)))
	}
	if text := words.Error(t); text != "" {
		parts = append(parts, text)
	}
	return strings.Join(parts, "; ")
}
