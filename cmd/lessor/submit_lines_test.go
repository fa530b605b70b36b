package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// batches is a TaskService that is away at some calls, and takes batches up to a limit.
type batches struct {
	lessorv1.TaskServiceClient
	away   map[int]bool // by number of the call, from 1
	most   int
	quota  int // of tasks that have not ended; 0: none
	ends   int // tasks that end while a single one waits for room
	open   int // tasks
	calls  int
	sizes  []int // of the batches that it has taken
	bytes  int   // of the largest
	keys   []string
	during func() // is called in each call
}

func (b *batches) BatchSubmitTasks(
	ctx context.Context, req *lessorv1.BatchSubmitTasksRequest, _ ...grpc.CallOption,
) (*lessorv1.BatchSubmitTasksResponse, error) {
	if b.during != nil {
		b.during()
	}
	if ctx.Err() != nil {
		return nil, status.FromContextError(ctx.Err()).Err()
	}
	if b.calls++; b.away[b.calls] {
		return nil, status.Error(codes.Unavailable, "away")
	}
	if len(req.GetTasks()) > b.most {
		return nil, refusal.Status(&lease.FieldError{Field: "tasks", Problem: "are too many"})
	}
	if b.quota > 0 && len(req.GetTasks()) == 1 && b.open == b.quota { // the connection repeats the call
		time.Sleep(callTimeout)
		b.open -= b.ends
	}
	if b.quota > 0 && b.open+len(req.GetTasks()) > b.quota {
		return nil, refusal.Status(&quota.Error{
			Limit: quota.Tasks, Of: "tenant", Most: fmt.Sprint(b.quota),
			Used: uint64(b.open), Wait: time.Second,
		})
	}
	b.open += len(req.GetTasks())
	b.sizes, b.bytes = append(b.sizes, len(req.GetTasks())), max(b.bytes, proto.Size(req))
	answer := &lessorv1.BatchSubmitTasksResponse{}
	for _, spec := range req.GetTasks() {
		b.keys = append(b.keys, spec.GetIdempotencyKey())
		answer.Results = append(answer.Results,
			&lessorv1.SubmitResult{TaskId: "id-of-" + string(spec.GetPayload()), Created: true})
	}
	return answer, nil
}

func linesTo(n int) string {
	var text strings.Builder
	for i := range n {
		fmt.Fprintln(&text, i+1)
	}
	return text.String()
}

func submitLinesTo(t *testing.T, tasks lessorv1.TaskServiceClient, key string, lines int) (out string, err error) {
	t.Helper()
	var printed bytes.Buffer
	a := &app{streams: streams{out: &printed}, ctx: t.Context(), stopNow: t.Context()}
	l := newLineSubmits(a, tasks, &lessorv1.TaskSpec{Queue: "q", IdempotencyKey: key})
	err = l.explained(l.run(strings.NewReader(linesTo(lines))))
	return printed.String(), err
}

// A coordinator that is restarted in the middle has its batch again if the tasks have keys;
// otherwise nobody knows whether that would make second tasks.
func TestSubmitLinesOutlivesARestartOfTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &batches{most: 10, away: map[int]bool{}}
		for call := 50; call < 60; call++ { // 5 s
			tasks.away[call] = true
		}
		out, err := submitLinesTo(t, tasks, "k", 2000)
		if err != nil || strings.Count(out, "\n") != 2000 || !strings.HasSuffix(out, "\nid-of-1999\nid-of-2000\n") {
			t.Errorf("error %v after %d ids, want 2000 in their order", err, strings.Count(out, "\n"))
		}
		if len(tasks.keys) != 2000 || tasks.keys[0] != "k/1" || tasks.keys[1999] != "k/2000" {
			t.Errorf("%d keys, want k/1 to k/2000", len(tasks.keys))
		}
	})
}

func TestSubmitLinesWithoutKeysIsNotRepeated(t *testing.T) {
	for name, key := range map[string]string{"no key": "", "away from the beginning": "k"} {
		synctest.Test(t, func(t *testing.T) {
			tasks := &batches{most: maxSubmitBatch, away: map[int]bool{1: key != "", 2: true}}
			out, err := submitLinesTo(t, tasks, key, 3*maxSubmitBatch)
			var f *failure
			if !errors.As(err, &f) && status.Code(err) != codes.Unavailable || tasks.calls > 2 {
				t.Errorf("%s: error %v after %d calls and\n%s", name, err, tasks.calls, out)
			}
			if told := strings.Count(out, "\n"); told > 0 && !strings.Contains(f.text, fmt.Sprintf("; lines up to %d are submitted, and perhaps some more", told)) {
				t.Errorf("%s: error %q, want the number of the last line, %d", name, f.text, told)
			}
		})
	}
}

