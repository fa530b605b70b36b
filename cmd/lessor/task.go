package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// taskCmd is lessor task.
type taskCmd struct {
	Get    taskGetCmd    `cmd:"" help:"Show one task with its history."`
	List   taskListCmd   `cmd:"" help:"List tasks, oldest first."`
	Cancel taskCancelCmd `cmd:"" help:"Ask tasks to end."`
	Retry  taskRetryCmd  `cmd:"" help:"Open a new round for tasks that failed or were cancelled."`
	Delete taskDeleteCmd `cmd:"" help:"Remove tasks."`
	Watch  taskWatchCmd  `cmd:"" help:"Follow the events of a task or a run."`
}

// taskIDs are the tasks that a command changes.
type taskIDs struct {
	TaskID []string `arg:"" help:"Tasks to change."`
}

// change makes one call for every task. A task that is refused does not keep the others from being changed.
func (t taskIDs) change(a *app, call func(ctx context.Context, id string) (answer proto.Message, line string, err error)) error {
	var refused []*failure
	for _, id := range t.TaskID {
		answer, line, err := call(a.ctx, id)
		if err == nil {
			err = printChange(a, answer, line)
		}
		if err != nil {
			refused = append(refused, about(id, err))
		}
	}
	return joined(refused)
}

// about explains an error that came of one task, and says which. An empty id names none.
func about(id string, err error) *failure {
	f := *explain(err)
	if strings.Contains(f.text, id) {
		return &f
	}
	f.text = fmt.Sprintf("%s: %s", id, strings.ReplaceAll(f.text, "\n", "\n"+id+": "))
	return &f
}

// taskLeftOut is what an answer with a task does not have, unless it was asked for the task.
var taskLeftOut = []string{"task.spec.payload"}

func printChange(a *app, answer proto.Message, line string) error {
	if a.json {
		return printJSON(a.out, answer, taskLeftOut...)
	}
	_, err := a.out.Write([]byte(line + "\n"))
	return err
}

// joined is all failures as one, with the first one's exit code and hint.
func joined(failures []*failure) error {
	if len(failures) == 0 {
		return nil
	}
	var lines []string
	for _, f := range failures {
		lines = append(lines, f.text)
	}
	return fail(failures[0].code, failures[0].hint, "%s", strings.Join(lines, "\n"))
}
