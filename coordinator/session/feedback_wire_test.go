package session_test

import (
	"fmt"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// S5: watchers get feedback in order and after the event STARTED. GetTask shows the last progress
// and the chunks. Feedback after the report is dropped.
func TestFeedbackReachesWatchers(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(a)}})
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, "one", "a", "b"), wiretest.Feedback(a, "two", "c")}})
		synctest.Wait()
		shown := r.Get(t, id)
		words := ""
		for _, c := range shown.GetFeedback() {
			words += c.GetText()
		}
		if words != "abc" || shown.GetProgress().GetStage() != "two" || shown.GetProgress().GetFraction() != 0.5 {
			t.Errorf("GetTask shows %v and %q, want stage two, progress 0.5 and \"abc\"", shown.GetProgress(), words)
		}
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(a, "")}})
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, "late", "d")}})
		synctest.Wait()
		events := stop()
		_, volatile, _ := strings.Cut(wiretest.EventNames(events), "STARTED ")
		wiretest.WantEqual(t, "the watch", volatile, "progress chunk chunk progress chunk COMPLETED")
		if shown := r.Get(t, id); shown.GetProgress().GetStage() != "two" || len(shown.GetFeedback()) != 3 {
			t.Errorf("after the report GetTask shows %v and %v, want stage two and three chunks",
				shown.GetProgress(), shown.GetFeedback())
		}
	})
}

// S5: output says which attempt printed it, and comes after the grant of that attempt and before
// that of the next one.
func TestOutputNamesItsAttempt(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		for range 2 {
			a := worker.ReceiveAssignments(1)[0]
			worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, "", "x", "y")}})
			wiretest.WantCommitted(t, worker.Report(wiretest.Released(a)))
		}
		synctest.Wait()
		got := ""
		for _, e := range stop() {
			switch {
			case e.GetChunk() != nil:
				got += fmt.Sprint(" chunk of ", e.GetAttempt())
			case e.GetAttempt() != 0:
				t.Errorf("the event %v has the attempt of an output", e)
			case e.GetHistory().GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_GRANTED:
				got += fmt.Sprint(" grant of ", e.GetHistory().GetAttempt())
			}
		}
		wiretest.WantEqual(t, "the watch", got, " grant of 1 chunk of 1 chunk of 1 grant of 2 chunk of 2 chunk of 2 grant of 3")
	})
}

// S5: watchers get feedback that was sent before a report before the outcome, and the task keeps
// it, even if the report follows at once.
func TestFeedbackBeforeAReportIsKept(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(a)}})
		const words = 20
		for i := range words {
			worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, fmt.Sprint(i), "x")}})
		}
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(a, "")}})
		synctest.Wait()
		if n := strings.Count(wiretest.EventNames(stop()), "chunk"); n != words {
			t.Errorf("a watcher got %d chunks, want %d", n, words)
		}
		if n := len(r.Get(t, id).GetFeedback()); n != words {
			t.Errorf("the task keeps %d chunks, want %d", n, words)
		}
	})
}

// Feedback under a lease that has ended, is forged, or is of another task is dropped without an
// answer. Other items of the frame are accepted.
func TestFeedbackOfEndedLeasesIsDropped(t *testing.T) {
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 3)
		r.SubmitAll(t, 3)
		a := worker.ReceiveAssignments(3)
		wiretest.WantCommitted(t, worker.Report(wiretest.Released(a[0])))
		again := worker.ReceiveAssignments(1)[0]
		worker.Send(&lessorv1.Capacity{MaxParallel: 0})
		forged, crossed := wiretest.Feedback(a[1], "forged"), wiretest.Feedback(a[1], "crossed")
		forged.LeaseId, crossed.LeaseId = "x", a[2].GetLeaseId()
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{
			wiretest.Feedback(a[0], "dead"), forged, crossed, wiretest.Feedback(a[2], "live"), wiretest.Feedback(again, ""),
		}})
		worker.WantNoFrame()
		for i, want := range []string{"", "", "live"} {
			if got := r.Get(t, a[i].GetTask().GetTaskId()).GetProgress().GetStage(); got != want {
				t.Errorf("the stage of task %d is %q, want %q", i, got, want)
			}
		}
		time.Sleep(40 * time.Second)
		worker.Heartbeat(a[2])
		time.Sleep(59 * time.Second) // meanwhile the other leases expire
		if shown := r.Get(t, again.GetTask().GetTaskId()); shown.GetProgress().GetAttempt() != 2 || shown.GetLease() != nil {
			t.Errorf("after its lease has expired, the task is %v, want the progress of attempt 2 and no lease", shown)
		}
		if shown := r.Get(t, a[2].GetTask().GetTaskId()); shown.GetProgress().GetStage() != "live" {
			t.Errorf("the task with a live lease is %v, want the stage live", shown)
		}
	})
}

