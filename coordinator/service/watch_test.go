package service_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	"github.com/lessor-dev/lessor/coordinator/service"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// lifeEvents are the events of a task that runTask completes.
const lifeEvents = "SUBMITTED GRANTED STARTED progress COMPLETED"

// runTask leases the waiting task, starts it, sends one progress, and completes it.
func runTask(t *testing.T, r *wiretest.Rig) {
	t.Helper()
	a := r.Lease(t)
	r.Start(t, a)
	_, err := r.Workers.Heartbeat(t.Context(), &lessorv1.HeartbeatRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Fraction: 0.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // the coordinator passes progress on after the answer
	r.Complete(t, a, "")
}

// S5: a watch sends past and new events, and ends with the task. A watch that begins later sends
// only the durable events.
func TestWatchFollowsATaskToItsEnd(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		runTask(t, r)
		events := stop()
		if got := wiretest.EventNames(events); got != lifeEvents {
			t.Errorf("the events are %s, want %s", got, lifeEvents)
		}
		wiretest.WantIncreasing(t, events)
		if state := events[3].GetTaskState(); state != lessorv1.TaskState_TASK_STATE_RUNNING {
			t.Errorf("the progress event has the task state %v, want RUNNING", state)
		}
		if last := events[len(events)-1]; last.GetTaskState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("the last event is %v, want the task state COMPLETED", last)
		}
		again, err := wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id})
		if err != nil || wiretest.EventNames(again) != "SUBMITTED GRANTED STARTED COMPLETED" {
			t.Errorf("a later watch: %s (%v), want the durable events and the end", wiretest.EventNames(again), err)
		}
	})
}

// S5: a watch that resumes after an event begins with the next event. This holds for every event.
func TestWatchResumesAfterASequence(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		runTask(t, r)
		all, err := wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range all {
			rest, err := wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: e.GetSequence()})
			if err != nil || wiretest.EventNames(rest) != wiretest.EventNames(all[i+1:]) {
				t.Errorf("after sequence %d: %s (%v), want %s",
					e.GetSequence(), wiretest.EventNames(rest), err, wiretest.EventNames(all[i+1:]))
			}
		}
	})
}

// S5, S4: after_sequence above the newest event is refused, because such a watch would wait for
// ever.
func TestWatchRefusesASequenceAboveTheNewest(t *testing.T) {
	t.Attr("rules", "S5 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		newest := r.Get(t, id).GetHistory()[0].GetSequence()
		parsed, _ := lease.ParseTaskID(id)
		unknown := lease.TaskID{Space: parsed.Space, Seq: parsed.Seq + 1000}.String()
		for name, tt := range map[string]struct {
			req  *lessorv1.WatchTaskRequest
			want codes.Code
		}{
			"unknown task":              {&lessorv1.WatchTaskRequest{TaskId: unknown, AfterSequence: newest + 1}, codes.NotFound},
			"task":                      {&lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: newest + 1}, codes.InvalidArgument},
			"run":                       {&lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: newest + 1}, codes.InvalidArgument},
			"task in another workspace": {&lessorv1.WatchTaskRequest{TaskId: lease.TaskID{Space: 99}.String(), AfterSequence: 1}, codes.NotFound},
		} {
			if _, err := wiretest.WatchAll(t.Context(), r, tt.req); status.Code(err) != tt.want {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: newest})
		runTask(t, r)
		if got := wiretest.EventNames(stop()); got != strings.TrimPrefix(lifeEvents, "SUBMITTED ") {
			t.Errorf("after the newest sequence: %s, want %s", got, strings.TrimPrefix(lifeEvents, "SUBMITTED "))
		}
	})
}

