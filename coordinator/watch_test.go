package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// lifeEvents are the events of a task that runTask completes.
const lifeEvents = "SUBMITTED GRANTED STARTED progress COMPLETED"

// runTask leases the waiting task, starts it, sends one progress, and completes it.
func runTask(t *testing.T, r *rig) {
	t.Helper()
	a := r.lease(t)
	r.start(t, a)
	_, err := r.workers.Heartbeat(t.Context(), &lessorv1.HeartbeatRequest{
		TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Fraction: 0.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // the coordinator passes progress on after the answer
	r.complete(t, a, "")
}

// S5: a watch sends past and new events, and ends with the task. A watch that begins later sends only the durable events.
func TestWatchFollowsATaskToItsEnd(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		stop := watchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		runTask(t, r)
		events := stop()
		if got := eventNames(events); got != lifeEvents {
			t.Errorf("the events are %s, want %s", got, lifeEvents)
		}
		wantIncreasing(t, events)
		if state := events[3].GetTaskState(); state != lessorv1.TaskState_TASK_STATE_RUNNING {
			t.Errorf("the progress event has the task state %v, want RUNNING", state)
		}
		if last := events[len(events)-1]; last.GetTaskState() != lessorv1.TaskState_TASK_STATE_COMPLETED {
			t.Errorf("the last event is %v, want the task state COMPLETED", last)
		}
		again, err := watchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id})
		if err != nil || eventNames(again) != "SUBMITTED GRANTED STARTED COMPLETED" {
			t.Errorf("a later watch: %s (%v), want the durable events and the end", eventNames(again), err)
		}
	})
}

// S5: a watch that resumes after an event begins with the next event. This holds for every event.
func TestWatchResumesAfterASequence(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		runTask(t, r)
		all, err := watchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id})
		if err != nil {
			t.Fatal(err)
		}
		for i, e := range all {
			rest, err := watchAll(t.Context(), r, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: e.GetSequence()})
			if err != nil || eventNames(rest) != eventNames(all[i+1:]) {
				t.Errorf("after sequence %d: %s (%v), want %s", e.GetSequence(), eventNames(rest), err, eventNames(all[i+1:]))
			}
		}
	})
}

// S5, S4: after_sequence above the newest event is refused, because such a watch would wait for ever.
func TestWatchRefusesASequenceAboveTheNewest(t *testing.T) {
	t.Attr("rules", "S5 S4")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		newest := r.get(t, id).GetHistory()[0].GetSequence()
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
			if _, err := watchAll(t.Context(), r, tt.req); status.Code(err) != tt.want {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
		stop := watchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: newest})
		runTask(t, r)
		if got := eventNames(stop()); got != strings.TrimPrefix(lifeEvents, "SUBMITTED ") {
			t.Errorf("after the newest sequence: %s, want %s", got, strings.TrimPrefix(lifeEvents, "SUBMITTED "))
		}
	})
}

// S5, A11: after a restore, a watch is refused if it resumes after an event that happened after the backup and so was lost, even if the workspace has had
// more events since the restore than were lost. A watch that resumes after an event of the backup gets all events after that one.
func TestWatchAfterARestore(t *testing.T) {
	t.Attr("rules", "S5 A11")
	st := memstore.New()
	var backup bytes.Buffer
	var kept, lost uint64
	inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
	serve(t, st, func(t *testing.T, r *rig) {
		sequence := func() uint64 { return r.get(t, r.submit(t, inRun).GetTaskId()).GetHistory()[0].GetSequence() }
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
	serveWith(t, restored, Config{Recovery: engine.RestoredStore}, func(t *testing.T, r *rig) {
		for range 3 {
			r.submit(t, inRun)
		}
		if events, err := watchAll(t.Context(), r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: lost}); status.Code(err) != codes.InvalidArgument {
			t.Errorf("after a lost event: %s (%v), want INVALID_ARGUMENT", eventNames(events), err)
		}
		stop := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: kept})
		if got := eventNames(stop()); got != "SUBMITTED SUBMITTED SUBMITTED" {
			t.Errorf("after an event of the backup: %s, want SUBMITTED three times", got)
		}
	})
}