// A bad item of feedback is refused with the name of the field. The other items of the frame are
// accepted.
func TestBadFeedbackIsRefused(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		for field, spoil := range map[string]func(*lessorv1.FeedbackItem){
			"task_id: must not be empty":  func(m *lessorv1.FeedbackItem) { m.TaskId = "" },
			"lease_id: must not be empty": func(m *lessorv1.FeedbackItem) { m.LeaseId = "" },
			"stage: has 257 bytes":        func(m *lessorv1.FeedbackItem) { m.Stage = wiretest.Text(257) },
			"message: has 65537":          func(m *lessorv1.FeedbackItem) { m.Message = wiretest.Text(64<<10 + 1) },
			"progress: is NaN":            func(m *lessorv1.FeedbackItem) { m.Progress = math.NaN() },
			"progress: is 1.5":            func(m *lessorv1.FeedbackItem) { m.Progress = 1.5 },
			"metrics: has 257 bytes":      func(m *lessorv1.FeedbackItem) { m.Metrics = map[string]float64{wiretest.Text(257): 1} },
			"chunks: has 257 entries":     func(m *lessorv1.FeedbackItem) { m.Chunks = make([]*lessorv1.FeedbackChunk, 257) },
			"chunks[0].channel: has 257 bytes": func(m *lessorv1.FeedbackItem) {
				m.Chunks = []*lessorv1.FeedbackChunk{{Channel: wiretest.Text(257)}}
			},
			"chunks[0].data: has 65537 bytes; the limit is 65536": func(m *lessorv1.FeedbackItem) {
				m.Chunks = []*lessorv1.FeedbackChunk{{Body: &lessorv1.FeedbackChunk_Data{Data: make([]byte, 64<<10+1)}}}
			},
			"chunks[0].metadata: has 257 bytes": func(m *lessorv1.FeedbackItem) {
				m.Chunks = []*lessorv1.FeedbackChunk{{Metadata: map[string]string{"k": wiretest.Text(257)}}}
			},
		} {
			bad := wiretest.Feedback(a, "bad")
			spoil(bad)
			worker.WantError(worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, field), bad}}), refusal.CodeInvalid, "feedback.items[1]."+field)
			synctest.Wait()
			wiretest.WantEqual(t, "the stage", r.Get(t, a.GetTask().GetTaskId()).GetProgress().GetStage(), field)
		}
	})
}

