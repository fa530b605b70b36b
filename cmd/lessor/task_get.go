package main

import (
	"fmt"
	"io"
	"strings"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// taskGetCmd is lessor task get.
type taskGetCmd struct {
	server    `embed:""`
	TaskID    string `arg:"" help:"Task to show."`
	Output    bool   `xor:"part" help:"Write only the output of the task, unchanged."`
	Payload   bool   `xor:"part" help:"Write only the payload of the task, unchanged."`
	Discarded uint32 `xor:"part" type:"positive" placeholder:"ATTEMPT" help:"Write only the result that this attempt reported too late, unchanged."`
}

// Help is shown below the flags.
func (taskGetCmd) Help() string {
	return `Examples:
  lessor task get t0000200000000001
  lessor task get t0000200000000001 --output > result.bin
  lessor task get t0000200000000001 --json | jq .task.state`
}

func (c taskGetCmd) Run(a *app) error {
	return c.with(a, func(cl *client) error {
		answer, err := cl.tasks.GetTask(a.ctx, &lessorv1.GetTaskRequest{TaskId: c.TaskID})
		if err != nil {
			return withID(c.TaskID, err)
		}
		switch {
		case c.Output:
			err = writeOutput(a.out, answer.GetTask())
		case c.Discarded != 0:
			err = writeDiscarded(a.out, answer.GetTask(), c.Discarded)
		case c.Payload:
			_, err = a.out.Write(answer.GetTask().GetSpec().GetPayload())
		case a.json:
			err = printJSON(a.out, answer)
		default:
			err = printTask(a.out, answer.GetTask())
		}
		return err
	})
}

// writeOutput writes the output of a task. It returns an error if there is no output yet, or if it
// is stored elsewhere.
func writeOutput(w io.Writer, t *lessorv1.Task) error {
	if t.GetState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
		hint := fmt.Sprintf("\"lessor task watch %s\" waits for its end", t.GetTaskId())
		if t.GetFinishedAt() != nil {
			hint = fmt.Sprintf("\"lessor task explain %s\" tells why", t.GetTaskId())
		}
		return fail(exitFailed, hint, "%s is %s; it has no output", t.GetTaskId(), words.Name(t.GetState()))
	}
	return writeResult(w, t.GetTaskId(), t.GetOutput(), t.GetArtifacts())
}

// writeResult writes an output, or returns an error if the output is stored elsewhere. what names
// the result in the error.
func writeResult(w io.Writer, what string, output []byte, artifacts []*lessorv1.Artifact) error {
	var elsewhere []string
	for _, artifact := range artifacts {
		if !artifact.GetInline() {
			elsewhere = append(elsewhere, words.Artifact(artifact))
		}
	}
	if len(output) == 0 && len(elsewhere) > 0 {
		return fail(exitFailed, "read it there", "%s has its output elsewhere: %s", what, strings.Join(elsewhere, "; "))
	}
	_, err := w.Write(output)
	return err
}

func printTask(w io.Writer, t *lessorv1.Task) error {
	d := newDetails(w)
	d.addState(t)
	d.addSpec(t.GetSpec())
	d.addPlacement(t.GetSpec())
	d.addTrace(t)
	d.addLease(t)
	d.addResult(t)
	d.addFeedback(t)
	d.addDiscarded(t)
	if err := d.flush(); err != nil {
		return err
	}
	return printHistory(w, t)
}

func (d details) addState(t *lessorv1.Task) {
	d.add("task", t.GetTaskId())
	d.add("state", words.Name(t.GetState()))
	if t.GetReason() != lessorv1.Reason_REASON_UNSPECIFIED {
		d.add("reason", words.Name(t.GetReason()))
	}
	if t.GetQuarantined() {
		d.add("quarantined", "yes: its workers were lost too often")
	}
	d.add("attempt", words.Attempts(t))
	d.add("created", clock(t.GetCreatedAt()))
	d.add("due", clock(t.GetRetryAt()))
	d.add("finished", clock(t.GetFinishedAt()))
}