// X5: where the tenant's quota of tasks has no room for a batch, the part is submitted for which it
// has, and the rest as tasks end. If none ends for as long as a call waits, the error says which
// lines are submitted.
func TestSubmitLinesUpToTheQuotaOfTasks(t *testing.T) {
	for ends, want := range map[int]struct {
		lines   int
		sizes   []int
		refused bool
	}{
		4: {lines: 10, sizes: []int{2, 1, 1, 1, 2, 1, 2}},
		0: {lines: 3, sizes: []int{2, 1}, refused: true},
	} {
		synctest.Test(t, func(t *testing.T) {
			tasks := &batches{most: 10, quota: 5, open: 2, ends: ends}
			var out bytes.Buffer
			l := newLineSubmits(&app{streams: streams{out: &out}, ctx: t.Context(), stopNow: t.Context()}, tasks,
				&lessorv1.TaskSpec{Queue: "q"})
			var batch []inputLine
			var told strings.Builder
			for i := range 10 {
				batch = append(batch, inputLine{number: int64(i + 1), text: fmt.Append(nil, i+1)})
				if i < want.lines {
					fmt.Fprintf(&told, "id-of-%d\n", i+1)
				}
			}
			err := l.explained(l.submit(batch))
			if out.String() != told.String() || !slices.Equal(tasks.sizes, want.sizes) || (err != nil) != want.refused {
				t.Errorf("%d tasks end: batches of %d, error %v, and\n%swant batches of %d",
					ends, tasks.sizes, err, &out, want.sizes)
			}
			if err == nil {
				return
			}
			f := explain(err)
			const hint = "; with --idempotency-key, the same command would submit only the others"
			if !strings.HasSuffix(f.text, "; lines up to 3 are submitted") || !strings.HasSuffix(f.hint, hint) {
				t.Errorf("error %q, hint %q", f.text, f.hint)
			}
		})
	}
}

// A signal lets the batch under way get its answer, so that it is known which tasks there are; a
// second one does not.
func TestSubmitLinesStopsAfterTheBatch(t *testing.T) {
	for signals, unsure := range map[int]string{1: "", 2: ", and perhaps some more"} {
		synctest.Test(t, func(t *testing.T) {
			interrupted := &interruptedError{signal: os.Interrupt}
			soft, stop := context.WithCancelCause(t.Context())
			hard, kill := context.WithCancelCause(t.Context())
			tasks := &batches{most: maxSubmitBatch}
			tasks.during = func() {
				if len(tasks.sizes) < 3 {
					return
				}
				if stop(interrupted); signals > 1 {
					kill(interrupted)
				}
			}
			var out bytes.Buffer
			l := newLineSubmits(&app{streams: streams{out: &out}, ctx: soft, stopNow: hard}, tasks,
				&lessorv1.TaskSpec{Queue: "q"})
			f := explain(l.explained(l.run(strings.NewReader(linesTo(10 * maxSubmitBatch)))))
			want := fmt.Sprintf("stopped by a signal: interrupt; lines up to %d are submitted%s", len(tasks.keys), unsure)
			if told := strings.Count(out.String(), "\n"); f.text != want || f.code != 130 || told != len(tasks.keys) || len(tasks.sizes) != 5-signals {
				t.Errorf("%d signals: exit code %d, error %q after %d batches and %d ids, want %q",
					signals, f.code, f.text, len(tasks.sizes), told, want)
			}
		})
	}
}

// A coordinator that stays away ends it after a while, and a signal at once.
func TestSubmitLinesGivesUp(t *testing.T) {
	for signal, within := range map[bool]time.Duration{false: callTimeout + time.Second, true: 2 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			ctx, stop := context.WithCancelCause(t.Context())
			defer stop(nil)
			if signal {
				time.AfterFunc(within, func() { stop(&interruptedError{signal: os.Interrupt}) })
			}
			tasks := &batches{most: 1, away: map[int]bool{}}
			for call := 2; call < 1000; call++ {
				tasks.away[call] = true
			}
			l := newLineSubmits(&app{streams: streams{out: io.Discard}, ctx: ctx, stopNow: t.Context()}, tasks,
				&lessorv1.TaskSpec{Queue: "q", IdempotencyKey: "k"})
			l.most = 1
			began := time.Now()
			f := explain(l.explained(l.run(strings.NewReader(linesTo(2)))))
			if wrong := (f.code == 130) != signal; wrong || l.last != 1 || time.Since(began) > within {
				t.Errorf("signal %t: exit code %d after %v and %d lines", signal, f.code, time.Since(began), l.last)
			}
		})
	}
}

// A refusal names the line, whose number is not that of the task in the batch.
func TestRefusedLine(t *testing.T) {
	for field, hint := range map[string]string{"payload": largeHint, "queue": ""} {
		err := refusal.Status(&lease.FieldError{Field: "tasks[1]." + field, Problem: "is bad"})
		f := explain(aboutLine(err, []inputLine{{number: 4}, {number: 9}}))
		if want := "line 9: " + field + ": is bad"; f.text != want || f.hint != hint || f.code != exitUsage {
			t.Errorf("exit code %d, %q, hint %q, want 2, %q, %q", f.code, f.text, f.hint, want, hint)
		}
	}
}