// S5, A11: after a restore, a watch is refused if it resumes after an event that happened after the
// backup and so was lost, even if the workspace has had more events since the restore than were
// lost. A watch that resumes after an event of the backup gets all events after that one.
func TestWatchAfterARestore(t *testing.T) {
	t.Attr("rules", "S5 A11")
	st := memstore.New()
	var backup bytes.Buffer
	var kept, lost uint64
	inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		sequence := func() uint64 { return r.Get(t, r.Submit(t, inRun).GetTaskId()).GetHistory()[0].GetSequence() }
		kept = sequence()
		if _, err := st.Snapshot(&backup); err != nil {
			t.Fatal(err)
		}
		lost = sequence()
	})
	restored, err := memstore.Restore(&backup)
	if err != nil {
		t.Fatal(err)
	}
	wiretest.ServeWith(t, restored, coordinator.Config{Recovery: engine.RestoredStore}, func(t *testing.T, r *wiretest.Rig) {
		for range 3 {
			r.Submit(t, inRun)
		}
		if events, err := wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: lost}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("after a lost event: %s (%v), want INVALID_ARGUMENT", wiretest.EventNames(events), err)
		}
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: kept})
		if got := wiretest.EventNames(stop()); got != "SUBMITTED SUBMITTED SUBMITTED" {
			t.Errorf("after an event of the backup: %s, want SUBMITTED three times", got)
		}
	})
}

// S5, A11: after a restore, a watch resumes after every sequence that it has sent, also after one
// just below the first that was given out since. No event has it, like those of the lost ones, but
// it is that of a note about events that are no longer kept.
func TestWatchAfterARestoreResumesAfterANote(t *testing.T) {
	t.Attr("rules", "S5 A11")
	st := memstore.New()
	var backup bytes.Buffer
	var id string
	again := func(t *testing.T, r *wiretest.Rig, times int) { // two events each
		for range times {
			if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		id = r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		again(t, r, 1)
		if _, err := st.Snapshot(&backup); err != nil {
			t.Fatal(err)
		}
	})
	restored, err := memstore.Restore(&backup)
	if err != nil {
		t.Fatal(err)
	}
	wiretest.ServeWith(t, restored, coordinator.Config{Recovery: engine.RestoredStore}, func(t *testing.T, r *wiretest.Rig) {
		again(t, r, lease.MaxHistory/2)
		for name, req := range map[string]*lessorv1.WatchTaskRequest{"task": {TaskId: id}, "run": {RunId: "run"}} {
			all := wiretest.WatchInBackground(t, r, req)()
			if !strings.HasPrefix(wiretest.EventNames(all), "missed(3,0) CANCEL_REQUESTED") {
				t.Fatalf("watch of a %s: %.40s, want a note and all events since the restore", name, wiretest.EventNames(all))
			}
			req.AfterSequence = all[0].GetSequence()
			if got := wiretest.WatchInBackground(t, r, req)(); !strings.HasSuffix(wiretest.EventNames(got), wiretest.EventNames(all[1:])) {
				t.Errorf("watch of a %s: after sequence %d it has %d events, want %d",
					name, req.GetAfterSequence(), len(got), len(all)-1)
			}
		}
	})
}

// When a task is deleted, its watch sends the event deleted and ends.
func TestWatchEndsWithADeletedTask(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var events []*lessorv1.WatchTaskResponse
		ended := make(chan error)
		go func() {
			var err error
			events, err = wiretest.WatchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id})
			ended <- err
		}()
		synctest.Wait()
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || wiretest.EventNames(events) != "SUBMITTED deleted" {
			t.Errorf("the events are %s, and the watch ended with %v; want SUBMITTED deleted, and OK",
				wiretest.EventNames(events), err)
		}
	})
}

// S5: the watch of a run has the events of all its tasks and of no others, and resumes without a
// gap. Some of the tasks are older than the index of runs.
func TestWatchRun(t *testing.T) {
	t.Attr("rules", "S5")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
		r.Submit(t, nil)
		runTask(t, r)
		first := r.Submit(t, inRun).GetTaskId()
		markOlderTasks(t, st, first)
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})
		runTask(t, r)
		second := r.Submit(t, inRun).GetTaskId()
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId, s.Priority = "other", -1 })
		runTask(t, r)
		live := stop()
		if got := wiretest.EventNames(live); got != lifeEvents+" "+lifeEvents {
			t.Errorf("the events are %s, want twice %s", got, lifeEvents)
		}
		wiretest.WantIncreasing(t, live)
		if live[0].GetTaskId() != first || live[len(live)-1].GetTaskId() != second {
			t.Errorf("the first and the last event are of %s and %s, want %s and %s",
				live[0].GetTaskId(), live[len(live)-1].GetTaskId(), first, second)
		}
		durable := strings.ReplaceAll(lifeEvents, " progress", "")
		resumed := wiretest.WatchInBackground(t, r,
			&lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: live[4].GetSequence()})()
		if got := wiretest.EventNames(resumed); got != durable {
			t.Errorf("resumed after the first task: %s, want %s", got, durable)
		}
	})
}

