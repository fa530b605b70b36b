package main

import (
	"context"
	"fmt"
	"strings"

	"google.golang.org/protobuf/proto"
)

// taskCmd is lessor task.
type taskCmd struct {
	Get     taskGetCmd     `cmd:"" help:"Show one task with its history."`
	Explain taskExplainCmd `cmd:"" help:"Explain why a task is in its state, and what happened to its last lease."`
	List    taskListCmd    `cmd:"" help:"List tasks, oldest first."`
	Cancel  taskCancelCmd  `cmd:"" help:"Cancel tasks."`
	Retry   taskRetryCmd   `cmd:"" help:"Open a new round for tasks that failed or were cancelled."`
	Delete  taskDeleteCmd  `cmd:"" help:"Delete tasks."`
	Adopt   taskAdoptCmd   `cmd:"" help:"Make a result that came too late the outcome of its task."`
	Watch   taskWatchCmd   `cmd:"" help:"Follow the events of a task or a run."`
}

// changeEach makes one call for every task or queue. If one is refused, the others are changed all the same.
func changeEach(a *app, ids []string, call func(ctx context.Context, id string) (answer proto.Message, line string, err error)) error {
	var refused []*failure
	for _, id := range ids {
		answer, line, err := call(a.ctx, id)
		if err == nil {
			err = printChange(a, answer, line)
		}
		if err != nil {
			refused = append(refused, withID(id, err))
		}
	}
	return joined(refused)
}

// about explains an error about one task or queue, and names the task or queue. It returns nil for nil.
func about(id string, err error) error {
	if err == nil {
		return nil
	}
	return withID(id, err)
}

// withID explains an error. It puts the id in front of each line of the text that does not have the id. An empty id changes nothing.
func withID(id string, err error) *failure {
	f := *explain(err)
	if strings.Contains(f.text, id) {
		return &f
	}
	f.text = fmt.Sprintf("%s: %s", id, strings.ReplaceAll(f.text, "\n", "\n"+id+": "))
	return &f
}

// taskLeftOut has the paths of the fields that the coordinator does not send in the answer to a submit or a change.
var taskLeftOut = []string{"task.spec.payload"}

func printChange(a *app, answer proto.Message, line string) error {
	if a.json {
		return printJSON(a.out, answer, taskLeftOut...)
	}
	_, err := a.out.Write([]byte(line + "\n"))
	return err
}

// joined returns all failures as one failure, with the exit code and hint of the first.
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
