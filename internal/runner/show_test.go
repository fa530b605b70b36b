package runner

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func TestBarFitsItsWidth(t *testing.T) {
	for width := range 200 {
		if got := barText(1000, counts{450, 2, 5}, 12.3, false, width); len(got) >= max(width, 1) {
			t.Fatalf("width %d: %d columns: %s", width, len(got), got)
		}
	}
}

func TestBarText(t *testing.T) {
	for _, test := range []struct {
		lines int64
		c     counts
		rate  float64
		want  string
	}{
		{1000, counts{448, 2, 5}, 12.3, "[#############                 ]  45 %  448/1000 done, 2 failed, 5 retried, 12.3/s, 45s left"},
		{1000, counts{}, 0, "[                              ]   0 %  0/1000 done, 0 failed, 0 retried"},
		{10, counts{10, 0, 0}, 400, "[##############################] 100 %  10/10 done, 0 failed, 0 retried, 400/s, 0s left"},
		{1_000_000, counts{1, 0, 0}, 100, "[                              ]   0 %  1/1000000 done, 0 failed, 0 retried, 100/s, 2h46m left"},
		{2711, counts{1, 0, 0}, 1, "[                              ]   0 %  1/2711 done, 0 failed, 0 retried, 1.0/s, 45m10s left"},
		{0, counts{}, 0, "[##############################] 100 %  0/0 done, 0 failed, 0 retried"},
	} {
		if got := barText(test.lines, test.c, test.rate, false, 200); got != test.want {
			t.Errorf("got %q, want %q", got, test.want)
		}
	}
}

// Lines that are left do not run while a run stops, so no time is shown for them.
func TestBarOfARunThatStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen, both := testScreen()
		stopping := make(chan struct{})
		r := &run{tally: &tally{lines: 10}, cfg: Config{Screen: screen, BarWidth: func() int { return 80 }, Stopping: stopping}}
		r.drawBar()
		time.Sleep(time.Second)
		r.tally.mu.heard.done = 2
		r.drawBar()
		if !strings.HasSuffix(both.String(), "2.0/s, 4s left") {
			t.Errorf("drew %q, want a time at the end", both)
		}
		close(stopping)
		r.drawBar()
		if !strings.HasSuffix(both.String(), "2/10 done, 0 failed, 0 retried, stopping") {
			t.Errorf("drew %q, want that it stops at the end", both)
		}
	})
}

// endedTasks is a coordinator with tasks that have ended.
type endedTasks struct {
	lessorv1.TaskServiceClient
	tasks []*lessorv1.Task
}

func (e endedTasks) ListTasks(
	context.Context, *lessorv1.ListTasksRequest, ...grpc.CallOption,
) (*lessorv1.ListTasksResponse, error) {
	return &lessorv1.ListTasksResponse{Tasks: e.tasks}, nil
}