// S5: the watch of a run resumes without a gap after each event, also if several tasks change in
// one commit, and the first change of one of them makes no event: its events may then have higher
// sequences than those of the tasks that follow.
func TestWatchOfARunResumesAfterEachEventOfACommit(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for range 2 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
		}
		worker := r.OpenSession(t, "w", 2)
		work := worker.ReceiveAssignments(2)
		worker.Report(wiretest.Started(work[0]), wiretest.Started(work[1]))
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})
		// one frame is one batch
		worker.Report(wiretest.Started(work[0]), wiretest.Completed(work[1], ""), wiretest.Completed(work[0], ""))
		live := stop()
		for i, e := range live {
			got := map[uint64]bool{}
			for _, again := range wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: e.GetSequence()})() {
				got[again.GetHistory().GetSequence()] = true
			}
			for _, later := range live[i+1:] {
				if seq := later.GetHistory().GetSequence(); !got[seq] {
					t.Errorf("a watch that resumes after event %d, at sequence %d, does not get event %d",
						e.GetHistory().GetSequence(), e.GetSequence(), seq)
				}
			}
		}
		if n := len(live); n != 10 {
			t.Errorf("the watch has %d events (%s), want 10", n, wiretest.EventNames(live))
		}
	})
}

// S5: a watch of a run that resumes after the note about events that are no longer kept gets all
// events of other tasks. The number before that of the first event that a task keeps is that of
// another task's event.
func TestWatchOfARunResumesAfterANote(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
		id := r.Submit(t, inRun).GetTaskId()
		begin := func() { // two events
			if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.Tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
		}
		begin()
		other := r.Submit(t, inRun).GetTaskId()
		for range lease.MaxHistory / 2 {
			begin()
		}
		all := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})()
		for i, e := range all {
			got := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: e.GetSequence()})()
			isOthers := func(e *lessorv1.WatchTaskResponse) bool { return e.GetTaskId() == other }
			if slices.ContainsFunc(all[i+1:], isOthers) && !slices.ContainsFunc(got, isOthers) {
				t.Errorf("a watch that resumes after %s, at sequence %d, does not get the event of the other task",
					wiretest.EventNames(all[:i+1]), e.GetSequence())
			}
		}
		if want := "missed(3,0) SUBMITTED CANCEL_REQUESTED"; !strings.HasPrefix(wiretest.EventNames(all), want) {
			t.Errorf("the watch has %.60s, want %s ...", wiretest.EventNames(all), want)
		}
	})
}

// stoppingStore is a store whose reads begin when stop has taken effect.
type stoppingStore struct {
	store.Store
	stop func()
}

func (s stoppingStore) View(fn func(store.Reader) error) error {
	s.stop()
	time.Sleep(time.Millisecond)
	return s.Store.View(fn)
}

// S5: if the coordinator stops while a watch reads the history of a run, the watch sends no event.
// If it sent those of the tasks that it has read, the client would resume after them, and miss
// earlier events of other tasks.
func TestWatchOfARunDuringAStopLeavesNoEventOut(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for range 2 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
		}
		r.Complete(t, r.Lease(t), "")
		stopping, stop := context.WithCancel(t.Context())
		shared := r.Services.Shared()
		shared.Stopping, shared.Store = stopping, stoppingStore{shared.Store, stop}
		events, err := wiretest.WatchAll(t.Context(), r, &lessorv1.WatchTaskRequest{RunId: "run"})
		if len(events) > 0 || refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("the watch has the events %s and ended with %v, want none and %s",
				wiretest.EventNames(events), err, refusal.CodeStopping)
		}
	})
}

// S5: the headers of a watch come once it has begun, even if there is no event to send. So a client
// that lists the tasks after that misses no deletion.
func TestHeadersOfAWatchComeOnceItHasBegun(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		all := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})()
		stream, err := r.Tasks.WatchTask(t.Context(),
			&lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: all[0].GetSequence()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		if e, err := stream.Recv(); err != nil || e.GetDeleted() == nil || e.GetTaskId() != id {
			t.Errorf("the first event is %v (%v), want that the task was deleted", e, err)
		}
	})
}

