package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/detail"
	"github.com/lessor-dev/lessor/internal/runner"
)

const (
	// A batch ends with the line that reaches one of these; both are below the default limits of a
	// coordinator (S7).
	maxSubmitBatch = 500
	maxSubmitBytes = 1 << 20
)

// lineSubmits submits a task for each line.
type lineSubmits struct {
	a     *app
	out   io.Writer
	tasks lessorv1.TaskServiceClient
	base  *lessorv1.TaskSpec // of each task, without its payload

	most           int   // tasks of a batch
	last           int64 // the last line that was submitted
	created, known int64
}

func newLineSubmits(a *app, tasks lessorv1.TaskServiceClient, base *lessorv1.TaskSpec) *lineSubmits {
	return &lineSubmits{a: a, out: &givingUp{to: a.out, app: a}, tasks: tasks, base: base, most: maxSubmitBatch}
}

// submitLines submits the lines of --lines in their order, and prints the ids of the tasks.
func (c submitCmd) submitLines(a *app, base *lessorv1.TaskSpec) error {
	in := io.NopCloser(a.in)
	if c.Lines != "-" {
		f, err := os.Open(c.Lines)
		if err != nil {
			return fail(exitUsage, "", "--lines: %v", err)
		}
		in = f
	}
	defer func() { _ = in.Close() }()
	defer a.catchSignals()() // so that the batch under way gets its answer, and its ids are printed
	return c.with(a, func(cl *client) error {
		l := newLineSubmits(a, cl.tasks, base)
		err := l.run(in)
		if l.known > 0 {
			a.note("%d submitted, %d were submitted before", l.created, l.known)
		} else {
			a.note("%d submitted", l.created)
		}
		return l.explained(err)
	}, runner.RefuseAtOnce)
}

// explained says which lines are submitted, and how to go on with the others.
func (l *lineSubmits) explained(err error) error {
	if err == nil || l.last == 0 && anyTryMayBeDone(err) {
		return err
	}
	f := *explain(err)
	if f.text != "" { // nobody reads the ids any more
		f.text += "; "
	}
	if l.last == 0 {
		f.text += "no line was submitted"
		return &f
	}
	f.text += fmt.Sprintf("lines up to %d are submitted", l.last)
	if anyTryMayBeDone(err) {
		f.text += ", and perhaps some more"
	}
	if l.base.GetIdempotencyKey() != "" {
		f.hint = "the same command submits only the others, as long as the lines are the same"
	} else {
		f.hint = strings.TrimPrefix(f.hint+"; with --idempotency-key, the same command would submit only the others", "; ")
	}
	return &f
}

func (l *lineSubmits) run(in io.Reader) error {
	ctx, stop := context.WithCancel(l.a.ctx)
	defer stop()
	lines := readLines(ctx, in)
	for {
		batch, end := l.gather(ctx, lines)
		if err := l.submit(batch); err != nil {
			return err
		}
		if end != nil {
			return withoutEOF(end)
		}
	}
}

func withoutEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// gather waits for a line, and takes with it those that were read while the batch before was under
// way: so a slow input has no line wait for the next, and a fast one makes large batches. end is
// the error with which the lines end, or ctx's cause.
func (l *lineSubmits) gather(ctx context.Context, in *lineInput) (batch []inputLine, end error) {
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	each := proto.Size(l.base)
	for size := 0; len(batch) < l.most && size < maxSubmitBytes; {
		var line inputLine
		if len(batch) == 0 {
			select {
			case line = <-in.lines:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		} else {
			select {
			case line = <-in.lines:
			default:
				return batch, nil
			}
		}
		if line.err != nil {
			return batch, line.err
		}
		in.room.Release(int64(len(line.text)))
		batch, size = append(batch, line), size+each+len(line.text)
	}
	return batch, nil
}

// submit submits a batch and prints the ids. If the coordinator takes only smaller ones
// (--limit-batch, or the quota of tasks), or has room only for those at present, it submits each
// half. For a single line the connection waits for room. A signal ends it before the next call.
func (l *lineSubmits) submit(batch []inputLine) error {
	if len(batch) == 0 {
		return nil
	}
	if stopped := context.Cause(l.a.ctx); stopped != nil {
		return stopped
	}
	answer, err := l.call(batch)
	noRoom := detail.NoRoom(err)
	if half := len(batch) / 2; half > 0 && (noRoom || detail.TooManyTasks(err)) {
		if !noRoom {
			l.most = min(l.most, len(batch)-half)
		}
		if err := l.submit(batch[:half]); err != nil {
			return err
		}
		return l.submit(batch[half:])
	}
	if stopped := context.Cause(l.a.ctx); err != nil && stopped != nil {
		return errors.Join(stopped, err)
	}
	if err != nil {
		return aboutLine(err, batch)
	}
	return l.tell(batch, answer.GetResults())
}

// call submits a batch. If the tasks have idempotency keys, it repeats the call while a coordinator
// that has answered before is away. A first signal only ends the repeats: if the call ended with
// it, nobody would know which tasks there are.
func (l *lineSubmits) call(batch []inputLine) (*lessorv1.BatchSubmitTasksResponse, error) {
	req := &lessorv1.BatchSubmitTasksRequest{}
	for _, line := range batch {
		req.Tasks = append(req.Tasks, l.spec(line))
	}
	for begun := time.Now(); ; {
		answer, err := l.tasks.BatchSubmitTasks(l.a.stopNow, req)
		if err == nil {
			return answer, nil
		}
		again := status.Code(err) == codes.Unavailable && l.base.GetIdempotencyKey() != "" && l.last != 0 &&
			time.Since(begun) <= callTimeout
		if !again || !l.pause() {
			return nil, err
		}
	}
}

// pause waits before a call is repeated. It returns false if a signal came.
func (l *lineSubmits) pause() bool {
	select {
	case <-time.After(500 * time.Millisecond):
		return true
	case <-l.a.ctx.Done():
		return false
	}
}

func (l *lineSubmits) spec(line inputLine) *lessorv1.TaskSpec {
	spec := proto.CloneOf(l.base)
	spec.Payload = line.text
	if key := spec.GetIdempotencyKey(); key != "" {
		spec.IdempotencyKey = fmt.Sprintf("%s/%d", key, line.number)
	}
	return spec
}

// tell counts the tasks of a batch and prints their ids.
func (l *lineSubmits) tell(batch []inputLine, results []*lessorv1.SubmitResult) error {
	l.last = batch[len(batch)-1].number
	var text bytes.Buffer
	for _, result := range results {
		if result.GetCreated() {
			l.created++
		} else {
			l.known++
		}
		if !l.a.json {
			fmt.Fprintln(&text, result.GetTaskId())
		} else if err := printJSON(&text, result); err != nil {
			return err
		}
	}
	_, err := l.out.Write(text.Bytes())
	return err
}

// aboutLine names the line in the error of a batch.
func aboutLine(err error, batch []inputLine) error {
	i, problem, ok := detail.BadTask(err, len(batch))
	if !ok {
		return err
	}
	f := *explain(err)
	f.text = fmt.Sprintf("line %d: %s", batch[i].number, problem)
	if strings.HasPrefix(problem, "payload: ") {
		f.hint = largeHint
	}
	return &f
}