func (d details) addSpec(s *lessorv1.TaskSpec) {
	d.add("workspace", s.GetWorkspaceId())
	d.add("queue", s.GetQueue())
	d.add("type", s.GetType())
	d.add("run", s.GetRunId())
	d.add("task key", s.GetTaskKey())
	d.add("asset", s.GetAssetId())
	d.add("idempotency key", s.GetIdempotencyKey())
	if s.GetPriority() != 0 {
		d.add("priority", fmt.Sprint(s.GetPriority()))
	}
	if s.GetConcurrencyKey() != "" {
		d.add("concurrency key", fmt.Sprintf("%s, at most %d at a time",
			s.GetConcurrencyKey(), s.GetConcurrencyLimit()))
	}
	d.add("fairness key", s.GetFairnessKey())
	d.add("deadline", clock(s.GetDeadline()))
	addEach(d, "label", "%s=%s", s.GetLabels())
	d.add("payload", preview(s.GetPayload()))
}

func (d details) addLease(t *lessorv1.Task) {
	if l := t.GetLease(); l != nil {
		d.add("worker", l.GetWorkerId())
		d.add("fencing token", fmt.Sprint(l.GetFencingToken()))
		d.add("started", clock(l.GetStartedAt()))
		d.add("heartbeat", clock(l.GetHeartbeatAt()))
		d.add("lease ends", clock(l.GetExpiresAt()))
	}
	d.add("cancel asked", strings.TrimSpace(clock(t.GetCancelRequestedAt())+" "+t.GetCancelReason()))
}

func (d details) addResult(t *lessorv1.Task) {
	if e := t.GetError(); e != nil {
		d.add(words.ErrorLabel(t), words.Name(e.GetCategory())+": "+words.ErrorMessage(t))
		d.add("stack", stackOf(t))
	}
	d.add("stopped during", t.GetCancelledDuringPhase())
	if partial := t.GetPartialProgress(); len(partial) > 0 {
		d.add("partial progress", preview(partial))
	}
	if t.GetState() == lessorv1.TaskState_TASK_STATE_COMPLETED {
		d.add("output", preview(t.GetOutput()))
	}
	for _, artifact := range t.GetArtifacts() {
		d.add("artifact", words.Artifact(artifact))
	}
	d.addGauges(t.GetMetrics())
}

// preview returns the beginning of a text, or the size of data that is not text. --output and
// --payload show all of it.
func preview(data []byte) string {
	const shown, lines = 200, 10
	size := words.Bytes(uint64(len(data)))
	switch {
	case len(data) == 0:
		return "empty"
	case !utf8.Valid(data):
		return size + " that are not text"
	}
	begin := strings.ToValidUTF8(string(data[:min(len(data), shown)]), "")
	if all := strings.SplitAfter(strings.TrimRight(begin, "\n"), "\n"); len(all) > lines {
		begin = strings.TrimRight(strings.Join(all[:lines], ""), "\n")
	} else if len(data) <= shown {
		return string(data)
	}
	return size + ": " + begin + "…"
}

func printHistory(w io.Writer, t *lessorv1.Task) error {
	if len(t.GetHistory()) == 0 {
		return nil
	}
	head := "\n"
	if n := t.GetHistoryDropped(); n > 0 {
		head += fmt.Sprintf("%d older events are no longer kept\n", n)
	}
	if _, err := io.WriteString(w, head); err != nil {
		return err
	}
	rows := newTable(w, inZone("AT"), "EVENT", "STATE", "ATTEMPT", "BY", "WHY")
	for _, e := range t.GetHistory() {
		rows.row(historyCells(e)...)
	}
	return rows.flush()
}

func historyCells(e *lessorv1.HistoryEvent) []string {
	return []string{
		stamp(e.GetAt()),
		words.Event(e),
		words.Name(e.GetTaskState()),
		fmt.Sprint(e.GetAttempt()),
		e.GetActor(),
		words.Why(e),
	}
}
