package main

import (
	"errors"
	"fmt"
	"io"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskWatchCmd is lessor task watch.
type taskWatchCmd struct {
	remote     `embed:""`
	TaskID     string `arg:"" optional:"" help:"Task to watch; ends when the task is final."`
	RunID      string `name:"run-id" placeholder:"ID" help:"Watch a run instead; ends with a signal."`
	After      uint64 `placeholder:"SEQUENCE" help:"Only durable events after this one."`
	ExitStatus bool   `name:"exit-status" help:"Exit with 1 if the task ends FAILED or CANCELLED, and with 4 if it is deleted."`
}

// Help is shown below the flags.
func (taskWatchCmd) Help() string {
	return `Prints what has happened, then what happens: state changes, progress and what the attempt prints. The time of a state change is the
coordinator's; of anything else it is when it came here. Lines of a run have the id of the task behind the time.

Examples:
  lessor task watch t0000200000000001
  lessor task watch --exit-status t0000200000000001 && echo COMPLETED
  lessor task watch --run-id nightly --json | jq -r .task_state`
}

func (c taskWatchCmd) Run(a *app) error {
	if (c.TaskID == "") == (c.RunID == "") {
		return fail(exitUsage, "see lessor task watch --help", "name either a task or, with --run-id, a run")
	}
	if c.ExitStatus && c.RunID != "" {
		return fail(exitUsage, "\"lessor task wait --run-id\" waits for the tasks of a run",
			"--exit-status needs a task: a run has no end")
	}
	return c.with(a, func(cl *client) error {
		stream, err := cl.tasks.WatchTask(a.ctx, &lessorv1.WatchTaskRequest{
			TaskId: c.TaskID, RunId: c.RunID, WorkspaceId: c.Workspace, AfterSequence: c.After,
		})
		if err != nil {
			return err
		}
		done := make(chan struct{})
		defer close(done)
		events := receiveAll(done, stream.Recv)
		p := &watchPrinter{out: a.out, json: a.json, ofRun: c.RunID != ""}
		var last *lessorv1.WatchTaskResponse
		for seen := c.After; ; {
			select {
			case <-p.late:
				err = p.flush()
			case r := <-events:
				if r.err != nil {
					if err := p.flush(); err != nil {
						return err
					}
					if errors.Is(r.err, io.EOF) {
						return c.outcome(a, cl, last)
					}
					return cutOff(withID(c.TaskID, r.err), seen)
				}
				last, seen = r.event, max(seen, r.event.GetSequence())
				err = p.print(r.event)
			}
			if err != nil {
				return err
			}
		}
	})
}

// received is an event of a watch, or why there are no more.
type received struct {
	event *lessorv1.WatchTaskResponse
	err   error
}

// receiveAll passes on what recv returns, until it returns an error or done is closed.
func receiveAll(done <-chan struct{}, recv func() (*lessorv1.WatchTaskResponse, error)) <-chan received {
	events := make(chan received)
	go func() {
		for {
			event, err := recv()
			select {
			case events <- received{event, err}:
			case <-done:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return events
}

// outcome is what the command returns at the end of the watch. last is the last event; nil if there
// was none after --after.
func (c taskWatchCmd) outcome(a *app, cl *client, last *lessorv1.WatchTaskResponse) error {
	state := last.GetTaskState()
	switch {
	case !c.ExitStatus:
		return nil
	case last.GetDeleted() != nil:
		return fail(exitNotFound, "", "%s was deleted", c.TaskID)
	case state == lessorv1.TaskState_TASK_STATE_UNSPECIFIED:
		got, err := cl.tasks.GetTask(a.ctx, &lessorv1.GetTaskRequest{TaskId: c.TaskID})
		if err != nil {
			return withID(c.TaskID, err)
		}
		state = got.GetTask().GetState()
	}
	if state != lessorv1.TaskState_TASK_STATE_COMPLETED {
		return fail(exitFailed, fmt.Sprintf("\"lessor task explain %s\" says why", c.TaskID), "%s is %s",
			c.TaskID, words.Name(state))
	}
	return nil
}

// cutOff adds a hint to the error of a watch that another one can continue.
func cutOff(f *failure, seen uint64) *failure {
	if f.code == exitUnavailable && seen > 0 {
		f.hint = fmt.Sprintf("continue with --after %d once the coordinator answers", seen)
	}
	return f
}