// S5, A11: after a restore, a watch resumes after every sequence that it has sent, also after one just below the first that was given out since. No event has it,
// like those of the lost ones, but it is that of a note about events that are no longer kept.
func TestWatchAfterARestoreResumesAfterANote(t *testing.T) {
	t.Attr("rules", "S5 A11")
	st := memstore.New()
	var backup bytes.Buffer
	var id string
	again := func(t *testing.T, r *rig, times int) { // two events each
		for range times {
			if _, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
		}
	}
	serve(t, st, func(t *testing.T, r *rig) {
		id = r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		again(t, r, 1)
		if _, err := st.Snapshot(&backup); err != nil {
			t.Fatal(err)
		}
	})
	restored, err := memstore.Restore(&backup)
	if err != nil {
		t.Fatal(err)
	}
	serveWith(t, restored, Config{Recovery: engine.RestoredStore}, func(t *testing.T, r *rig) {
		again(t, r, lease.MaxHistory/2)
		for name, req := range map[string]*lessorv1.WatchTaskRequest{"task": {TaskId: id}, "run": {RunId: "run"}} {
			all := watchInBackground(t, r, req)()
			if !strings.HasPrefix(eventNames(all), "missed(3,0) CANCEL_REQUESTED") {
				t.Fatalf("watch of a %s: %.40s, want a note and all events since the restore", name, eventNames(all))
			}
			req.AfterSequence = all[0].GetSequence()
			if got := watchInBackground(t, r, req)(); !strings.HasSuffix(eventNames(got), eventNames(all[1:])) {
				t.Errorf("watch of a %s: after sequence %d it has %d events, want %d", name, req.GetAfterSequence(), len(got), len(all)-1)
			}
		}
	})
}

// When a task is deleted, its watch sends the event deleted and ends.
func TestWatchEndsWithADeletedTask(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var events []*lessorv1.WatchTaskResponse
		ended := make(chan error)
		go func() {
			var err error
			events, err = watchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id})
			ended <- err
		}()
		synctest.Wait()
		if _, err := r.tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		if err := <-ended; err != nil || eventNames(events) != "SUBMITTED deleted" {
			t.Errorf("the events are %s, and the watch ended with %v; want SUBMITTED deleted, and OK", eventNames(events), err)
		}
	})
}

// S5: the watch of a run has the events of all its tasks and of no others, and resumes without a gap. Some of the tasks are older than the index of runs.
func TestWatchRun(t *testing.T) {
	t.Attr("rules", "S5")
	st := memstore.New()
	serve(t, st, func(t *testing.T, r *rig) {
		inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
		r.submit(t, nil)
		runTask(t, r)
		first := r.submit(t, inRun).GetTaskId()
		markOlderTasks(t, st, first)
		stop := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})
		runTask(t, r)
		second := r.submit(t, inRun).GetTaskId()
		r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId, s.Priority = "other", -1 })
		runTask(t, r)
		live := stop()
		if got := eventNames(live); got != lifeEvents+" "+lifeEvents {
			t.Errorf("the events are %s, want twice %s", got, lifeEvents)
		}
		wantIncreasing(t, live)
		if live[0].GetTaskId() != first || live[len(live)-1].GetTaskId() != second {
			t.Errorf("the first and the last event are of %s and %s, want %s and %s", live[0].GetTaskId(), live[len(live)-1].GetTaskId(), first, second)
		}
		durable := strings.ReplaceAll(lifeEvents, " progress", "")
		resumed := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: live[4].GetSequence()})()
		if got := eventNames(resumed); got != durable {
			t.Errorf("resumed after the first task: %s, want %s", got, durable)
		}
	})
}

