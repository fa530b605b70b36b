package runner

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/execworker"
	"github.com/lessor-dev/lessor/internal/words"
)

// printer prints every line that has ended, and each line only once.
type printer struct {
	job    *Job
	tasks  lessorv1.TaskServiceClient
	screen *Screen
	tally  *tally
	// record writes a task instead of its output; nil: the output is printed.
	record func(io.Writer, *lessorv1.Task, string) error

	printed   *marks
	unprinted int64 // see Summary
}

// errGone means that the coordinator does not know the task any more.
var errGone = errors.New("the task is gone")

// get returns a task with its output, or errGone.
func (p *printer) get(ctx context.Context, taskID string) (*lessorv1.Task, error) {
	var answer *lessorv1.GetTaskResponse
	err := retryWhileAway(ctx, func() (err error) {
		answer, err = p.tasks.GetTask(ctx, &lessorv1.GetTaskRequest{TaskId: taskID})
		return err
	})
	if status.Code(err) == codes.NotFound {
		return nil, errGone
	}
	return answer.GetTask(), err
}

// print prints a task that has ended, unless it was printed before. It checks the state of the task
// and not the event, because somebody may have retried the task since the event.
func (p *printer) print(task *lessorv1.Task) error {
	if !words.Final(task.GetState()) || !p.printed.mark(LineOf(task)) {
		return nil
	}
	p.tally.print(task)
	if err := p.write(task); err != nil {
		return err
	}
	if p.job.temporary && p.record == nil {
		// nobody will print it again, and the others need the room
		return p.job.removeOutputs(task, func(uint32) bool { return true })
	}
	return p.forget(task)
}

// write writes the output or the record of a task. If that fails, the screen knows that its output
// has a gap.
func (p *printer) write(task *lessorv1.Task) error {
	switch {
	case p.record != nil:
		return p.screen.output(func(w io.Writer) error { return p.record(w, task, p.job.Spool().Path(lastOutput(task))) })
	case task.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED:
		return p.success(task)
	}
	return p.failure(task)
}

// forget removes the outputs of earlier attempts of a task from the spool, except for one that an
// operator has adopted.
func (p *printer) forget(task *lessorv1.Task) error {
	return p.job.removeOutputs(task, func(attempt uint32) bool {
		return attempt < task.GetAttempt() &&
			attempt != task.GetAdoptedAttempt()
	})
}

// removeOutputs removes the outputs of some attempts of a task from the spool.
func (j *Job) removeOutputs(task *lessorv1.Task, of func(attempt uint32) bool) error {
	for attempt := uint32(1); attempt <= task.GetAttempt(); attempt++ {
		if !of(attempt) {
			continue
		}
		if err := j.Spool().Remove(execworker.SpoolName(task.GetTaskId(), attempt)); err != nil {
			return err
		}
	}
	return nil
}

// LineOf returns the number of a task's line, or 0 if the task is none of the lines of its run. The
// task key does not tell: commands may submit tasks with the run id and task key of their own line.
func LineOf(task *lessorv1.Task) int64 {
	spec := task.GetSpec()
	number, ours := strings.CutPrefix(spec.GetIdempotencyKey(), keyPrefix(spec.GetRunId()))
	line, err := strconv.ParseInt(number, 10, 64)
	if err != nil || !ours {
		return 0
	}
	return line
}

func (p *printer) success(task *lessorv1.Task) error {
	for _, artifact := range task.GetArtifacts() {
		if artifact.GetInline() {
			continue
		}
		found, err := p.file(artifact.GetResourceId())
		if err != nil {
			return err
		}
		if !found {
			p.unprinted++
			p.screen.Note("line %d: its output is not on this machine: %s on worker %q",
				LineOf(task), artifact.GetResourceId(), artifact.GetWorkerId())
		}
	}
	return p.screen.output(func(w io.Writer) error {
		_, err := w.Write(task.GetOutput())
		return err
	})
}

// failure prints the output of the last attempt, as a shell would have done, and a note that says
// why the attempt failed.
func (p *printer) failure(task *lessorv1.Task) error {
	if _, err := p.file(lastOutput(task)); err != nil {
		return err
	}
	p.screen.Note("line %d %s: %s", LineOf(task), strings.ToLower(words.Name(task.GetState())), whyFailed(task))
	return nil
}

