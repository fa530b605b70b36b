package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

const (
	// maxSubmitLine is the longest line, in bytes. Only the coordinator knows its limit of a payload.
	maxSubmitLine = 1 << 20
	// A batch ends with the line that reaches one of these; both are below the default limits of a coordinator (S7).
	maxSubmitBatch = 500
	maxSubmitBytes = 1 << 20
)

// lineSubmits submits a task for each line.
type lineSubmits struct {
	a     *app
	tasks lessorv1.TaskServiceClient
	base  *lessorv1.TaskSpec // of each task, without its payload

	last           int64 // the last line that was submitted
	created, known int64
}

// inputLine is a line of the input, or the error with which the input ends: io.EOF, if all is well.
type inputLine struct {
	number int64
	text   []byte
	err    error
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
	return c.with(a, func(cl *client) error {
		l := &lineSubmits{a: a, tasks: cl.tasks, base: base}
		err := l.run(in)
		if l.known > 0 {
			a.note("%d submitted, %d were submitted before", l.created, l.known)
		} else {
			a.note("%d submitted", l.created)
		}
		return l.explained(err)
	})
}

// explained says which lines are submitted, and how to go on with the others.
func (l *lineSubmits) explained(err error) error {
	if err == nil || l.last == 0 {
		return err
	}
	f := *explain(err)
	f.text += fmt.Sprintf("; lines up to %d are submitted", l.last)
	if f.code == exitUnavailable {
		f.text += ", and perhaps some more"
	}
	if l.base.GetIdempotencyKey() != "" {
		f.hint = "the same command submits only the others, as long as the lines are the same"
	} else if f.hint == "" {
		f.hint = "with --idempotency-key, the same command would submit only the others"
	}
	return &f
}

func (l *lineSubmits) run(in io.Reader) error {
	ctx, stop := context.WithCancel(l.a.ctx)
	defer stop()
	lines := readLines(ctx, in)
	for {
		batch, end := gather(ctx, lines)
		if err := l.submit(ctx, batch); err != nil {
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

// readLines reads lines until the input or ctx ends. It leaves out empty ones. Only a goroutine of its own can wait for a terminal or a pipe.
func readLines(ctx context.Context, in io.Reader) <-chan inputLine {
	lines := make(chan inputLine, maxSubmitBatch)
	send := func(line inputLine) bool {
		select {
		case lines <- line:
			return true
		case <-ctx.Done():
			return false
		}
	}
	go func() {
		scan := bufio.NewScanner(in)
		scan.Buffer(nil, maxSubmitLine+1)
		scan.Split(splitLines)
		number := int64(0)
		for scan.Scan() {
			if number++; len(scan.Bytes()) > 0 && !send(inputLine{number: number, text: bytes.Clone(scan.Bytes())}) {
				return
			}
		}
		send(inputLine{err: endOfLines(scan.Err(), number)})
	}()
	return lines
}

// splitLines splits at newlines and nothing else: bufio.ScanLines would take a carriage return out of the payload.
func splitLines(data []byte, atEOF bool) (advance int, line []byte, err error) {
	if end := bytes.IndexByte(data, '\n'); end >= 0 {
		return end + 1, data[:end], nil
	}
	if atEOF && len(data) > 0 {
		return len(data), data, nil
	}
	return 0, nil, nil
}

func endOfLines(err error, read int64) error {
	switch {
	case err == nil:
		return io.EOF
	case errors.Is(err, bufio.ErrTooLong):
		return fail(exitUsage, "write the data to files and submit their names", "line %d has more than %d bytes", read+1, maxSubmitLine)
	}
	return fail(exitUsage, "", "--lines: %v", err)
}

// gather waits for a line, and takes with it those that were read while the batch before was under way: so a slow input has no line wait for the next, and
// a fast one makes large batches. end is the error with which the lines end, or ctx's cause.
func gather(ctx context.Context, lines <-chan inputLine) (batch []inputLine, end error) {
	for size := 0; len(batch) < maxSubmitBatch && size < maxSubmitBytes; {
		var line inputLine
		if len(batch) == 0 {
			select {
			case line = <-lines:
			case <-ctx.Done():
				return nil, context.Cause(ctx)
			}
		} else {
			select {
			case line = <-lines:
			default:
				return batch, nil
			}
		}
		if line.err != nil {
			return batch, line.err
		}
		batch, size = append(batch, line), size+len(line.text)
	}
	return batch, nil
}

// submit submits a batch, all or none of it. If the coordinator takes only smaller ones (--limit-batch), it submits each half.
func (l *lineSubmits) submit(ctx context.Context, batch []inputLine) error {
	if len(batch) == 0 {
		return nil
	}
	answer, err := l.call(ctx, batch)
	if half := len(batch) / 2; half > 0 && tooManyTasks(err) {
		if err := l.submit(ctx, batch[:half]); err != nil {
			return err
		}
		return l.submit(ctx, batch[half:])
	}
	if err != nil {
		return aboutLine(err, batch)
	}
	for i, result := range answer.GetResults() {
		if err := l.tell(batch[i], result); err != nil {
			return err
		}
	}
	return nil
}

// call submits a batch. If the tasks have idempotency keys, it repeats the call while a coordinator that has answered before is away.
func (l *lineSubmits) call(ctx context.Context, batch []inputLine) (*lessorv1.BatchSubmitTasksResponse, error) {
	req := &lessorv1.BatchSubmitTasksRequest{}
	for _, line := range batch {
		req.Tasks = append(req.Tasks, l.spec(line))
	}
	const pause = 500 * time.Millisecond
	for begun := time.Now(); ; {
		answer, err := l.tasks.BatchSubmitTasks(ctx, req)
		if status.Code(err) != codes.Unavailable || l.base.GetIdempotencyKey() == "" || l.last == 0 || time.Since(begun) > callTimeout {
			return answer, err
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
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

func (l *lineSubmits) tell(line inputLine, result *lessorv1.SubmitResult) (err error) {
	l.last = line.number
	if result.GetCreated() {
		l.created++
	} else {
		l.known++
	}
	if l.a.json {
		return printJSON(l.a.out, result)
	}
	_, err = fmt.Fprintln(l.a.out, result.GetTaskId())
	return err
}

func tooManyTasks(err error) bool {
	f := explainStatus(err)
	return f != nil && f.code == exitUsage && strings.HasPrefix(f.text, "tasks: ")
}

// fieldOfTask begins the path of a field of a task of a batch.
var fieldOfTask = regexp.MustCompile(`^tasks\[(\d+)\]\.`)

// aboutLine names the line in the error of a batch; several lines may be wrong, and often all are in the same way.
func aboutLine(err error, batch []inputLine) error {
	f := *explain(err)
	first, _, _ := strings.Cut(f.text, "\n")
	found := fieldOfTask.FindStringSubmatch(first)
	if found == nil {
		return err
	}
	i, _ := strconv.Atoi(found[1])
	f.text = fmt.Sprintf("line %d: %s", batch[min(i, len(batch)-1)].number, first[len(found[0]):])
	if strings.Contains(f.text, ": payload: has ") {
		f.hint = largeHint
	}
	return &f
}