// S5: the watch of a run resumes without a gap after each event, also if several tasks change in one commit, and the first change of one of them makes
// no event: its events may then have higher sequences than those of the tasks that follow.
func TestWatchOfARunResumesAfterEachEventOfACommit(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		for range 2 {
			r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
		}
		worker := r.openSession(t, "w", 2)
		work := worker.receiveAssignments(2)
		worker.report(started(work[0]), started(work[1]))
		stop := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})
		worker.report(started(work[0]), completed(work[1], ""), completed(work[0], "")) // one frame is one batch
		live := stop()
		for i, e := range live {
			got := map[uint64]bool{}
			for _, again := range watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: e.GetSequence()})() {
				got[again.GetHistory().GetSequence()] = true
			}
			for _, later := range live[i+1:] {
				if seq := later.GetHistory().GetSequence(); !got[seq] {
					t.Errorf("a watch that resumes after event %d, at sequence %d, does not get event %d", e.GetHistory().GetSequence(), e.GetSequence(), seq)
				}
			}
		}
		if n := len(live); n != 10 {
			t.Errorf("the watch has %d events (%s), want 10", n, eventNames(live))
		}
	})
}

// S5: a watch of a run that resumes after the note about events that are no longer kept gets all events of other tasks. The number before that of the first
// event that a task keeps is that of another task's event.
func TestWatchOfARunResumesAfterANote(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
		id := r.submit(t, inRun).GetTaskId()
		begin := func() { // two events
			if _, err := r.tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
			if _, err := r.tasks.RetryTask(t.Context(), &lessorv1.RetryTaskRequest{TaskId: id}); err != nil {
				t.Fatal(err)
			}
		}
		begin()
		other := r.submit(t, inRun).GetTaskId()
		for range lease.MaxHistory / 2 {
			begin()
		}
		all := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})()
		for i, e := range all {
			got := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: e.GetSequence()})()
			isOthers := func(e *lessorv1.WatchTaskResponse) bool { return e.GetTaskId() == other }
			if slices.ContainsFunc(all[i+1:], isOthers) && !slices.ContainsFunc(got, isOthers) {
				t.Errorf("a watch that resumes after %s, at sequence %d, does not get the event of the other task", eventNames(all[:i+1]), e.GetSequence())
			}
		}
		if want := "missed(3,0) SUBMITTED CANCEL_REQUESTED"; !strings.HasPrefix(eventNames(all), want) {
			t.Errorf("the watch has %.60s, want %s ...", eventNames(all), want)
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

// S5: if the coordinator stops while a watch reads the history of a run, the watch sends no event. If it sent those of the tasks that it has read, the
// client would resume after them, and miss earlier events of other tasks.
func TestWatchOfARunDuringAStopLeavesNoEventOut(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		for range 2 {
			r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
		}
		r.complete(t, r.lease(t), "")
		stopping, stop := context.WithCancel(t.Context())
		r.edge.stopping, r.edge.store = stopping, stoppingStore{r.edge.store, stop}
		events, err := watchAll(t.Context(), r, &lessorv1.WatchTaskRequest{RunId: "run"})
		if len(events) > 0 || refusal.CodeOf(err) != refusal.CodeStopping {
			t.Errorf("the watch has the events %s and ended with %v, want none and %s", eventNames(events), err, refusal.CodeStopping)
		}
	})
}

// S5: the headers of a watch come once it has begun, even if there is no event to send. So a client that lists the tasks after that misses no deletion.
func TestHeadersOfAWatchComeOnceItHasBegun(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		all := watchInBackground(t, r, &lessorv1.WatchTaskRequest{RunId: "run"})()
		stream, err := r.tasks.WatchTask(t.Context(), &lessorv1.WatchTaskRequest{RunId: "run", AfterSequence: all[0].GetSequence()})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Header(); err != nil {
			t.Fatal(err)
		}
		if _, err := r.tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		if e, err := stream.Recv(); err != nil || e.GetDeleted() == nil || e.GetTaskId() != id {
			t.Errorf("the first event is %v (%v), want that the task was deleted", e, err)
		}
	})
}

// A watch needs either a task or a run.
func TestWatchNeedsOneTarget(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		for name, tt := range map[string]struct {
			req  *lessorv1.WatchTaskRequest
			want codes.Code
		}{
			"none": {&lessorv1.WatchTaskRequest{}, codes.InvalidArgument},
			"both": {&lessorv1.WatchTaskRequest{TaskId: id, RunId: "run"}, codes.InvalidArgument},
		} {
			if _, err := watchAll(t.Context(), r, tt.req); status.Code(err) != tt.want {
				t.Errorf("%s: %v, want %v", name, err, tt.want)
			}
		}
	})
}