// A watch needs either a task or a run, and an error says so.
func TestWatchNeedsOneTarget(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		for name, tt := range map[string]struct {
			req  *lessorv1.WatchTaskRequest
			want string
		}{
			"none": {&lessorv1.WatchTaskRequest{}, "task_id: is empty, and so is run_id; set exactly one of them"},
			"both": {&lessorv1.WatchTaskRequest{TaskId: id, RunId: "run"}, "run_id: is set together with task_id; set only one of them"},
		} {
			_, err := wiretest.WatchAll(t.Context(), r, tt.req)
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("%s: %v, want INVALID_ARGUMENT", name, err)
			}
			wiretest.WantEqual(t, name, status.Convert(err).Message(), tt.want)
		}
	})
}

// S5: a watch of a run waits for its first task, also in a workspace that has none yet. Such a
// workspace has no event after which a watch could resume.
func TestWatchBeginsBeforeTheFirstTask(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		for _, workspace := range []string{"empty", convert.DefaultWorkspace} {
			req := &lessorv1.WatchTaskRequest{RunId: "run", WorkspaceId: workspace}
			_, err := wiretest.WatchAll(t.Context(), r,
				&lessorv1.WatchTaskRequest{RunId: "run", WorkspaceId: workspace, AfterSequence: 1})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("a watch after an event that workspace %s has not had: %v, want INVALID_ARGUMENT", workspace, err)
			}
			stop := wiretest.WatchInBackground(t, r, req)
			for _, run := range []string{"other", "run"} {
				r.Submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.RunId = workspace, run })
			}
			if got := wiretest.EventNames(stop()); got != "SUBMITTED" {
				t.Errorf("a watch of a run in workspace %s got %q, want its one task", workspace, got)
			}
			if got := wiretest.EventNames(wiretest.WatchInBackground(t, r, req)()); got != "SUBMITTED" {
				t.Errorf("a later watch of the run in workspace %s got %q, want the same", workspace, got)
			}
		}
	})
}

// S5: a watch of a run that was told of dropped news sends no event again that came with earlier
// news.
func TestCatchUpOfARunSendsNothingTwice(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id, _ := lease.ParseTaskID(r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId())
		var sent []*lessorv1.WatchTaskResponse
		w := r.Services.WatchRun(t.Context(), func(m *lessorv1.WatchTaskResponse) error { sent = append(sent, m); return nil })
		newest := func() *engine.News {
			task, err := r.Services.Task(id)
			if err != nil {
				t.Fatal(err)
			}
			return &engine.News{ID: id, Task: task}
		}
		tell := func() {
			if err := w.Tell(newest()); err != nil {
				t.Fatal(err)
			}
		}
		tell()
		if err := w.Skipped(1, 0); err != nil {
			t.Fatal(err)
		}
		tell()
		r.Lease(t)
		tell()
		wiretest.WantEqual(t, "what was sent", wiretest.EventNames(sent), "SUBMITTED missed(0,1) GRANTED")
	})
}

// S5: when a watch of a run has caught up, news may wait that is older than what it has sent.
// Progress in it has the state that was sent last: no later event would correct it.
func TestProgressThatWasOvertakenHasTheLatestState(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var last *lessorv1.WatchTaskResponse
		w := r.Services.WatchRun(t.Context(), func(m *lessorv1.WatchTaskResponse) error { last = m; return nil })
		progress := func(a *lessorv1.Assignment) *engine.News {
			id, _ := lease.ParseTaskID(a.GetTask().GetTaskId())
			n := &engine.News{ID: id, Feed: &engine.Feed{Stage: "one"}, Sum: &lease.Feedback{Stage: "one"}}
			var err error
			if n.Task, err = r.Services.Task(id); err != nil {
				t.Fatal(err)
			}
			return n
		}
		wantState := func(n *engine.News, want lessorv1.TaskState) {
			t.Helper()
			if err := w.Tell(n); err != nil {
				t.Fatal(err)
			}
			if last.GetProgress() == nil || last.GetTaskState() != want {
				t.Errorf("the last event is %v, want progress of a task that is %v", last, want)
			}
		}
		var all []*lessorv1.Assignment
		for range 3 {
			r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
			all = append(all, r.Lease(t))
		}
		leased, ends, goes := progress(all[0]), progress(all[1]), progress(all[2])
		r.Start(t, all[0])
		r.Complete(t, all[1], "")
		if err := w.CatchUp(); err != nil {
			t.Fatal(err)
		}
		wantState(ends, lessorv1.TaskState_TASK_STATE_COMPLETED)
		wantState(leased, lessorv1.TaskState_TASK_STATE_RUNNING)
		wantState(goes, lessorv1.TaskState_TASK_STATE_LEASED)
		r.Complete(t, all[0], "") // its news comes after this progress
		wantState(leased, lessorv1.TaskState_TASK_STATE_RUNNING)
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: all[1].GetTask().GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		wantState(ends, lessorv1.TaskState_TASK_STATE_LEASED) // the news that it is deleted follows
	})
}

