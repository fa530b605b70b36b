package runner

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// newTestPrinter returns a printer of a run of two lines, with the files of t1 in its spool: the
// outputs of two attempts.
func newTestPrinter(t *testing.T, out, errs io.Writer) *printer {
	t.Helper()
	job := mustOpen(t, t.TempDir(), "a\nb\n", testOptions, false)
	spool := job.Spool()
	err := spool.Check()
	for name, text := range map[string]string{"t1.1": "first", "t1.2": "second"} {
		err = errors.Join(err, os.WriteFile(spool.Path(name), []byte(text), 0o600))
	}
	if err != nil {
		t.Fatal(err)
	}
	return &printer{job: job, screen: NewScreen(out, errs, Apart), tally: &tally{lines: 2}, printed: newMarks(2)}
}

// testTask is the task of line 1 after its second attempt.
func testTask(state lessorv1.TaskState, output string, artifacts ...*lessorv1.Artifact) *lessorv1.Task {
	return &lessorv1.Task{
		TaskId: "t1", State: state, Attempt: 2, Output: []byte(output), Artifacts: artifacts,
		Spec:  &lessorv1.TaskSpec{RunId: "r", IdempotencyKey: "r/1", Payload: []byte("a")},
		Error: &lessorv1.TaskError{Message: "exit status 1"},
	}
}