// S5: a watch of a run waits for its first task, also in a workspace that has none yet. Such a workspace has no event after which a watch could resume.
func TestWatchBeginsBeforeTheFirstTask(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		for _, workspace := range []string{"empty", convert.DefaultWorkspace} {
			req := &lessorv1.WatchTaskRequest{RunId: "run", WorkspaceId: workspace}
			_, err := watchAll(t.Context(), r, &lessorv1.WatchTaskRequest{RunId: "run", WorkspaceId: workspace, AfterSequence: 1})
			if status.Code(err) != codes.InvalidArgument {
				t.Errorf("a watch after an event that workspace %s has not had: %v, want INVALID_ARGUMENT", workspace, err)
			}
			stop := watchInBackground(t, r, req)
			for _, run := range []string{"other", "run"} {
				r.submit(t, func(s *lessorv1.TaskSpec) { s.WorkspaceId, s.RunId = workspace, run })
			}
			if got := eventNames(stop()); got != "SUBMITTED" {
				t.Errorf("a watch of a run in workspace %s got %q, want its one task", workspace, got)
			}
			if got := eventNames(watchInBackground(t, r, req)()); got != "SUBMITTED" {
				t.Errorf("a later watch of the run in workspace %s got %q, want the same", workspace, got)
			}
		}
	})
}

// T10: a watch reports the events that were dropped from a history as missed, once.
func TestDroppedEventsAreReportedAsMissed(t *testing.T) {
	t.Attr("rules", "T10")
	task := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 5}, Spec: &lease.Spec{}, Dropped: 3,
		History: []lease.Event{{Seq: 20, Type: lease.EventGranted}, {Seq: 22, Type: lease.EventStarted}},
	}
	for _, tt := range []struct {
		after uint64
		want  string
	}{
		{0, "19:missed 4, 20, 22"}, {7, "19:missed 4, 20, 22"}, {18, "19:missed 4, 20, 22"}, {19, "20, 22"}, {20, "22"}, {22, ""}, {99, ""},
	} {
		var got []string
		for _, e := range unsentEvents(task, tt.after) {
			if e.missed > 0 {
				got = append(got, fmt.Sprintf("%d:missed %d", e.seq, e.missed))
			} else {
				got = append(got, fmt.Sprint(e.event.Seq))
			}
		}
		if s := strings.Join(got, ", "); s != tt.want {
			t.Errorf("after %d: %s, want %s", tt.after, s, tt.want)
		}
	}
}

// A watch of a run sends the changes of one commit task by task, so that the sequences of their events may interleave. It sends no event twice, and no
// event has a sequence from which a resume would skip another event of the commit.
func TestEventsOfOneCommitMayInterleave(t *testing.T) {
	var got []string
	w := &runWatcher{toldOf: map[lease.TaskID]uint64{}, caughtUp: 1, eventSender: &eventSender{send: func(m *lessorv1.WatchTaskResponse) error {
		got = append(got, fmt.Sprintf("%d resume %d", m.GetHistory().GetSequence(), m.GetSequence()))
		return nil
	}}}
	version := func(later, id uint64, seqs ...uint64) *engine.News {
		task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: id}, Spec: &lease.Spec{}}
		for _, seq := range seqs {
			task.History = append(task.History, lease.Event{Seq: seq})
		}
		return &engine.News{ID: task.ID, Task: task, Later: later}
	}
	progress := version(0, 2, 3, 6)
	progress.Feed = &engine.Feed{}
	for _, commit := range [][]*engine.News{
		{version(2, 1, 4), version(0, 2, 3)},
		{version(6, 1, 4, 7), version(0, 2, 3, 6)},
		{version(0, 1, 4, 7, 8, 9)},
		{version(10, 1, 4, 7, 8, 9, 11), progress, version(0, 2, 3, 6, 10)}, // the progress of a task comes before its event
		{progress},
	} {
		for _, n := range commit {
			if err := w.tell(n); err != nil {
				t.Fatal(err)
			}
		}
		if len(w.toldOf) > 0 { // or a watch would hold all tasks of a long run
			t.Errorf("after a commit %d tasks are noted, want none", len(w.toldOf))
		}
	}
	if w.caughtUp > 0 {
		t.Error("after news that are newer than what catchUp has sent, progress still reads the store")
	}
	want := "1 resume 1, 4 resume 1, 2 resume 2, 3 resume 3, 7 resume 5, 6 resume 6, 8 resume 8, 9 resume 9, 11 resume 9, 10 resume 10"
	if s := strings.Join(got, ", "); s != want {
		t.Errorf("sent %s\nwant %s", s, want)
	}
}

