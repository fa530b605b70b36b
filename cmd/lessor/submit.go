package main

import (
	"io"
	"os"
	"strings"
	"time"

	"github.com/alecthomas/kong"
	"google.golang.org/grpc/status"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/words"
)

// submitCmd is lessor submit. The coordinator checks the values, so that the rules are in one
// place. This command refuses only what the coordinator takes for a flag that was left out, if the
// caller cannot have meant that: an explicit 0, and an empty key, which would promise nothing.
type submitCmd struct {
	remote `embed:""`

	Queue   string `required:"" placeholder:"NAME" help:"Queue that workers lease from."`
	Type    string `placeholder:"NAME" help:"Kind of work; workers say which types they handle."`
	Payload string `typed:"" type:"bytes" placeholder:"TEXT" xor:"payload" help:"Input for the worker; @FILE is the contents of a file, @- standard input."`
	Lines   string `typed:"" type:"file" placeholder:"FILE" xor:"payload" help:"Submit a task for each line of this file, with the line as its payload; - is standard input."`

	RunID          string            `typed:"" name:"run-id" placeholder:"ID" help:"Group the task with others of the same run."`
	TaskKey        string            `typed:"" placeholder:"NAME" help:"The task's own name within the run, for people."`
	AssetID        string            `typed:"" name:"asset-id" placeholder:"ID" help:"What the task makes or updates, for people."`
	IdempotencyKey string            `typed:"" type:"nonempty" placeholder:"KEY" help:"Idempotency key: a repeated submit with the same key returns the first task; one that differs is refused, and a span in --run-at or --deadline differs each time. With --lines, that of line N is KEY/N."`
	Label          map[string]string `placeholder:"KEY=VALUE" mapsep:"none" help:"Label to filter on; a comma belongs to the value. Repeatable."`
	Priority       int32             `placeholder:"N" help:"Higher goes first within the queue; may be negative (0)."`
	RunAt          when              `placeholder:"TIME" help:"Not before this time: RFC 3339, or a span from now such as 10m."`
	Deadline       when              `placeholder:"TIME" help:"Fail the task at this time: RFC 3339, or a span from now (never)."`

	AttemptTimeout    time.Duration `type:"positive" placeholder:"DURATION" help:"Longest time of one attempt (no limit)."`
	StartTimeout      time.Duration `type:"positive" placeholder:"DURATION" help:"Longest time to wait for a worker (no limit)."`
	HeartbeatInterval time.Duration `type:"positive" placeholder:"DURATION" help:"How often the worker sends a heartbeat (30s)."`
	HeartbeatTimeout  time.Duration `type:"positive" placeholder:"DURATION" help:"How long a lease lives after a heartbeat (90s)."`
	CancelGrace       time.Duration `type:"positive" placeholder:"DURATION" help:"How long a cancelled worker may take to stop (30s)."`
	Retention         time.Duration `type:"positive" placeholder:"DURATION" help:"How long the task is kept after it ended (72h)."`
	ConcurrencyKey    string        `type:"nonempty" placeholder:"KEY" help:"Concurrency key: only a limited number of tasks with the same key are leased at a time."`
	ConcurrencyLimit  uint32        `type:"positive" placeholder:"N" help:"With --concurrency-key: how many tasks may be leased at a time (1); the smallest limit among the leased ones counts."`
	FairnessKey       string        `placeholder:"KEY" help:"Fairness key: tasks with different keys take turns within the queue; see lessor queue update --weight."`

	retryFlags     `embed:""`
	placementFlags `embed:""`
}

// Help is shown below the flags.
func (submitCmd) Help() string {
	return `Prints the id of the task, with --lines one for each line that is not empty. Settings that are left out take the coordinator's default, shown in parentheses.

Examples:
  lessor submit --queue mail --type welcome --payload '{"user": 7}'
  lessor submit --queue thumbs --payload @photo.jpg --max-attempts 1
  lessor submit --queue mail --lines addresses.txt --idempotency-key 2026-11
  lessor submit --queue backup --concurrency-key disk-1 --concurrency-limit 2
  lessor submit --queue train --require-feature avx512 --require-resource vram_gb=40
  lessor submit --queue reports --idempotency-key 2026-11 --run-at 2026-12-01T06:00:00Z`
}