// The error says up to which line all are submitted, also if none is: a batch with a refused line
// is refused whole, so the number of that line does not tell.
func TestErrorSaysWhichLinesAreSubmitted(t *testing.T) {
	refused := refusal.Status(&lease.FieldError{Field: "tasks[1].payload", Problem: "is bad"})
	for _, c := range []struct {
		last int64
		err  error
		want string
	}{
		{0, aboutLine(refused, []inputLine{{number: 1}, {number: 2}}), "line 2: payload: is bad; no line was submitted"},
		{7, aboutLine(refused, []inputLine{{number: 8}, {number: 9}}), "line 9: payload: is bad; lines up to 7 are submitted"},
		{0, &interruptedError{signal: os.Interrupt}, "stopped by a signal: interrupt; no line was submitted"},
		// nobody knows
		{0, status.Error(codes.Unavailable, "away"), explain(status.Error(codes.Unavailable, "away")).text},
		{0, nil, ""},
	} {
		l := newLineSubmits(&app{streams: streams{out: io.Discard}}, nil, &lessorv1.TaskSpec{})
		l.last = c.last
		text := ""
		if err := l.explained(c.err); err != nil {
			text = explain(err).text
		}
		if text != c.want {
			t.Errorf("%v after line %d: %q, want %q", c.err, c.last, text, c.want)
		}
	}
}

// A second signal ends it even if nobody reads the ids.
func TestSubmitLinesThatNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		stopped, stop := context.WithCancelCause(t.Context())
		out, ids := io.Pipe()
		l := newLineSubmits(&app{streams: streams{out: ids}, ctx: stopped, stopNow: stopped}, &batches{most: 2},
			&lessorv1.TaskSpec{Queue: "q"})
		time.AfterFunc(time.Minute, func() { stop(&interruptedError{signal: os.Interrupt}) })
		f := explain(l.explained(l.run(strings.NewReader(linesTo(2)))))
		if want := "stopped by a signal: interrupt; lines up to 2 are submitted"; f.text != want || f.code != 130 {
			t.Errorf("exit code %d, error %q, want %q", f.code, f.text, want)
		}
		_ = out.Close()
	})
}

// The whole batch is submitted, whether or not its ids can be printed.
func TestSubmitLinesThatCannotPrint(t *testing.T) {
	for want, broken := range map[string]error{
		"lines up to 2 are submitted":            syscall.EPIPE,
		"disk full; lines up to 2 are submitted": errors.New("disk full"),
	} {
		in, out := io.Pipe()
		_ = in.CloseWithError(broken)
		l := newLineSubmits(&app{streams: streams{out: out}, ctx: t.Context(), stopNow: t.Context()}, &batches{most: 2},
			&lessorv1.TaskSpec{Queue: "q"})
		err := l.explained(l.submit([]inputLine{{number: 1, text: []byte("a")}, {number: 2, text: []byte("b")}}))
		if explain(err).text != want || l.created != 2 {
			t.Errorf("error %q and %d tasks, want %q", err, l.created, want)
		}
	}
}

// However long the lines are and whatever else is in the tasks, a batch is below the limit of a
// message, and little is read ahead.
func TestSubmitLinesBoundsItsMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for line, label := range map[int]int{maxSubmitLine: 0, 1: 150_000} {
			tasks := &batches{most: maxSubmitBatch}
			in := &countingReader{from: strings.NewReader(strings.Repeat(strings.Repeat("x", line)+"\n", 30))}
			taken := 0
			tasks.during = func() {
				synctest.Wait()
				if ahead := in.read - taken; ahead > 8*maxSubmitLine {
					t.Errorf("lines of %d bytes: %d bytes are read ahead", line, ahead)
				}
				taken = in.read
			}
			base := &lessorv1.TaskSpec{Queue: "q", Labels: map[string]string{"label": strings.Repeat("x", label)}}
			l := newLineSubmits(&app{streams: streams{out: io.Discard}, ctx: t.Context(), stopNow: t.Context()}, tasks, base)
			if err := l.run(in); err != nil || l.created != 30 {
				t.Errorf("lines of %d bytes: error %v after %d tasks, want 30", line, err, l.created)
			}
			if tasks.bytes > 3<<20 {
				t.Errorf("lines of %d bytes: a batch has %d bytes", line, tasks.bytes)
			}
		}
	})
}

// A limit of the coordinator that one batch has met is not met again by each of the others.
func TestSubmitLinesLearnsTheLimitOfABatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tasks := &batches{most: 100}
		if _, err := submitLinesTo(t, tasks, "", 10_000); err != nil || tasks.calls-len(tasks.sizes) > 20 {
			t.Errorf("error %v; %d calls were refused", err, tasks.calls-len(tasks.sizes))
		}
	})
}

type countingReader struct {
	from io.Reader
	read int
}

func (r *countingReader) Read(p []byte) (int, error) {
	n, err := r.from.Read(p)
	r.read += n
	return n, err
}