// W6, W14: the items of a feedback frame are independent. One error names the wrong ones, as far as
// there is room. The others are taken, and so is the frame, which adds nothing if it comes again.
// If all items are wrong, the frame is refused, and may come again corrected.
func TestWrongItemsOfFeedback(t *testing.T) {
	t.Attr("rules", "W6 W14")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 2)
		work := worker.ReceiveAssignments(2)
		wrong, good := wiretest.Feedback(work[0], "wrong"), wiretest.Feedback(work[1], "good", "a")
		wrong.Progress = 7
		wantChunks := func(when string, want int) {
			t.Helper()
			synctest.Wait()
			if n := len(r.Get(t, good.GetTaskId()).GetFeedback()); n != want {
				t.Errorf("%s the task has %d chunks of output, want %d", when, n, want)
			}
		}
		m := worker.NewFrame(&lessorv1.Feedback{Items: append(slices.Repeat([]*lessorv1.FeedbackItem{wrong}, 12), good, wrong, good)})
		e := worker.WantError(worker.SendFrame(m), refusal.CodeInvalid,
			"feedback.items[0].progress: is 7; the range is 0 to 1; feedback.items[1].")
		if all := e.GetMessage(); strings.Count(all, "is 7") != 10 || !strings.HasSuffix(all, "; and 3 more") {
			t.Errorf("the error says %q, want ten items and 3 more", all)
		}
		wiretest.WantContains(t, "the remedy", e.GetRemediation(), "the other 2 were taken")
		worker.WantNoFrame()
		wantChunks("after the frame", 2)
		wantAck(worker, worker.SendFrame(m))
		wantChunks("after a repeat", 2)

		m = worker.NewFrame(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wrong}})
		for range 2 {
			worker.WantError(worker.SendFrame(m), refusal.CodeInvalid, "feedback.items[0].progress: is 7")
		}
		m.GetFeedback().Items[0] = good
		worker.SendFrame(m)
		worker.WantNoFrame()
		wantChunks("after the correction", 3)
	})
}

// GetTask shows the progress of a heartbeat, unless its value is bad.
func TestProgressOfAHeartbeat(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		beat := func(stage string, fraction float64) {
			m := wiretest.Renewal(a)
			m.Progress = &lessorv1.Progress{Stage: stage, Fraction: fraction}
			worker.SendHeartbeat(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{m}})
		}
		beat("good", 0.25)
		beat("bad", 2)
		if p := r.Get(t, id).GetProgress(); p.GetStage() != "good" || p.GetFraction() != 0.25 {
			t.Errorf("GetTask shows %v, want the stage good and 0.25", p)
		}
	})
}

// S5: watchers get the progress of heartbeats and of feedback in the order in which the worker has
// sent them, also while a commit takes long, and the task keeps the last one. A heartbeat in the
// same frame that is refused tells nothing.
func TestProgressOfHeartbeatsAndFeedbackIsInOrder(t *testing.T) {
	t.Attr("rules", "S5")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 2)
		r.SubmitAll(t, 2)
		work := worker.ReceiveAssignments(2)
		a, id := work[0], work[0].GetTask().GetTaskId()
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		feedback := func(fraction float64) {
			worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{{TaskId: id, LeaseId: a.GetLeaseId(), Progress: fraction}}})
		}
		beat := func(fraction float64) {
			good, refused := wiretest.Renewal(a), wiretest.Renewal(work[1])
			good.Progress = &lessorv1.Progress{Fraction: fraction}
			refused.Progress, refused.Attempt = good.GetProgress(), 7
			worker.Send(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{refused, good}})
		}
		release := r.SubmitAndBlockCommit(t, st)
		feedback(0.1)
		feedback(0.2)
		beat(0.5)
		feedback(0.6)
		synctest.Wait()
		release()
		wiretest.NextPayload[*lessorv1.HeartbeatAck](worker)
		beat(0.7)
		feedback(0.8)
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(a, "")}})
		synctest.Wait()
		got := ""
		for _, e := range stop() {
			if p := e.GetProgress(); p != nil {
				got += fmt.Sprint(p.GetFraction(), " ")
			}
		}
		wiretest.WantEqual(t, "the progress events", got, "0.1 0.2 0.5 0.6 0.7 0.8 ")
		if p := r.Get(t, id).GetProgress(); p.GetFraction() != 0.8 {
			t.Errorf("the ended task has the progress %v, want 0.8", p)
		}
		if p := r.Get(t, work[1].GetTask().GetTaskId()).GetProgress(); p != nil {
			t.Errorf("the task whose heartbeat was refused has the progress %v, want none", p)
		}
	})
}