// S5: a watch of a run that was told of dropped news sends no event again that came with earlier news.
func TestCatchUpOfARunSendsNothingTwice(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id, _ := lease.ParseTaskID(r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId())
		var sent []*lessorv1.WatchTaskResponse
		w := &runWatcher{edge: r.edge, ctx: t.Context(), space: engine.Space{Tenant: gate.DefaultTenant, Workspace: convert.DefaultWorkspace}, run: "run", toldOf: map[lease.TaskID]uint64{}, eventSender: &eventSender{
			send: func(m *lessorv1.WatchTaskResponse) error { sent = append(sent, m); return nil },
		}}
		newest := func() *engine.News {
			var task *lease.Task
			if err := r.edge.view(func(rd store.Reader) (err error) { task, err = readTask(rd, gate.DefaultTenant, id); return err }); err != nil {
				t.Fatal(err)
			}
			return &engine.News{ID: id, Task: task}
		}
		tell := func() {
			if err := w.tell(newest()); err != nil {
				t.Fatal(err)
			}
		}
		tell()
		if err := w.skipped(1, 0); err != nil {
			t.Fatal(err)
		}
		tell()
		r.lease(t)
		tell()
		wantEqual(t, "what was sent", eventNames(sent), "SUBMITTED missed(0,1) GRANTED")
	})
}

// S5: when a watch of a run has caught up, news may wait that are older than what it has sent. Progress among them has the state that was sent last: no later
// event would correct it.
func TestProgressThatWasOvertakenHasTheLatestState(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		var last *lessorv1.WatchTaskResponse
		w := &runWatcher{edge: r.edge, ctx: t.Context(), space: engine.Space{Tenant: gate.DefaultTenant, Workspace: convert.DefaultWorkspace}, run: "run", toldOf: map[lease.TaskID]uint64{}, eventSender: &eventSender{
			send: func(m *lessorv1.WatchTaskResponse) error { last = m; return nil },
		}}
		progress := func(a *lessorv1.Assignment) *engine.News {
			id, _ := lease.ParseTaskID(a.GetTask().GetTaskId())
			n := &engine.News{ID: id, Feed: &engine.Feed{Stage: "one"}, Sum: &lease.Feedback{Stage: "one"}}
			if err := r.edge.view(func(rd store.Reader) (err error) { n.Task, err = readTask(rd, gate.DefaultTenant, id); return err }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		wantState := func(n *engine.News, want lessorv1.TaskState) {
			t.Helper()
			if err := w.tell(n); err != nil {
				t.Fatal(err)
			}
			if last.GetProgress() == nil || last.GetTaskState() != want {
				t.Errorf("the last event is %v, want progress of a task that is %v", last, want)
			}
		}
		var all []*lessorv1.Assignment
		for range 3 {
			r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
			all = append(all, r.lease(t))
		}
		leased, ends, goes := progress(all[0]), progress(all[1]), progress(all[2])
		r.start(t, all[0])
		r.complete(t, all[1], "")
		if err := w.catchUp(); err != nil {
			t.Fatal(err)
		}
		wantState(ends, lessorv1.TaskState_TASK_STATE_COMPLETED)
		wantState(leased, lessorv1.TaskState_TASK_STATE_RUNNING)
		wantState(goes, lessorv1.TaskState_TASK_STATE_LEASED)
		r.complete(t, all[0], "") // its news comes after this progress
		wantState(leased, lessorv1.TaskState_TASK_STATE_RUNNING)
		if _, err := r.tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: all[1].GetTask().GetTaskId()}); err != nil {
			t.Fatal(err)
		}
		wantState(ends, lessorv1.TaskState_TASK_STATE_LEASED) // the news that it is deleted follows
	})
}