// The lines that had ended when a run is resumed are counted at once, and only once, although their
// events and their outputs come again. They are no speed.
func TestLinesThatEndedBeforeAreNoSpeed(t *testing.T) {
	j := mustOpen(t, t.TempDir(), "a\nb\nc\nd\n", testOptions, false)
	begin := time.Now()
	ended := func(line int64, at time.Duration, state lessorv1.TaskState) *lessorv1.Task {
		return &lessorv1.Task{Spec: j.spec(line, nil), State: state, Attempt: 2, FinishedAt: timestamppb.New(begin.Add(at))}
	}
	before := endedTasks{tasks: []*lessorv1.Task{
		ended(1, -time.Minute, completed), ended(3, -time.Hour, failed),
		ended(2, -time.Hour, lessorv1.TaskState_TASK_STATE_CANCELLED), ended(99, -time.Second, completed),
	}}
	if done, failed, err := j.CountEnded(t.Context(), before); done != 1 || failed != 2 || err != nil {
		t.Errorf("%d done and %d failed, %v; want 1 and 2", done, failed, err)
	}
	tally := newTally(j)
	for second := range 10 {
		if c, rate := tally.now(begin.Add(time.Duration(second) * time.Second)); c != (counts{done: 1, failed: 2, retried: 3}) || rate != 0 {
			t.Errorf("after %d s: %+v and %v/s, want what had ended before, and 0/s", second, c, rate)
		}
		tally.print(before.tasks[second%3])
		tally.mu.printed = counts{done: 1}
		tally.event(&lessorv1.HistoryEvent{TaskState: completed, At: before.tasks[0].GetFinishedAt()})
	}
	tally.event(&lessorv1.HistoryEvent{TaskState: completed, At: timestamppb.New(begin)})
	if c, rate := tally.now(begin.Add(10 * time.Second)); c != (counts{done: 2, failed: 2, retried: 3}) || rate != 0.1 {
		t.Errorf("after a line: %+v and %v/s, want 2 done and 0.1/s", c, rate)
	}
	if _, _, err := j.RetryFailed(t.Context(), &retryRecorder{}); err != nil || newTally(j).mu.heard != (counts{done: 1, retried: 3}) {
		t.Errorf("with the failed and cancelled lines open again: %+v (%v), want that none counts as failed",
			newTally(j).mu.heard, err)
	}
}

func TestTallyCountsRetries(t *testing.T) {
	tally := &tally{}
	for _, e := range []*lessorv1.HistoryEvent{
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_SUBMITTED, TaskState: lessorv1.TaskState_TASK_STATE_READY},
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, TaskState: lessorv1.TaskState_TASK_STATE_SCHEDULED},
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_READY, TaskState: lessorv1.TaskState_TASK_STATE_READY},
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_LEASE_ENDED, TaskState: lessorv1.TaskState_TASK_STATE_READY},
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_RELEASED, TaskState: lessorv1.TaskState_TASK_STATE_READY},
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_COMPLETED, TaskState: lessorv1.TaskState_TASK_STATE_COMPLETED},
		{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_FAILED, TaskState: lessorv1.TaskState_TASK_STATE_FAILED},
	} {
		tally.event(e)
	}
	if got, _ := tally.now(time.Now()); got != (counts{done: 1, failed: 1, retried: 2}) {
		t.Errorf("got %+v, want 1 done, 1 failed and 2 retried", got)
	}
	var ended counts
	for attempt := range uint32(4) { // 0: cancelled before the first attempt
		ended.add(&lessorv1.Task{State: lessorv1.TaskState_TASK_STATE_CANCELLED, Attempt: attempt})
	}
	if want := (counts{failed: 4, retried: 0 + 0 + 1 + 2}); ended != want {
		t.Errorf("got %+v of the ended tasks, want %+v", ended, want)
	}
}

func TestRateIsThatOfRecentSamples(t *testing.T) {
	tally := &tally{}
	begin := time.Now()
	for second := range 100 {
		if second < 50 {
			tally.mu.heard.done += 10 // ten a second for 50 seconds, then none
		}
		_, rate := tally.now(begin.Add(time.Duration(second) * time.Second))
		switch {
		case second == 49 && (rate < 9.9 || rate > 10.1):
			t.Errorf("the rate is %v/s while ten lines end each second, want 10/s", rate)
		case second == 99 && rate != 0:
			t.Errorf("the rate is %v/s 50 s after the last line, want 0", rate)
		}
	}
	if len(tally.mu.samples) > 25 {
		t.Errorf("%d samples are kept, want at most 25", len(tally.mu.samples))
	}
}

// testScreen returns a screen and a buffer with what both of its streams show together, as on a
// terminal.
func testScreen() (*Screen, *bytes.Buffer) {
	var both bytes.Buffer
	return NewScreen(&both, &both, SameTerminal), &both
}

