package main

import (
	"encoding/json"
	"fmt"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskCountCmd is lessor task count.
type taskCountCmd struct {
	remote     `embed:""`
	taskFilter `embed:""`
}

// Help is shown below the flags.
func (taskCountCmd) Help() string {
	return `Counts the tasks of the workspace, or those that the conditions select, in each state. It reads all of them, page by page; a task that moves meanwhile is
counted in the state that it had when its page was read. Of a run that is not known (any more) there are 0.

Examples:
  lessor task count --queue mail
  lessor task count --run-id nightly --json | jq .states.TASK_STATE_FAILED`
}

func (c taskCountCmd) Run(a *app) error {
	filter, err := c.filter(c.Workspace)
	if err != nil {
		return err
	}
	return c.with(a, func(cl *client) error {
		n, err := countTasks(a, cl, filter)
		if err != nil {
			return err
		}
		return n.print(a)
	})
}

// taskCounts are numbers of tasks by state.
type taskCounts map[lessorv1.TaskState]uint64

// countTasks counts the tasks that a filter selects. It holds one page in memory.
func countTasks(a *app, cl *client, filter *lessorv1.TaskFilter) (taskCounts, error) {
	n := make(taskCounts)
	for _, state := range words.States() {
		n[state] = 0
	}
	req := &lessorv1.ListTasksRequest{Filter: filter, PageSize: maxPage}
	for {
		page, err := cl.tasks.ListTasks(a.ctx, req)
		if err != nil {
			return nil, err
		}
		for _, t := range page.GetTasks() {
			n[t.GetState()]++
		}
		if req.PageToken = page.GetNextPageToken(); req.PageToken == "" {
			return n, nil
		}
	}
}

func (n taskCounts) total() (sum uint64) {
	for _, count := range n {
		sum += count
	}
	return sum
}

// held is how many of the tasks have a worker.
func (n taskCounts) held() (sum uint64) {
	for _, state := range words.Held() {
		sum += n[state]
	}
	return sum
}

// print prints all states, also those without a task, so that a script finds the one that it looks
// for.
func (n taskCounts) print(a *app) error {
	if a.json {
		states := make(map[string]uint64)
		for state, count := range n {
			states[state.String()] = count
		}
		return json.NewEncoder(a.out).Encode(struct {
			States map[string]uint64 `json:"states"`
			Total  uint64            `json:"total"`
		}{states, n.total()})
	}
	rows := newTable(a.out, "STATE", "TASKS")
	for _, state := range words.States() {
		rows.row(words.Name(state), fmt.Sprint(n[state]))
	}
	rows.row("total", fmt.Sprint(n.total()))
	return rows.flush()
}

// String names the states that have tasks.
func (n taskCounts) String() string {
	var parts []string
	for _, state := range words.States() {
		if n[state] > 0 {
			parts = append(parts, fmt.Sprintf("%d %s", n[state], words.Name(state)))
		}
	}
	return strings.Join(parts, ", ")
}
