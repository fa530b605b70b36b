package main

import (
	"fmt"
	"math"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskListCmd is lessor task list.
type taskListCmd struct {
	remote `embed:""`
	Queue  string            `placeholder:"NAME" help:"Only tasks of this queue."`
	State  []string          `placeholder:"STATE" help:"Only tasks in these states, for example READY,RUNNING."`
	RunID  string            `name:"run-id" placeholder:"ID" help:"Only tasks of this run."`
	Type   string            `placeholder:"NAME" help:"Only tasks of this type."`
	Label  map[string]string `placeholder:"KEY=VALUE" mapsep:"none" help:"Only tasks with this label; a comma belongs to the value. Repeatable."`
	Limit  uint              `default:"100" placeholder:"N" help:"At most so many; 0 is all."`
}

// Help is shown below the flags.
func (taskListCmd) Help() string {
	return `Examples:
  lessor task list --queue mail --state FAILED
  lessor task list --run-id nightly --limit 0 --json | jq -r .task_id`
}

// maxPage is the largest page that a coordinator gives.
const maxPage = 1000

func (c taskListCmd) Run(a *app) error {
	filter, err := c.filter()
	if err != nil {
		return err
	}
	return c.with(func(cl *client) error {
		list := newListing(a, "TASK", "STATE", "QUEUE", "TYPE", "ATTEMPT", "AGE", "KEY", "ERROR")
		list.leftOut = []string{"spec.payload", "output", "checkpoint", "history"}
		more, err := c.print(a, cl, list, filter)
		if err != nil {
			return err
		}
		if more {
			a.note("there are more than %d; see --limit", c.Limit)
		}
		return list.flush()
	})
}

// print adds tasks to list up to the limit and reports whether there are more.
func (c taskListCmd) print(a *app, cl *client, list *listing, filter *lessorv1.TaskFilter) (more bool, err error) {
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: maxPage}
	for left := int(min(c.Limit, math.MaxInt)); ; {
		if c.Limit > 0 {
			req.PageSize = uint32(min(left+1, maxPage)) // one more tells whether there are more
		}
		page, err := cl.tasks.ListTasks(a.ctx, req)
		if err != nil {
			return false, err
		}
		for _, t := range page.GetTasks() {
			if c.Limit > 0 && left == 0 {
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
	}
}

func (c taskListCmd) filter() (*lessorv1.TaskFilter, error) {
	states, err := parseStates(c.State)
	if err != nil {
		return nil, err
	}
	return &lessorv1.TaskFilter{
		WorkspaceId: c.Workspace,
		Queue:       c.Queue,
		States:      states,
		RunId:       c.RunID,
		Type:        c.Type,
		Labels:      c.Label,
	}, nil
}

// parseStates reads state names with or without their prefix, in any case.
func parseStates(names []string) ([]lessorv1.TaskState, error) {
	var states []lessorv1.TaskState
	for _, name := range names {
		full := "TASK_STATE_" + strings.TrimPrefix(strings.ToUpper(name), "TASK_STATE_")
		number, known := lessorv1.TaskState_value[full]
		if !known || number == 0 {
			return nil, fail(exitUsage, "states are "+strings.Join(stateNames(), ", "), "unknown state %q", name)
		}
		states = append(states, lessorv1.TaskState(number))
	}
	return states, nil
}

func stateNames() []string {
	var names []string
	for number := range int32(len(lessorv1.TaskState_name)) {
		if number > 0 {
			names = append(names, short(lessorv1.TaskState(number), "TASK_STATE_"))
		}
	}
	return names
}

func taskCells(t *lessorv1.Task) []string {
	message, _, _ := strings.Cut(t.GetError().GetMessage(), "\n")
	return []string{
		t.GetTaskId(),
		short(t.GetState(), "TASK_STATE_"),
		t.GetSpec().GetQueue(),
		t.GetSpec().GetType(),
		fmt.Sprint(t.GetAttempt()),
		age(t.GetCreatedAt()),
		t.GetSpec().GetTaskKey(),
		clipped(message),
	}
}

// clipped keeps a table readable.
func clipped(s string) string {
	const width = 60
	if runes := []rune(s); len(runes) > width {
		return string(runes[:width-1]) + "…"
	}
	return s
}