// S5: a watch that has missed news sends the durable events of these before those of the next news, so that a client which resumes after one of them
// misses none.
func TestWatchOfARunSendsMissedEventsFirst(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		var news []*engine.News
		for range 3 {
			id, _ := lease.ParseTaskID(r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId())
			n := &engine.News{ID: id}
			if err := r.edge.view(func(rd store.Reader) (err error) { n.Task, err = readTask(rd, gate.DefaultTenant, id); return err }); err != nil {
				t.Fatal(err)
			}
			news = append(news, n)
		}
		var sent []*lessorv1.WatchTaskResponse
		w := &runWatcher{edge: r.edge, ctx: t.Context(), space: engine.Space{Tenant: gate.DefaultTenant, Workspace: convert.DefaultWorkspace}, run: "run", toldOf: map[lease.TaskID]uint64{}, eventSender: &eventSender{
			send: func(m *lessorv1.WatchTaskResponse) error { sent = append(sent, m); return nil },
		}}
		for _, tt := range []struct {
			news   *engine.News
			missed engine.Missed
		}{
			{news[0], engine.Missed{}},
			{news[2], engine.Missed{All: 1}},
			{&engine.News{ID: news[0].ID}, engine.Missed{All: 2, Gone: 1}},
		} {
			if err := passOn(w, tt.news, tt.missed); err != nil {
				t.Fatal(err)
			}
		}
		wantEqual(t, "what was sent", eventNames(sent), "SUBMITTED missed(0,1) SUBMITTED SUBMITTED missed(1,1) deleted")
		wantIncreasing(t, sent)
	})
}

// S5: a watch of a run has every event of a run that is too long for one read of the store, once and in order.
func TestWatchOfALongRun(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		tasks := watchStep + 1000 // with two events each
		specs := slices.Repeat([]*lessorv1.TaskSpec{{Queue: "q", RunId: "run"}}, 1000)
		for range tasks / len(specs) {
			if _, err := r.tasks.BatchSubmitTasks(t.Context(), &lessorv1.BatchSubmitTasksRequest{Tasks: specs}); err != nil {
				t.Fatal(err)
			}
		}
		for req := (&lessorv1.BatchCancelTasksRequest{All: true}); ; {
			res, err := r.tasks.BatchCancelTasks(t.Context(), req)
			if err != nil {
				t.Fatal(err)
			}
			if req.PageToken = res.GetResult().GetNextPageToken(); req.GetPageToken() == "" {
				break
			}
		}
		events, last := 0, uint64(0)
		w := &runWatcher{edge: r.edge, ctx: t.Context(), space: engine.Space{Tenant: gate.DefaultTenant, Workspace: convert.DefaultWorkspace}, run: "run", eventSender: &eventSender{send: func(m *lessorv1.WatchTaskResponse) error {
			if m.GetSequence() <= last {
				t.Errorf("event %d comes after %d", m.GetSequence(), last)
			}
			events, last = events+1, m.GetSequence()
			return nil
		}}}
		if err := w.catchUp(); err != nil || events != 2*tasks {
			t.Errorf("%d events (%v), want %d", events, err, 2*tasks)
		}
	})
}

// S5: a watch of a task sends a note that earlier events of its history are no longer kept.
func TestWatchSaysThatEventsAreMissing(t *testing.T) {
	t.Attr("rules", "S5")
	var sent []*lessorv1.WatchTaskResponse
	task := &lease.Task{ID: lease.TaskID{Space: 1, Seq: 5}, Spec: &lease.Spec{}, Dropped: 3, History: []lease.Event{{Seq: 20, Type: lease.EventGranted}}}
	w := &taskWatcher{id: task.ID, eventSender: &eventSender{send: func(m *lessorv1.WatchTaskResponse) error { sent = append(sent, m); return nil }}}
	if err := w.version(task); err != nil {
		t.Fatal(err)
	}
	wantEqual(t, "what was sent", eventNames(sent), "missed(4,0) GRANTED")
	if sent[0].GetSequence() != 19 || sent[1].GetSequence() != 20 {
		t.Errorf("the sequences are %d and %d, want 19 and 20", sent[0].GetSequence(), sent[1].GetSequence())
	}
}