func (c submitCmd) Run(a *app, line *kong.Context) error {
	if err := c.refuseIdle(line); err != nil {
		return err
	}
	spec, err := c.spec(a.in)
	if err != nil {
		return err
	}
	if c.Lines != "" {
		return c.submitLines(a, spec)
	}
	return c.with(a, func(cl *client) error {
		answer, err := cl.tasks.SubmitTask(a.ctx, &lessorv1.SubmitTaskRequest{Task: spec})
		if err != nil {
			return aboutPayload(err, spec)
		}
		id := answer.GetTask().GetTaskId()
		if !a.json && !answer.GetCreated() {
			a.note("the task was submitted before with this idempotency key; nothing new was created")
		} else if c.Payload == "" && hasUnread(a.in) {
			a.note("warning: the task has no payload, and standard input was not read; --payload @- sends it")
		}
		return unheard(a.answer(answer, id),
			"another submit without an idempotency key would make a second task", "task %s was submitted", id)
	})
}

func (c submitCmd) spec(stdin io.Reader) (*lessorv1.TaskSpec, error) {
	if c.RunAt.ago > 0 { // a time that has passed is accepted: a repeat of a submit has it
		return nil, fail(exitUsage, "leave it out to run the task at once", "--run-at: is %v ago", c.RunAt.ago)
	}
	payload, err := c.payload(stdin)
	if err != nil {
		return nil, err
	}
	spec := &lessorv1.TaskSpec{
		WorkspaceId:       c.Workspace,
		Queue:             c.Queue,
		Type:              c.Type,
		Payload:           payload,
		RunId:             c.RunID,
		TaskKey:           c.TaskKey,
		AssetId:           c.AssetID,
		IdempotencyKey:    c.IdempotencyKey,
		Priority:          c.Priority,
		RunAt:             c.RunAt.timestamp(),
		Deadline:          c.Deadline.timestamp(),
		AttemptTimeout:    span(c.AttemptTimeout),
		StartTimeout:      span(c.StartTimeout),
		RetryPolicy:       c.policy(),
		HeartbeatInterval: span(c.HeartbeatInterval),
		HeartbeatTimeout:  span(c.HeartbeatTimeout),
		CancelGrace:       span(c.CancelGrace),
		Labels:            c.Label,
		Retention:         span(c.Retention),
		ConcurrencyKey:    c.ConcurrencyKey,
		ConcurrencyLimit:  c.ConcurrencyLimit,
		FairnessKey:       c.FairnessKey,
	}
	return spec, c.apply(spec)
}

// payload returns the text of --payload; for @FILE, the contents of that file, and for @- standard
// input.
func (c submitCmd) payload(stdin io.Reader) ([]byte, error) {
	name, isFile := strings.CutPrefix(c.Payload, "@")
	switch {
	case !isFile:
		return []byte(c.Payload), nil
	case name == "-":
		return readPayload(stdin, "standard input")
	}
	f, err := os.Open(name)
	if err != nil {
		return nil, fail(exitUsage, "@ names a file; a text that begins with @ can come from standard input, @-", "--payload: %v", err)
	}
	defer func() { _ = f.Close() }()
	return readPayload(f, name)
}

// hasUnread reports whether standard input has something that the caller may have meant for the
// payload. It reads nothing and does not wait: a loop of a shell may have its own input there, and
// ssh, cron and docker leave a pipe there that stays open. So this is no reason to refuse a submit
// either.
func hasUnread(stdin io.Reader) bool {
	f, ok := stdin.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice == 0 && unreadBytes(f) > 0
}

const largeHint = "store it elsewhere and submit its name, or raise --limit-payload of lessor serve"

// readPayload reads all of r. It refuses more than maxInline bytes, which no coordinator accepts.
// The coordinator checks its own limit.
func readPayload(r io.Reader, name string) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(r, maxInline+1))
	if err != nil {
		return nil, fail(exitUsage, "", "--payload: %v", err)
	}
	if len(data) > maxInline {
		return nil, fail(exitUsage, "store it elsewhere and submit its name",
			"--payload: %s has more than the limit of %s", name, words.Bytes(maxInline))
	}
	return data, nil
}

// aboutPayload adds a hint to the error for a payload that is too large. If gRPC refused the whole
// message, before the coordinator checked any field, the error also names the payload.
func aboutPayload(err error, spec *lessorv1.TaskSpec) error {
	if _, limit, large := tooLarge(status.Convert(err)); large {
		return fail(exitUsage, largeHint, "task.payload: has %d bytes; the limit of a whole message is %s",
			len(spec.GetPayload()), limit)
	}
	if path, _ := detail.Field(status.Convert(err)); path == "task.payload" {
		f := explainStatus(err)
		f.hint = largeHint
		return f
	}
	return err
}