// S5: a watch that has missed news sends the durable events of these before those of the next news,
// so that a client which resumes after one of them misses none.
func TestWatchOfARunSendsMissedEventsFirst(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		var news []*engine.News
		for range 3 {
			id, _ := lease.ParseTaskID(r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId())
			n := &engine.News{ID: id}
			var err error
			if n.Task, err = r.Services.Task(id); err != nil {
				t.Fatal(err)
			}
			news = append(news, n)
		}
		var sent []*lessorv1.WatchTaskResponse
		w := r.Services.WatchRun(t.Context(), func(m *lessorv1.WatchTaskResponse) error { sent = append(sent, m); return nil })
		for _, tt := range []struct {
			news   *engine.News
			missed engine.Missed
		}{
			{news[0], engine.Missed{}},
			{news[2], engine.Missed{All: 1}},
			{&engine.News{ID: news[0].ID}, engine.Missed{All: 2, Gone: 1}},
		} {
			if err := w.PassOn(tt.news, tt.missed); err != nil {
				t.Fatal(err)
			}
		}
		wiretest.WantEqual(t, "what was sent", wiretest.EventNames(sent),
			"SUBMITTED missed(0,1) SUBMITTED SUBMITTED missed(1,1) deleted")
		wiretest.WantIncreasing(t, sent)
	})
}

// S5: a watch of a run has every event of a run that is too long for one read of the store, once
// and in order.
func TestWatchOfALongRun(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		tasks := *service.WatchStep + 1000 // with two events each
		specs := slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q", RunId: "run"}}, 1000)
		for range tasks / len(specs) {
			if _, err := r.Tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		for req := (&lessorv1.BatchCancelTasksRequest{All: true}); ; {
			res, err := r.Tasks.BatchCancelTasks(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if req.PageToken = res.GetResult().GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		events, last := 0, uint64(0)
		w := r.Services.WatchRun(t.Context(), func(m *lessorv1.WatchTaskResponse) error {
			if m.GetSequence() <= last {
				t.Errorf("event %d comes after %d", m.GetSequence(), last)
			}
			events, last = events+1, m.GetSequence()
			return nil
		})
		if err := w.CatchUp(); err != nil || events != 2*tasks {
			t.Errorf("%d events (%v), want %d", events, err, 2*tasks)
		}
	})
}

// S5: a watch of a task that has ended ends at once, also if it resumes after a later event of
// another task.
func TestWatchAfterTheLastEventEnds(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		runTask(t, r)
		later := r.Get(t, r.Submit(t, nil).GetTaskId()).GetHistory()[0].GetSequence()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events, err := wiretest.WatchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: later})
		if err != nil || len(events) != 0 {
			t.Errorf("%s (%v), want no event and the end", wiretest.EventNames(events), err)
		}
	})
}