// S5: a watch of a task that has ended ends at once, also if it resumes after a later event of another task.
func TestWatchAfterTheLastEventEnds(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		runTask(t, r)
		later := r.get(t, r.submit(t, nil).GetTaskId()).GetHistory()[0].GetSequence()
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		events, err := watchAll(ctx, r, &lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: later})
		if err != nil || len(events) != 0 {
			t.Errorf("%s (%v), want no event and the end", eventNames(events), err)
		}
	})
}

// S5: each event of a watch names its task. An event without a sequence number of its own has that of the last durable event and its place after it, and
// those of an attempt have the state of the task.
func TestEventsOfAWatchNameTheirTask(t *testing.T) {
	t.Attr("rules", "S5")
	task := &lease.Task{
		ID: lease.TaskID{Space: 1, Seq: 5}, Spec: &lease.Spec{}, Dropped: 3, Rest: lease.Ready,
		History: []lease.Event{{Seq: 20, Type: lease.EventGranted, State: lease.Leased}}, Lease: &lease.Lease{StartedAt: 1},
	}
	news := []*engine.News{
		{ID: task.ID, Task: task},
		{ID: task.ID, Task: task, Feed: &engine.Feed{Stage: "two", Chunks: []lease.Chunk{{Text: "a"}}, Lost: 3}, Sum: &lease.Feedback{Stage: "two"}},
		{ID: task.ID},
	}
	id := task.ID.String()
	want := []*lessorv1.WatchTaskResponse{
		{TaskId: id, Sequence: 19, Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Durable: 4}}},
		{
			TaskId: id, Sequence: 20, TaskState: lessorv1.TaskState_TASK_STATE_LEASED,
			Event: &lessorv1.WatchTaskResponse_History{History: convert.EventProto(&task.History[0])},
		},
		{TaskId: id, Sequence: 20, SubSequence: 1, Event: &lessorv1.WatchTaskResponse_Missed{Missed: &lessorv1.Missed{Volatile: 3}}},
		{
			TaskId: id, Sequence: 20, SubSequence: 2, TaskState: lessorv1.TaskState_TASK_STATE_RUNNING,
			Event: &lessorv1.WatchTaskResponse_Progress{Progress: convert.ProgressProto(news[1].Sum)},
		},
		{
			TaskId: id, Sequence: 20, SubSequence: 3, TaskState: lessorv1.TaskState_TASK_STATE_RUNNING,
			Event: &lessorv1.WatchTaskResponse_Chunk{Chunk: convert.ChunksProto(news[1].Feed.Chunks)[0]},
		},
		{TaskId: id, Sequence: 20, SubSequence: 4, Event: &lessorv1.WatchTaskResponse_Deleted{Deleted: &lessorv1.Deleted{}}},
	}
	for name, newWatcher := range map[string]func(*eventSender) watcher{
		"task": func(to *eventSender) watcher { return &taskWatcher{eventSender: to, id: task.ID} },
		"run":  func(to *eventSender) watcher { return &runWatcher{eventSender: to, toldOf: map[lease.TaskID]uint64{}} },
	} {
		var got []*lessorv1.WatchTaskResponse
		w := newWatcher(&eventSender{send: func(m *lessorv1.WatchTaskResponse) error {
			got = append(got, m)
			return nil
		}})
		for _, n := range news {
			if err := passOn(w, n, engine.Missed{}); err != nil && !errors.Is(err, errWatchOver) {
				t.Fatal(err)
			}
		}
		for i := range max(len(got), len(want)) {
			if i >= min(len(got), len(want)) || !proto.Equal(got[i], want[i]) {
				t.Fatalf("watch of a %s: event %d of\n%v\nwant\n%v", name, i, got, want)
			}
		}
	}
}

