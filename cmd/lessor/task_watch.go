package main

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/protobuf/types/known/timestamppb"

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
		return fail(exitUsage, "see lessor task watch --help", "--exit-status needs a task: a run has no end")
	}
	return c.with(a, func(cl *client) error {
		stream, err := cl.tasks.WatchTask(a.ctx, &lessorv1.WatchTaskRequest{
			TaskId: c.TaskID, RunId: c.RunID, WorkspaceId: c.Workspace, AfterSequence: c.After,
		})
		if err != nil {
			return err
		}
		var last *lessorv1.WatchTaskResponse
		for seen := c.After; ; {
			event, err := stream.Recv()
			switch {
			case errors.Is(err, io.EOF):
				return c.outcome(a, cl, last)
			case err != nil:
				return cutOff(withID(c.TaskID, err), seen)
			}
			last, seen = event, max(seen, event.GetSequence())
			if err := c.printEvent(a, event); err != nil {
				return err
			}
		}
	})
}

// outcome is what the command returns at the end of the watch. last is the last event; nil if there was none after --after.
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
		return fail(exitFailed, fmt.Sprintf("\"lessor task explain %s\" says why", c.TaskID), "%s is %s", c.TaskID, words.Name(state))
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

func (c taskWatchCmd) printEvent(a *app, e *lessorv1.WatchTaskResponse) error {
	if a.json {
		return printJSON(a.out, e)
	}
	at := e.GetHistory().GetAt()
	if at == nil {
		at = timestamppb.Now()
	}
	lead := []string{clock(at)}
	if c.RunID != "" {
		lead = append(lead, printable(e.GetTaskId())) // events that were missed may be of several tasks
	}
	state := "-" // for events that were missed, and for the end of a task
	if e.GetTaskState() != lessorv1.TaskState_TASK_STATE_UNSPECIFIED {
		state = words.Name(e.GetTaskState())
	}
	lead = append(lead, state)
	text := strings.TrimRight(eventText(e), "\n")
	for line := range strings.SplitSeq(text, "\n") {
		if _, err := fmt.Fprintf(a.out, "%s\t%s\n", strings.Join(lead, "\t"), printable(line)); err != nil {
			return err
		}
	}
	return nil
}

func eventText(e *lessorv1.WatchTaskResponse) string {
	switch event := e.GetEvent().(type) {
	case *lessorv1.WatchTaskResponse_History:
		return historyText(event.History)
	case *lessorv1.WatchTaskResponse_Progress:
		return "progress " + progressText(event.Progress)
	case *lessorv1.WatchTaskResponse_Chunk:
		return chunkText(event.Chunk)
	case *lessorv1.WatchTaskResponse_Missed:
		return fmt.Sprintf("missed %d durable and %d volatile events", event.Missed.GetDurable(), event.Missed.GetVolatile())
	case *lessorv1.WatchTaskResponse_Deleted:
		return "deleted"
	}
	return "an event that this version does not know"
}

func historyText(e *lessorv1.HistoryEvent) string {
	text := strings.ToLower(words.Event(e))
	if e.GetAttempt() > 0 {
		text += fmt.Sprintf(" %sattempt %d", ofResult(e), e.GetAttempt())
	}
	if e.GetActor() != "" {
		text += " " + role(e) + " " + e.GetActor()
	}
	if reason := words.Why(e); reason != "" {
		text += ": " + reason
	}
	return text
}

// ofResult returns the words that stand between an adoption and its attempt.
func ofResult(e *lessorv1.HistoryEvent) string {
	if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_ADOPTED {
		return "result of "
	}
	return ""
}

// role returns the word in front of the actor: who did it, or whose report was refused.
func role(e *lessorv1.HistoryEvent) string {
	if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_REFUSED {
		return "from"
	}
	return "by"
}

func chunkText(c *lessorv1.FeedbackChunk) string {
	text := c.GetText()
	if data := c.GetData(); data != nil {
		text = words.Bytes(uint64(len(data))) + " of data"
	}
	var lines []string
	for line := range strings.SplitSeq(strings.TrimRight(text, "\n"), "\n") {
		lines = append(lines, c.GetChannel()+": "+line)
	}
	return strings.Join(lines, "\n")
}