// S5, W8: output that waits for the engine when its stream is lost comes before that of the next
// stream, whether this resumes the session or is a new session of the instance, and before the
// outcome.
func TestOutputIsInOrderAcrossStreams(t *testing.T) {
	t.Attr("rules", "S5 W8")
	cut := func(worker *wiretest.Worker) { worker.Cut(); synctest.Wait() }
	leave := func(*wiretest.Worker) {}
	resume := func(a *lessorv1.Accept) func(*lessorv1.Handshake) { return wiretest.ResumeFrom(a, a.GetNextSeq()) }
	begin := func(*lessorv1.Accept) func(*lessorv1.Handshake) { return func(*lessorv1.Handshake) {} }
	for name, tt := range map[string]struct {
		lose func(*wiretest.Worker)
		next func(*lessorv1.Accept) func(*lessorv1.Handshake)
	}{
		"a resume after a cut":                       {cut, resume},
		"a resume while the old stream is open":      {leave, resume},
		"a resume that begins the sequences again":   {cut, func(a *lessorv1.Accept) func(*lessorv1.Handshake) { return wiretest.ResumeFrom(a, 1000) }},
		"a new session after a cut":                  {cut, begin},
		"a new session while the old stream is open": {leave, begin},
		"a new session after a minute":               {func(worker *wiretest.Worker) { cut(worker); time.Sleep(time.Minute) }, begin},
	} {
		t.Run(name, func(t *testing.T) {
			st := memstore.New()
			wiretest.ServeWith(t, st, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
				old, a := r.OpenSessionWith(t, "w", 1, nil)
				id := r.Submit(t, nil).GetTaskId()
				m := old.NextFrame()
				work := wiretest.WantPayload[*lessorv1.Dispatch](old, m).GetAssignments()[0]
				wiretest.WantCommitted(t, old.Report(wiretest.Started(work)))
				stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
				release := r.SubmitAndBlockCommit(t, st)
				say := func(worker *wiretest.Worker, word string) {
					worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(work, "", word)}})
					synctest.Wait()
				}
				say(old, "0")
				say(old, "1")
				tt.lose(old)
				worker := r.OpenStream(t, "w")
				h := wiretest.HandshakeOf("w")
				tt.next(a)(h)
				worker.Send(h)
				wiretest.NextPayload[*lessorv1.Accept](worker)
				worker.Send(wiretest.Registration(1))
				say(worker, "2")
				worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(work, "")}})
				synctest.Wait()
				release()
				synctest.Wait()
				events := stop()
				got := ""
				for _, e := range events {
					got += e.GetChunk().GetText()
				}
				if names := wiretest.EventNames(events); got != "012" || !strings.HasSuffix(names, "chunk COMPLETED") {
					t.Errorf("the watch is %s, with the output %q; want 012 before COMPLETED", names, got)
				}
			})
		})
	}
}

// A6, S5: the last feedback of an attempt is stored when the attempt ends, even if Start, feedback
// and report are one commit. It is deleted with the task.
func TestLastFeedbackIsStoredWithTheTask(t *testing.T) {
	t.Attr("rules", "A6 S5")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		synctest.Wait()
		release := r.SubmitAndBlockCommit(t, st)
		item := wiretest.Feedback(a, "run", "first")
		item.Metrics = map[string]float64{"loss": 0.25}
		item.Chunks = append(item.Chunks, &lessorv1.FeedbackChunk{
			Channel: "plot", Index: 7, MimeType: "image/png", Body: &lessorv1.FeedbackChunk_Data{Data: []byte("png")},
		})
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(a)}})
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{item}})
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Completed(a, "")}})
		synctest.Wait()
		release()
		events := stop()
		wiretest.WantEqual(t, "the watch", wiretest.EventNames(events),
			"SUBMITTED GRANTED ACKNOWLEDGED STARTED progress chunk chunk COMPLETED")
		wiretest.WantIncreasing(t, events)
		if p := events[4].GetProgress(); p.GetMetrics()["loss"] != 0.25 || p.GetAttempt() != 1 {
			t.Errorf("the progress event is %v, want the metrics and attempt 1", p)
		}
		r.Close(t)

		reopened := st.Reopen()
		again := wiretest.New(t, reopened)
		defer again.Close(t)
		shown := again.Get(t, id)
		chunks := shown.GetFeedback()
		if p := shown.GetProgress(); p.GetStage() != "run" || p.GetMetrics()["loss"] != 0.25 || p.GetAttempt() != 1 || len(chunks) != 2 {
			t.Fatalf("after a restart GetTask shows %v and %v, want the progress of attempt 1 and two chunks", p, chunks)
		}
		if c := chunks[1]; c.GetMimeType() != "image/png" || c.GetIndex() != 7 || string(c.GetData()) != "png" {
			t.Errorf("after a restart the second chunk is %v, want the png with index 7", c)
		}
		if _, err := again.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: id}); err != nil {
			t.Fatal(err)
		}
		task, _ := lease.ParseTaskID(id)
		err := reopened.View(func(rd store.Reader) error {
			left, err := records.Feedback(rd, task)
			if left != nil {
				t.Errorf("after the task was deleted, the store still has its feedback: %v", left)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	})
}