// S5: a watcher that does not read for a while delays nobody. When it reads again, it gets the
// number of volatile events that it missed, every durable event, the newest volatile events, and
// the end.
func TestSlowWatcherIsToldWhatItMissed(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, nil).GetTaskId()
		stream, err := r.Tasks.WatchTask(t.Context(), &lessorv1.WatchTaskRequest{TaskId: id})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a := r.Lease(t)
		r.Start(t, a)
		beat := &lessorv1.HeartbeatRequest{
			TaskId: id, LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Message: wiretest.Text(32 << 10)},
		}
		for i := range 400 { // nobody reads, so the windows and then the queue of news fill up
			beat.Progress.Fraction = float64(i+1) / 400
			if _, err := r.Workers.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		r.Complete(t, a, "")
		synctest.Wait()
		var events []*lessorv1.WatchTaskResponse
		var newest float64
		for err == nil {
			var e *lessorv1.WatchTaskResponse
			if e, err = stream.Recv(); err == nil {
				events = append(events, e)
				newest = max(newest, e.GetProgress().GetFraction())
			}
		}
		if newest != 1 {
			t.Errorf("the newest progress is %v, want that of the last heartbeat, which was not among the dropped ones", newest)
		}
		for _, e := range events {
			if missed := e.GetMissed(); missed != nil && (missed.GetVolatile() == 0 || e.GetTaskId() != id) {
				t.Errorf("the event %v has no number of missed events or another task than %s", e, id)
			}
		}
		words := wiretest.EventNames(events)
		if !errors.Is(err, io.EOF) || !strings.Contains(words, "missed(0,") || !strings.HasSuffix(words, " COMPLETED") ||
			!strings.HasPrefix(words, "SUBMITTED GRANTED STARTED") {
			t.Errorf("%d events (%v): %.300s, want the durable events, a number of missed volatile events, and EOF",
				len(events), err, strings.ReplaceAll(words, " progress", ""))
		}
		wiretest.WantIncreasing(t, events)
	})
}

// S5: a watcher of a run that did not read for a while gets the deletion of each task, or the
// deletion is counted as a missed durable event, because no later event would show it.
func TestSlowWatcherOfARunIsToldOfDeletedTasks(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
		r.Submit(t, inRun)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stream, err := r.Tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		a := r.Lease(t)
		r.Start(t, a)
		const others = 600
		for range others {
			r.Submit(t, inRun)
		}
		beat := &lessorv1.HeartbeatRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(),
			Progress: &lessorv1.Progress{Message: wiretest.Text(32 << 10)},
		}
		for i := range 400 { // nobody reads, so the windows and then the queue of news fill up
			beat.Progress.Fraction = float64(i+1) / 400
			if _, err := r.Workers.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		waiting := &lessorv1.TaskFilter{RunId: "run", States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_READY}}
		deleted, err := r.Tasks.BatchDeleteTasks(t.Context(), &lessorv1.BatchDeleteTasksRequest{Filter: waiting})
		if err != nil || deleted.GetResult().GetChanged() != others {
			t.Fatalf("%v, %v; want %d deleted", deleted, err, others)
		}
		r.Complete(t, a, "")
		synctest.Wait()
		got, missed := 0, uint64(0)
		for err == nil {
			var e *lessorv1.WatchTaskResponse
			if e, err = stream.Recv(); e.GetDeleted() != nil {
				got++
			}
			missed += e.GetMissed().GetDurable()
		}
		if missed == 0 || got+int(missed) != others {
			t.Errorf("got %d deletions and %d missed durable events, want %d in all, some of them missed", got, missed, others)
		}
	})
}

// S5: a watcher of a run that did not read for a while gets every durable event exactly once;
// events that were sent to it before are not sent again.
func TestSlowWatcherOfARunGetsNothingTwice(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.Tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a := r.Lease(t)
		r.Start(t, a)
		synctest.Wait()
		beat := &lessorv1.HeartbeatRequest{
			TaskId: id, LeaseId: a.GetLeaseId(),
			Progress: &lessorv1.Progress{Message: wiretest.Text(32 << 10)},
		}
		for i := range 400 { // nobody reads, so the windows and then the queue of news fill up
			beat.Progress.Fraction = float64(i+1) / 400
			if _, err := r.Workers.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		r.Complete(t, a, "")
		synctest.Wait()
		var events []*lessorv1.WatchTaskResponse
		for !strings.HasSuffix(wiretest.EventNames(events), "COMPLETED") {
			e, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e.GetProgress() == nil {
				events = append(events, e)
			}
		}
		words := strings.Fields(wiretest.EventNames(events))
		durable := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.HasPrefix(w, "missed(0,") })
		if len(durable) == len(words) || strings.Join(durable, " ") != "SUBMITTED GRANTED STARTED COMPLETED" {
			t.Errorf("the events are %s, want each durable event once, and some missed", words)
		}
	})
}