// The output of the last attempt is printed, and stays in the spool for a process that resumes the
// run. Outputs of earlier attempts are removed. An output that is not on this machine is reported,
// and the run is not OK then.
func TestOutputsAreFound(t *testing.T) {
	file := &lessorv1.Artifact{ResourceId: "t1.2", WorkerId: "w"}
	for name, tt := range map[string]struct {
		task      *lessorv1.Task
		out, errs string
		summary   Summary
	}{
		"in the task":         {testTask(completed, "inline"), "inline", "", Summary{Done: 1, Retried: 1}},
		"in the spool":        {testTask(completed, "", file), "second", "", Summary{Done: 1, Retried: 1}},
		"in both":             {testTask(completed, "inline", &lessorv1.Artifact{ResourceId: "t1.2", Inline: true}), "inline", "", Summary{Done: 1, Retried: 1}},
		"of a failed command": {testTask(failed, ""), "second", "line 1 failed: \"a\": exit status 1 (attempt 2)\n", Summary{Failed: 1, Retried: 1}},
		"elsewhere": {
			testTask(completed, "", &lessorv1.Artifact{ResourceId: "t9.1", WorkerId: "w"}), "",
			"line 1: its output is not on this machine: t9.1 on worker \"w\"\n",
			Summary{Done: 1, Retried: 1, Unprinted: 1},
		},
	} {
		var out, errs bytes.Buffer
		p := newTestPrinter(t, &out, &errs)
		for range 2 { // a line is printed once
			if err := p.print(tt.task); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		summary := p.summary()
		if out.String() != tt.out || errs.String() != tt.errs || summary != tt.summary {
			t.Errorf("%s: printed %q and %q, summary %+v, want %q, %q, %+v",
				name, out.String(), errs.String(), summary, tt.out, tt.errs, tt.summary)
		}
		wantFiles(t, p.job.path("spool"), "t1.2")
		summary.Lines = 1
		if want := tt.summary.Done == 1 && tt.summary.Unprinted == 0; summary.OK() != want {
			t.Errorf("%s: OK %t, want %t", name, summary.OK(), want)
		}
	}
}

// An operator may adopt the late result of an earlier attempt. Its file is then the output of the
// line, and is not removed.
func TestAdoptedOutputIsFound(t *testing.T) {
	var out, errs bytes.Buffer
	p := newTestPrinter(t, &out, &errs)
	task := testTask(completed, "", &lessorv1.Artifact{ResourceId: "t1.1", WorkerId: "w"})
	task.AdoptedAttempt = 1
	err := p.print(task)
	if err != nil || out.String() != "first" || errs.Len() > 0 || p.summary().Unprinted != 0 {
		t.Errorf("printed %q and %q, summary %+v, error %v, want the output of the first attempt",
			out.String(), errs.String(), p.summary(), err)
	}
	wantFiles(t, p.job.path("spool"), "t1.1", "t1.2")
}

// A message shows where it has cut off a line.
func TestLongLineIsCutWithAMark(t *testing.T) {
	for line, want := range map[string]string{
		"short": `"short"`, strings.Repeat("ä", 60): `"` + strings.Repeat("ä", 60) + `"`, strings.Repeat("ä", 61): `"` + strings.Repeat("ä", 60) + `"…`,
	} {
		if got := quoteLine(&lessorv1.Task{Spec: &lessorv1.TaskSpec{Payload: []byte(line)}}); got != want {
			t.Errorf("%q is shown as %s, want %s", line, got, want)
		}
	}
}

// Of a cancelled line it says once who cancelled it and why, and not what its worker said about the
// same.
func TestCancelledLineSaysWhoAndWhyOnce(t *testing.T) {
	asked := func(actor string) *lessorv1.HistoryEvent {
		return &lessorv1.HistoryEvent{Type: lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_CANCEL_REQUESTED, Actor: actor}
	}
	for want, tt := range map[string]struct {
		reason  string
		history []*lessorv1.HistoryEvent
	}{
		// bob had cancelled an earlier round
		"by ann: not wanted": {"not wanted", []*lessorv1.HistoryEvent{asked("bob"), asked("ann"), {Actor: "worker"}}},
		"by ann":             {"", []*lessorv1.HistoryEvent{asked("ann")}},
		"by somebody":        {"", nil},
	} {
		task := testTask(cancelled, "")
		task.CancelRequestedAt, task.CancelReason, task.History = timestamppb.Now(), tt.reason, tt.history
		task.Reason, task.Error.Message = lessorv1.Reason_REASON_TASK_CANCELLED, "task cancelled: TASK_CANCELLED: not wanted"
		var errs bytes.Buffer
		if err := newTestPrinter(t, io.Discard, &errs).print(task); err != nil {
			t.Error(err)
		}
		if got, want := errs.String(), "line 1 cancelled: \"a\": "+want+" (attempt 2)\n"; got != want {
			t.Errorf("standard error has %q, want %q", got, want)
		}
	}
}

// The outputs of a run that nobody will resume do not stay on the disk until its end, unless a
// record has named them. What could not be printed stays.
func TestOutputsThatNobodyWillPrintAgainAreRemoved(t *testing.T) {
	file := &lessorv1.Artifact{ResourceId: "t1.2", WorkerId: "w"}
	adopted := testTask(completed, "", &lessorv1.Artifact{ResourceId: "t1.1", WorkerId: "w"})
	adopted.AdoptedAttempt = 1
	record := func(io.Writer, *lessorv1.Task, string) error { return nil }
	for name, tt := range map[string]struct {
		task   *lessorv1.Task
		record func(io.Writer, *lessorv1.Task, string) error
		out    io.Writer
		left   []string
	}{
		"of a command":        {testTask(completed, "", file), nil, io.Discard, nil},
		"of a failed command": {testTask(failed, ""), nil, io.Discard, nil},
		"adopted":             {adopted, nil, io.Discard, nil},
		"named by a record":   {testTask(completed, "", file), record, io.Discard, []string{"t1.2"}},
		"not written":         {testTask(completed, "", file), nil, fullDisk{}, []string{"t1.1", "t1.2"}},
	} {
		t.Run(name, func(t *testing.T) {
			p := newTestPrinter(t, tt.out, io.Discard)
			p.job.temporary, p.record = true, tt.record
			if err := p.print(tt.task); (err != nil) != (tt.out != io.Discard) {
				t.Error(err)
			}
			wantFiles(t, p.job.path("spool"), tt.left...)
		})
	}
}

// A run ends with the error of its output, for example because the disk is full.
func TestOutputThatCannotBeWrittenEndsTheRun(t *testing.T) {
	for name, task := range map[string]*lessorv1.Task{
		"in the task":         testTask(completed, "inline"),
		"in the spool":        testTask(completed, "", &lessorv1.Artifact{ResourceId: "t1.2"}),
		"of a failed command": testTask(failed, ""),
	} {
		p := newTestPrinter(t, fullDisk{}, io.Discard)
		if err := p.print(task); !errors.Is(err, errDiskFull) {
			t.Errorf("%s: %v, want %v", name, err, errDiskFull)
		}
		p = newTestPrinter(t, io.Discard, io.Discard)
		p.record = func(io.Writer, *lessorv1.Task, string) error { return errDiskFull }
		if err := p.print(task); !errors.Is(err, errDiskFull) {
			t.Errorf("%s, as a record: %v, want %v", name, err, errDiskFull)
		}
	}
}

// So it does if an output in the spool cannot be read, and that is a gap, too.
func TestOutputThatCannotBeReadEndsTheRun(t *testing.T) {
	for name, task := range map[string]*lessorv1.Task{
		"of a command":        testTask(completed, "", &lessorv1.Artifact{ResourceId: "t1.2"}),
		"of a failed command": testTask(failed, ""),
	} {
		for want, spoil := range map[error]func(file string) error{ // for root, too
			// it can be opened, but not read
			syscall.EISDIR: func(file string) error { return os.Mkdir(file, 0o700) },
			syscall.ELOOP:  func(file string) error { return os.Symlink("t1.2", file) }, // it cannot be opened
		} {
			p := newTestPrinter(t, io.Discard, io.Discard)
			file := p.job.Spool().Path("t1.2")
			if err := errors.Join(os.Remove(file), spoil(file)); err != nil {
				t.Fatal(err)
			}
			if err := p.print(task); !errors.Is(err, want) || !p.screen.outputFailed() {
				t.Errorf("%s: %v, counts as a gap: %t; want %v, and that it does", name, err, p.screen.outputFailed(), want)
			}
		}
	}
}

// A run also ends if the outputs of earlier attempts cannot be removed. What counts as printed is
// printed then.
func TestOutputIsPrintedEvenIfEarlierOnesStay(t *testing.T) {
	var out bytes.Buffer
	p := newTestPrinter(t, &out, io.Discard)
	earlier := p.job.Spool().Path("t1.1")
	// cannot be removed, even by root
	if err := errors.Join(os.Remove(earlier), os.MkdirAll(filepath.Join(earlier, "below"), 0o700)); err != nil {
		t.Fatal(err)
	}
	err := p.print(testTask(completed, "inline"))
	if err == nil || out.String() != "inline" || p.screen.outputFailed() {
		t.Errorf("printed %q, error %v, counts as a gap: %t; want the output, an error and no gap",
			out.String(), err, p.screen.outputFailed())
	}
}

var errDiskFull = errors.New("no space left")

type fullDisk struct{}

func (fullDisk) Write([]byte) (int, error) { return 0, errDiskFull }