// S5: a watcher that does not read for a while delays nobody. When it reads again, it gets the number of volatile events that it missed, every durable
// event, the newest volatile events, and the end.
func TestSlowWatcherIsToldWhatItMissed(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, nil).GetTaskId()
		stream, err := r.tasks.WatchTask(t.Context(), &lessorv1.WatchTaskRequest{TaskId: id})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a := r.lease(t)
		r.start(t, a)
		beat := &lessorv1.HeartbeatRequest{
			TaskId: id, LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Message: text(32 << 10)},
		}
		for i := range 400 { // nobody reads, so the windows and then the queue of news fill up
			beat.Progress.Fraction = float64(i+1) / 400
			if _, err := r.workers.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		r.complete(t, a, "")
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
		words := eventNames(events)
		if !errors.Is(err, io.EOF) || !strings.Contains(words, "missed(0,") || !strings.HasSuffix(words, " COMPLETED") ||
			!strings.HasPrefix(words, "SUBMITTED GRANTED STARTED") {
			t.Errorf("%d events (%v): %.300s, want the durable events, a number of missed volatile events, and EOF",
				len(events), err, strings.ReplaceAll(words, " progress", ""))
		}
		wantIncreasing(t, events)
	})
}

// S5: a watcher of a run that did not read for a while gets the deletion of each task, or the deletion is counted as a missed durable event, because no
// later event would show it.
func TestSlowWatcherOfARunIsToldOfDeletedTasks(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		inRun := func(s *lessorv1.TaskSpec) { s.RunId = "run" }
		r.submit(t, inRun)
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		stream, err := r.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		a := r.lease(t)
		r.start(t, a)
		const others = 600
		for range others {
			r.submit(t, inRun)
		}
		beat := &lessorv1.HeartbeatRequest{
			TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Message: text(32 << 10)},
		}
		for i := range 400 { // nobody reads, so the windows and then the queue of news fill up
			beat.Progress.Fraction = float64(i+1) / 400
			if _, err := r.workers.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		waiting := &lessorv1.TaskFilter{RunId: "run", States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_READY}}
		deleted, err := r.tasks.BatchDeleteTasks(t.Context(), &lessorv1.BatchDeleteTasksRequest{Filter: waiting})
		if err != nil || deleted.GetResult().GetChanged() != others {
			t.Fatalf("%v, %v; want %d deleted", deleted, err, others)
		}
		r.complete(t, a, "")
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

// S5: a watcher of a run that did not read for a while gets every durable event exactly once; events that were sent to it before are not sent again.
func TestSlowWatcherOfARunGetsNothingTwice(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		id := r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" }).GetTaskId()
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		stream, err := r.tasks.WatchTask(ctx, &lessorv1.WatchTaskRequest{RunId: "run"})
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		a := r.lease(t)
		r.start(t, a)
		synctest.Wait()
		beat := &lessorv1.HeartbeatRequest{TaskId: id, LeaseId: a.GetLeaseId(), Progress: &lessorv1.Progress{Message: text(32 << 10)}}
		for i := range 400 { // nobody reads, so the windows and then the queue of news fill up
			beat.Progress.Fraction = float64(i+1) / 400
			if _, err := r.workers.Heartbeat(t.Context(), beat); err != nil {
				t.Fatal(err)
			}
		}
		r.complete(t, a, "")
		synctest.Wait()
		var events []*lessorv1.WatchTaskResponse
		for !strings.HasSuffix(eventNames(events), "COMPLETED") {
			e, err := stream.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if e.GetProgress() == nil {
				events = append(events, e)
			}
		}
		words := strings.Fields(eventNames(events))
		durable := slices.DeleteFunc(slices.Clone(words), func(w string) bool { return strings.HasPrefix(w, "missed(0,") })
		if len(durable) == len(words) || strings.Join(durable, " ") != "SUBMITTED GRANTED STARTED COMPLETED" {
			t.Errorf("the events are %s, want each durable event once, and some missed", words)
		}
	})
}