func TestScreenKeepsTheBarOutOfTheOutput(t *testing.T) {
	s, both := testScreen()
	s.setBar("50 %")
	_ = s.output(func(w io.Writer) error { _, err := io.WriteString(w, "one\n"); return err })
	s.Note("note %d", 1)
	s.setBar("")
	if got, want := both.String(), "50 %\r\x1b[Kone\n50 %\r\x1b[Knote 1\n50 %\r\x1b[K"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestScreenDrawsNoBarIntoAnUnfinishedLine(t *testing.T) {
	s, both := testScreen()
	s.setBar("50 %")
	for _, text := range []string{"one", "", " more", "\n"} {
		_ = s.output(func(w io.Writer) error { _, err := io.WriteString(w, text); return err })
	}
	if got, want := both.String(), "50 %\r\x1b[Kone more\n50 %"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

func TestScreenNotesBeginOnALineOfTheirOwn(t *testing.T) {
	s, both := testScreen()
	_ = s.output(func(w io.Writer) error { _, err := io.WriteString(w, "one"); return err })
	s.Note("note")
	if got, want := both.String(), "one\nnote\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// The bar is drawn once more at the end, so that it does not contradict the summary that follows
// it.
func TestLastBarShowsTheFinalCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		screen, both := testScreen()
		r := &run{tally: &tally{lines: 10}, cfg: Config{Screen: screen, BarWidth: func() int { return 80 }}}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- r.showBar(ctx) }()
		synctest.Wait()
		r.tally.mu.heard.done = 10
		cancel()
		if err := <-ended; err != nil || !strings.Contains(both.String(), "100 %  10/10 done") {
			t.Errorf("showBar = %v and drew %q, want nil and a last bar with 10/10", err, both)
		}
	})
}

// If the output goes to a file, neither the bar nor notes may be written into it.
func TestScreenWritesOutputAsItIs(t *testing.T) {
	var out, errs bytes.Buffer
	s := NewScreen(&out, &errs, Apart)
	s.setBar("50 %")
	for i := range 3 {
		_ = s.output(func(w io.Writer) error { _, err := fmt.Fprintf(w, "%d", i); return err })
		s.Note("note")
	}
	if out.String() != "012" {
		t.Errorf("the output has %q, want 012", out.String())
	}
}

// duringWrite calls a function at each write.
type duringWrite func()

func (f duringWrite) Write(p []byte) (int, error) {
	f()
	return len(p), nil
}

// Outputs do not wait for an err that nobody takes, unless it is the same file: then neither is
// written into the middle of the other.
func TestScreenWaitsForErrOnlyIfItIsTheSame(t *testing.T) {
	for same, want := range map[Sharing]bool{Apart: true, SameFile: false, SameTerminal: false} {
		written := 0
		var s *Screen
		s = NewScreen(io.Discard, duringWrite(func() {
			written++
			if !s.outMu.TryLock() {
				t.Errorf("sharing %d: a note holds up an output as such", same)
				return
			}
			s.outMu.Unlock()
		}), same)
		s.Note("note")
		_ = s.output(func(io.Writer) error {
			written++
			free := s.mu.TryLock()
			if free {
				s.mu.Unlock()
			}
			if free != want {
				t.Errorf("sharing %d: a note can be written during an output: %v, want %v", same, free, want)
			}
			return nil
		})
		if written != 2 {
			t.Errorf("sharing %d: %d writes, want a note and an output", same, written)
		}
	}
}

func TestMarksCountEveryLineOnce(t *testing.T) {
	m := newMarks(130)
	for line := int64(-1); line <= 200; line++ {
		want := line >= 1 && line <= 130
		if m.has(line) || m.lacks(line) != want || m.mark(line) != want || m.mark(line) || m.has(line) != want {
			t.Errorf("line %d: want that it is marked at most once, and only from 1 to 130", line)
		}
	}
	if m.left() != 0 {
		t.Errorf("%d lines are left, want none", m.left())
	}
}
