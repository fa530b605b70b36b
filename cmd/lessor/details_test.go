package main

import (
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// A queue is shown with each of its numbers under its own name.
func TestNumbersOfAQueue(t *testing.T) {
	q := &lessorv1.Queue{
		Name: "q", Ready: 5, Blocked: 1, Scheduled: 2, Leased: 3, Takers: 4,
		OldestReady: durationpb.New(90 * time.Minute), Failed: 6, Cancelled: 7,
	}
	q.OldestReadyTaskId = "t9"
	q.OldestBlocker, q.OldestBlockerTaskId = durationpb.New(3*time.Hour), "t0000200000000001"
	q.Paused, q.PausedAt = true, timestamppb.New(time.Now().Add(-5*time.Hour))
	if got, want := strings.Join(queueCells(q), " "), "q 5 1h30m 1 3h 2 3 6 paused for 5h"; got != want {
		t.Errorf("the row is %q, want %q", got, want)
	}
	var out strings.Builder
	if err := printQueue(&out, q); err != nil {
		t.Fatal(err)
	}
	want := "queue:      q\nready:      5, 1 of them blocked by their concurrency key\noldest:     READY for 1h30m, t9\n" +
		"blocker:    leased for 3h, t0000200000000001\n" +
		"scheduled:  2\nleased:     3\nended:      6 FAILED, 7 CANCELLED\nworkers:    4\npaused:     since " + clock(q.GetPausedAt()) + ": no tasks are granted\n"
	if out.String() != want {
		t.Errorf("the queue is\n%s\nwant\n%s", &out, want)
	}
}

// A kick with requeue says how many leases have ended, and how many sessions unless it is the usual
// one.
func TestRevokedLeasesOfAWorker(t *testing.T) {
	for want, answer := range map[string]*lessorv1.KickWorkerResponse{
		"w\tKICKED\t2 revoked":             {Workers: []*lessorv1.Worker{{Leases: 1}}, Sessions: 1, Revoked: 2},
		"w\tKICKED\t3 revoked, 0 sessions": {Revoked: 3},
		"w\tKICKED\t0 revoked, 2 sessions": {Workers: []*lessorv1.Worker{{}}, Sessions: 2},
	} {
		if got := revokedLine("w", answer); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A change of a worker says how many of its sessions the answer has.
func TestSessionsOfAWorker(t *testing.T) {
	one := &lessorv1.Worker{Leases: 2}
	for want, answer := range map[string]*lessorv1.KickWorkerResponse{
		"w\tKICKED\t2 leased":                              {Workers: []*lessorv1.Worker{one}, Sessions: 1},
		"w\tKICKED\t4 leased, 2 sessions":                  {Workers: []*lessorv1.Worker{one, one}},
		"w\tKICKED\t4 leased by the first 2 of 3 sessions": {Workers: []*lessorv1.Worker{one, one}, Sessions: 3},
	} {
		if got := workersLine("w", "KICKED", answer); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// A worker is shown with its packages.
func TestPackagesOfAWorker(t *testing.T) {
	var out strings.Builder
	d := newDetails(&out)
	d.addPackages(&lessorv1.Worker{InstallsPackages: true, Packages: []*lessorv1.Package{
		{Name: "@a/b", Version: "1", Status: lessorv1.PackageStatus_PACKAGE_STATUS_INSTALLED},
		{Name: "c", Version: "2", Status: lessorv1.PackageStatus_PACKAGE_STATUS_FAILED, Detail: "no room"},
	}})
	want := "package:   @a/b@1 INSTALLED\npackage:   c@2 FAILED: no room\ninstalls:  packages, when an operator asks for it\n"
	if err := d.flush(); err != nil || out.String() != want {
		t.Errorf("got\n%s(error %v)\nwant\n%s", &out, err, want)
	}
}

// The output of a task is written as it is, whatever else the task has. If it is elsewhere, or if
// there is none, the error says so.
func TestOutputOfATask(t *testing.T) {
	const completed, failed = lessorv1.TaskState_TASK_STATE_COMPLETED, lessorv1.TaskState_TASK_STATE_FAILED
	elsewhere := []*lessorv1.Artifact{{ResourceId: "a.1", SizeBytes: 9}}
	for name, c := range map[string]struct {
		task       *lessorv1.Task
		want, said string
	}{
		"output":             {&lessorv1.Task{State: completed, Output: []byte("x\n")}, "x\n", ""},
		"and an artifact":    {&lessorv1.Task{State: completed, Output: []byte("x\n"), Artifacts: elsewhere}, "x\n", ""},
		"empty":              {&lessorv1.Task{State: completed}, "", ""},
		"an inline artifact": {&lessorv1.Task{State: completed, Artifacts: []*lessorv1.Artifact{{Inline: true}}}, "", ""},
		"only elsewhere": {
			&lessorv1.Task{TaskId: "t1", State: completed, Artifacts: elsewhere}, "",
			"error: t1 has its output elsewhere: a.1, 9 B\nhint: read it there\n",
		},
		"none, and never one": {
			&lessorv1.Task{TaskId: "t1", State: failed, FinishedAt: timestamppb.Now()}, "",
			"error: t1 is FAILED; it has no output\nhint: \"lessor task explain t1\" tells why\n",
		},
	} {
		var out, stderr strings.Builder
		report(streams{err: &stderr}, writeOutput(&out, c.task))
		if out.String() != c.want || stderr.String() != c.said {
			t.Errorf("%s: wrote %q and said %q, want %q and %q", name, &out, &stderr, c.want, c.said)
		}
	}
}

// A task is shown with everything that people ask for, under its own name.
func TestDetailsOfATask(t *testing.T) {
	at := func(seconds int64) *timestamppb.Timestamp { return timestamppb.New(time.Unix(seconds, 0)) }
	var out strings.Builder
	err := printTask(&out, &lessorv1.Task{
		Quarantined: true, CreatedAt: at(1), RetryAt: at(2), FinishedAt: at(3), Spec: &lessorv1.TaskSpec{Deadline: at(4)},
		Lease: &lessorv1.LeaseInfo{
			WorkerId: "w", FencingToken: 5, StartedAt: at(6), HeartbeatAt: at(7),
			ExpiresAt: at(8),
		},
		CancelRequestedAt: at(9), CancelReason: "no more", Error: &lessorv1.TaskError{Message: "m", StackTrace: "at main"},
		CancelledDuringPhase: "upload", PartialProgress: []byte("half"), HistoryDropped: 10,
		History: []*lessorv1.HistoryEvent{{}},
	})
	if err != nil {
		t.Fatal(err)
	}
	for name, value := range map[string]string{
		"quarantined": "yes: its workers were lost too often", "created": clock(at(1)), "due": clock(at(2)), "finished": clock(at(3)), "deadline": clock(at(4)),
		"worker": "w", "fencing token": "5", "started": clock(at(6)), "heartbeat": clock(at(7)), "lease ends": clock(at(8)),
		"cancel asked": clock(at(9)) + " no more", "stack": "at main", "stopped during": "upload", "partial progress": "half",
	} {
		if line := fmt.Sprintf("\n%-19s%s\n", name+":", value); !strings.Contains(out.String(), line) {
			t.Errorf("%s is not shown as %s in\n%s", name, value, &out)
		}
	}
	if !strings.Contains(out.String(), "\n10 older events are no longer kept\n") {
		t.Errorf("the task does not say that 10 events are no longer kept:\n%s", &out)
	}
}

// How much of a number is used is shown; a rate has no such number, and without a limit there is
// nothing to show.
func TestQuotas(t *testing.T) {
	for value, want := range map[string]string{"100": "7 of 100", "5/s": "5/s", "5/s:20": "5/s:20", "none": ""} {
		if got := quotaText(&lessorv1.Quota{Value: value, Used: 7}); got != want {
			t.Errorf("%s: got %q, want %q", value, got, want)
		}
	}
}

// A standby is shown with what is lost if the coordinator's machine is lost now.
func TestStandbys(t *testing.T) {
	for want, s := range map[string]*lessorv1.Standby{
		"to which the store is being copied: 2.0 KiB sent": {SentBytes: 2 << 10},
		"which has everything":                             {Complete: true, SentBytes: 2 << 10},
		"1.5s behind (3 commits)":                          {Complete: true, CommitsBehind: 3, Behind: durationpb.New(1500 * time.Millisecond)},
	} {
		if got := standbyText(s); got != want {
			t.Errorf("%v: got %q, want %q", s, got, want)
		}
	}
}

// What a failed command wrote to standard error is shown once: as the last lines if these have all
// of it, otherwise as the stack.
func TestStandardErrorOfAFailedTaskIsShownOnce(t *testing.T) {
	said := func(channel, text string) *lessorv1.FeedbackChunk {
		return &lessorv1.FeedbackChunk{Channel: channel, Body: &lessorv1.FeedbackChunk_Text{Text: text}}
	}
	long := strings.Repeat("x\n", 2*shownLines) + "last\n"
	for name, test := range map[string]struct {
		task        *lessorv1.Task
		stack, last string
	}{
		"last lines have all": {
			&lessorv1.Task{
				Feedback: []*lessorv1.FeedbackChunk{said("stdout", "row 1\n"), said("stderr", "reading\nbad\n")},
				Error:    &lessorv1.TaskError{Message: "exit status 65: bad", StackTrace: "reading\nbad\n"},
			},
			"", "stdout: row 1\nstderr: reading\nstderr: bad",
		},
		"the message has all": {&lessorv1.Task{Error: &lessorv1.TaskError{Message: "exit status 1: bad", StackTrace: "bad\n"}}, "", ""},
		"the stack has more": {
			&lessorv1.Task{
				Feedback: []*lessorv1.FeedbackChunk{said("stderr", long), said("stdout", "end\n")},
				Error:    &lessorv1.TaskError{Message: "exit status 1: last", StackTrace: "first\n" + long},
			},
			"first\n" + long, "stdout: end",
		},
		"another stack": {
			&lessorv1.Task{
				Feedback: []*lessorv1.FeedbackChunk{said("stderr", "reading\n")},
				Error:    &lessorv1.TaskError{Message: "m", StackTrace: "at main"},
			},
			"at main", "stderr: reading",
		},
	} {
		var want, got strings.Builder
		w, d := newDetails(&want), newDetails(&got)
		w.add("stack", test.stack)
		w.add("last lines", test.last)
		d.add("stack", stackOf(test.task))
		d.addFeedback(test.task)
		if err := errors.Join(w.flush(), d.flush()); err != nil || got.String() != want.String() {
			t.Errorf("%s: got\n%s(error %v)\nwant\n%s", name, &got, err, &want)
		}
	}
}

// Of what an attempt has told, a task shows the progress and the last lines.
func TestFeedbackOfATask(t *testing.T) {
	for want, task := range map[string]*lessorv1.Task{
		"": {Progress: &lessorv1.Progress{}},
		"progress:  50 % load rows ms=45000 n=1.2346789\n": {
			Progress: &lessorv1.Progress{
				Fraction: 0.5, Stage: "load", Message: "rows",
				Metrics: map[string]float64{"n": 1.2346789, "ms": 45000},
			},
		},
		"progress:  0 % n=7\n": {Progress: &lessorv1.Progress{Metrics: map[string]float64{"n": 7}}},
		"last lines:  stdout: x" + strings.Repeat("\n             stdout: x", shownLines-1) + "\n": {
			Feedback: []*lessorv1.FeedbackChunk{{
				Channel: "stdout",
				Body:    &lessorv1.FeedbackChunk_Text{Text: strings.Repeat("x\n", shownLines+1)},
			}},
		},
		// another one runs
		"progress:    of attempt 1: 0 % load\nlast lines:  of attempt 1:\n             stdout: x\n": {
			Lease: &lessorv1.LeaseInfo{Attempt: 2}, Progress: &lessorv1.Progress{Attempt: 1, Stage: "load"},
			Feedback: []*lessorv1.FeedbackChunk{{Channel: "stdout", Body: &lessorv1.FeedbackChunk_Text{Text: "x\n"}}},
		},
		"progress:  of attempt 1: 0 % load\n": {Progress: &lessorv1.Progress{Attempt: 1, Stage: "load"}},
	} {
		var out strings.Builder
		d := newDetails(&out)
		d.addFeedback(task)
		if err := d.flush(); err != nil || out.String() != want {
			t.Errorf("got\n%s(error %v)\nwant\n%s", &out, err, want)
		}
	}
}

// A gauge of a task or a worker keeps its digits.
func TestGaugesKeepTheirDigits(t *testing.T) {
	gauges := map[string]float64{"cpuTimeMs": 45000, "bytes": 1 << 31}
	for name, show := range map[string]func(io.Writer) error{
		"task":   func(w io.Writer) error { return printTask(w, &lessorv1.Task{Metrics: gauges}) },
		"worker": func(w io.Writer) error { return printWorker(w, &lessorv1.Worker{Metrics: gauges}) },
	} {
		var out strings.Builder
		err := show(&out)
		if said := strings.Join(strings.Fields(out.String()), " "); err != nil || !strings.Contains(said, "gauge: bytes 2147483648 gauge: cpuTimeMs 45000") {
			t.Errorf("%s: %s (error %v), want whole numbers", name, said, err)
		}
	}
}