// S5: zero_progress sets the progress to 0; progress 0 without it means that the progress does not
// change. Each event has the complete progress.
func TestProgressGoesBackToZero(t *testing.T) {
	t.Attr("rules", "S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		id := r.Submit(t, nil).GetTaskId()
		a := worker.ReceiveAssignments(1)[0]
		stop := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		withIDs := func(m *lessorv1.FeedbackItem) *lessorv1.FeedbackItem {
			m.TaskId, m.LeaseId = id, a.GetLeaseId()
			return m
		}
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{
			withIDs(&lessorv1.FeedbackItem{Progress: 0.75, Stage: "first"}),
			withIDs(&lessorv1.FeedbackItem{Message: "more to do"}),
			withIDs(&lessorv1.FeedbackItem{ZeroProgress: true, Stage: "second"}),
		}})
		synctest.Wait()
		var seen []string
		for _, e := range stop() {
			if p := e.GetProgress(); p != nil {
				seen = append(seen, strings.TrimSpace(fmt.Sprintf("%g %s %s", p.GetFraction(), p.GetStage(), p.GetMessage())))
			}
		}
		wiretest.WantEqual(t, "the progress events",
			strings.Join(seen, "; "), "0.75 first; 0.75 first more to do; 0 second more to do")
		bad := worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{withIDs(&lessorv1.FeedbackItem{ZeroProgress: true, Progress: 0.5})}})
		worker.WantError(bad, refusal.CodeInvalid, "feedback.items[0].zero_progress: is set, but progress is 0.5")
	})
}

// W11: if a session sends feedback faster than the coordinator can pass it on, the oldest is
// dropped. Watchers get the number of dropped items, and a metric counts them. The verdicts of the
// session, and the feedback of other sessions, are not affected.
func TestTooMuchFeedbackIsDropped(t *testing.T) {
	t.Attr("rules", "W11")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		worker, other := r.OpenSession(t, "w", 1), r.OpenSession(t, "other", 1)
		r.SubmitAll(t, 2)
		a, b := worker.ReceiveAssignments(1)[0], other.ReceiveAssignments(1)[0]
		flooded := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: a.GetTask().GetTaskId()})
		neighbour := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: b.GetTask().GetTaskId()})
		synctest.Wait()
		release := r.SubmitAndBlockCommit(t, st)
		const flood = 100
		for i := range flood {
			worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, fmt.Sprint(i), wiretest.Text(32<<10))}})
		}
		corr := worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(a)}})
		other.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(b, "fine", "x")}})
		synctest.Wait()
		release()
		wiretest.WantEqual(t, "corr", worker.NextFrame().GetCorr(), corr)
		kept, missed, last := 0, uint64(0), ""
		for _, e := range flooded() {
			missed += e.GetMissed().GetVolatile()
			if p := e.GetProgress(); p != nil {
				kept, last = kept+1, p.GetStage()
			}
		}
		if kept+int(missed) != flood || last != fmt.Sprint(flood-1) || missed < flood/2 || kept < 20 {
			t.Errorf("watchers got %d of %d items and missed %d; the last one was %s; want the last ones, and at least half missed", kept, flood, missed, last)
		}
		wiretest.WantContains(t, "the watch of the other session's task", wiretest.EventNames(neighbour()), "progress chunk")
		wiretest.WantContains(t, "metrics", wiretest.GetPath(t, r, "/metrics", http.StatusOK),
			fmt.Sprintf("lessor_feedback_dropped_total %d", missed))
	})
}