// lastOutput returns the name of the file in the spool that has the output of the last attempt of a
// failed task.
func lastOutput(task *lessorv1.Task) string {
	return execworker.SpoolName(task.GetTaskId(), task.GetAttempt())
}

// file copies a file of the spool to the output, if it exists.
func (p *printer) file(name string) (found bool, err error) {
	err = p.screen.output(func(w io.Writer) error {
		f, err := os.Open(p.job.Spool().Path(name))
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer func() { _ = f.Close() }()
		found = true
		_, err = io.Copy(w, f)
		return err
	})
	return found, err
}

// quoteLine returns the line of a task; of a long one its beginning, and a mark that more follows.
func quoteLine(task *lessorv1.Task) string {
	const shown = 60
	line := []rune(strings.ToValidUTF8(string(task.GetSpec().GetPayload()), "\uFFFD"))
	if len(line) <= shown {
		return fmt.Sprintf("%q", string(line))
	}
	return fmt.Sprintf("%q…", string(line[:shown])) // outside of the quotes: the line may have such a mark
}

func whyFailed(task *lessorv1.Task) string {
	text := quoteLine(task)
	if task.GetState() == lessorv1.TaskState_TASK_STATE_CANCELLED && task.GetCancelRequestedAt() != nil {
		return fmt.Sprintf("%s: %s (attempt %d)", text, whoCancelled(task), task.GetAttempt())
	}
	if message := task.GetError().GetMessage(); message != "" {
		text += ": " + message
	}
	if r := task.GetReason(); r != lessorv1.Reason_REASON_UNSPECIFIED {
		text += ": " + words.Name(r)
	}
	return fmt.Sprintf("%s (attempt %d)", text, task.GetAttempt())
}

// whoCancelled says who cancelled a task, and the reason that they gave. The error of its last
// attempt only repeats the reason.
func whoCancelled(task *lessorv1.Task) string {
	by := "somebody"
	for _, e := range task.GetHistory() { // which may have lost its beginning
		if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_CANCEL_REQUESTED && e.GetActor() != "" {
			by = e.GetActor()
		}
	}
	if reason := task.GetCancelReason(); reason != "" {
		return fmt.Sprintf("by %s: %s", by, reason)
	}
	return "by " + by
}

// Summary is how a run ended.
type Summary struct {
	Lines     int64 `json:"lines"`
	Done      int64 `json:"done"`
	Failed    int64 `json:"failed"`    // cancelled ones included
	Retried   int64 `json:"retried"`   // attempts beyond the first of each line
	Missing   int64 `json:"missing"`   // lines whose tasks somebody deleted
	Unprinted int64 `json:"unprinted"` // lines that are done, but whose outputs are on another worker
	Left      int64 `json:"left"`      // lines that are not known to have ended; none, unless the run was stopped
	Stopped   bool  `json:"stopped"`   // it was stopped, by a signal for example, before it could print all lines
}

// summary says how the lines ended that count as printed.
func (p *printer) summary() Summary {
	p.tally.mu.Lock()
	defer p.tally.mu.Unlock()
	c := p.tally.mu.printed
	return Summary{Done: c.done, Failed: c.failed, Retried: c.retried, Unprinted: p.unprinted}
}

// OK reports whether every line is done and printed.
func (s Summary) OK() bool { return s.Done == s.Lines && s.Unprinted == 0 }

// CountLines returns a number of lines in words.
func CountLines(n int64) string {
	if n == 1 {
		return "1 line"
	}
	return fmt.Sprintf("%d lines", n)
}

// String returns the summary as one line for people.
func (s Summary) String() string {
	if s.Stopped {
		return fmt.Sprintf("%s: %d done, %d failed, %d left", CountLines(s.Lines), s.Done, s.Failed, s.Left)
	}
	text := fmt.Sprintf("%s: %d done, %d failed, %d retried", CountLines(s.Lines), s.Done, s.Failed, s.Retried)
	if s.Missing > 0 {
		text += fmt.Sprintf(", %d deleted by somebody", s.Missing)
	}
	if s.Unprinted > 0 {
		text += fmt.Sprintf(", %d without their output", s.Unprinted)
	}
	return text
}