// W11: while a commit hangs, the feedback that a session has in the engine is bounded, also if
// reports follow it that it must not overtake. Watchers get the number of items that were dropped,
// and a metric counts them.
func TestFeedbackBeforeReportsIsBounded(t *testing.T) {
	t.Attr("rules", "W11")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		worker := r.OpenSession(t, "w", 1)
		r.SubmitAll(t, 1)
		a := worker.ReceiveAssignments(1)[0]
		watch := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: a.GetTask().GetTaskId()})
		release := r.SubmitAndBlockCommit(t, st)
		const rounds, items, size = 10, 30, 32 << 10
		for i := range rounds {
			for range items {
				worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, fmt.Sprint(i), wiretest.Text(size))}})
			}
			worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(a)}})
			synctest.Wait()
		}
		release()
		synctest.Wait()
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, "after")}})
		synctest.Wait()
		kept, missed, last := 0, 0, ""
		for _, e := range watch() {
			missed += int(e.GetMissed().GetVolatile())
			if p := e.GetProgress(); p != nil {
				kept, last = kept+1, p.GetStage()
			}
		}
		if kept+missed != rounds*items+1 || last != "after" || kept < items || kept*size > 5<<18 {
			t.Errorf("watchers got %d of %d items and missed %d, and the last one was %s; want items of about 1 MiB, and the one after the hang",
				kept, rounds*items+1, missed, last)
		}
		wiretest.WantContains(t, "metrics", wiretest.GetPath(t, r, "/metrics", http.StatusOK),
			fmt.Sprintf("lessor_feedback_dropped_total %d", missed))
	})
}

// W8, W11: a session that is kept without a stream holds no feedback that waits for a commit. What
// does not fit beside the feedback that the engine has is dropped at once, and watchers are told.
func TestKeptSessionHoldsNoFeedback(t *testing.T) {
	t.Attr("rules", "W8 W11")
	st := memstore.New()
	wiretest.ServeWith(t, st, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		worker, accept := r.OpenSessionWith(t, "w", 1, nil)
		r.SubmitAll(t, 1)
		m := worker.NextFrame()
		a := wiretest.WantPayload[*lessorv1.Dispatch](worker, m).GetAssignments()[0]
		worker.Ack(m)
		watch := wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: a.GetTask().GetTaskId()})
		release := r.SubmitAndBlockCommit(t, st)
		const items = 30 // have about 1 MiB
		for range 2 {    // the engine has those of the first frame, and those of the second one wait
			frame := &lessorv1.Feedback{}
			for range items {
				frame.Items = append(frame.Items, wiretest.Feedback(a, "run", wiretest.Text(32<<10)))
			}
			worker.Send(frame)
			synctest.Wait()
		}
		none := "lessor_feedback_dropped_total 0"
		wiretest.WantContains(t, "metrics before the stream is lost", wiretest.GetPath(t, r, "/metrics", http.StatusOK), none)
		worker.Cut()
		synctest.Wait()
		if metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK); strings.Contains(metrics, none) {
			t.Error("the feedback that waits is kept with the session, want it dropped")
		}
		release()
		r.OpenSessionWith(t, "w", 1, wiretest.ResumeFrom(accept, m.GetSeq()))
		synctest.Wait()
		kept, missed := 0, 0
		for _, e := range watch() {
			missed += int(e.GetMissed().GetVolatile())
			if e.GetProgress() != nil {
				kept++
			}
		}
		if kept < items || kept+missed != 2*items {
			t.Errorf("watchers got %d items and missed %d, want at least %d of %d, and the rest missed",
				kept, missed, items, 2*items)
		}
	})
}
