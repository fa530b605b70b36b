package coordinator

import (
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

func feedback(a *lessorv1.Assignment, stage string, words ...string) *lessorv1.FeedbackItem {
	m := &lessorv1.FeedbackItem{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Stage: stage, Progress: 0.5}
	for i, w := range words {
		m.Chunks = append(m.Chunks, &lessorv1.FeedbackChunk{Channel: "out", Index: uint64(i), Body: &lessorv1.FeedbackChunk_Text{Text: w}})
	}
	return m
}

// Feedback reaches whoever watches, in order and after the start, and GetTask shows the last of it while the attempt lives.
func TestFeedbackReachesWatchers(t *testing.T) {
	t.Attr("rules", "S5")
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		id := r.submit(t, nil).GetTaskId()
		a := tk.given(1)[0]
		stop := background(t, r, &lessorv1.WatchTaskRequest{TaskId: id})
		tk.say(&lessorv1.Reports{Reports: []*lessorv1.Report{started(a)}})
		tk.say(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{feedback(a, "one", "a", "b"), feedback(a, "two", "c")}})
		synctest.Wait()
		shown := r.get(t, id)
		words := ""
		for _, c := range shown.GetFeedback() {
			words += c.GetText()
		}
		if words != "abc" || shown.GetProgress().GetStage() != "two" || shown.GetProgress().GetFraction() != 0.5 {
			t.Errorf("GetTask shows %v and %q", shown.GetProgress(), words)
		}
		tk.say(&lessorv1.Reports{Reports: []*lessorv1.Report{completed(a, "")}})
		tk.say(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{feedback(a, "late", "d")}})
		synctest.Wait()
		events := stop()
		_, volatile, _ := strings.Cut(told(events), "STARTED ")
		wantText(t, "the watch", volatile, "progress chunk chunk progress chunk COMPLETED")
		if shown := r.get(t, id); shown.GetProgress() != nil || len(shown.GetFeedback()) != 0 {
			t.Errorf("after the attempt GetTask shows %v, %v", shown.GetProgress(), shown.GetFeedback())
		}
	})
}

// Feedback of a lease that is dead, forged or another's task's is dropped without a word; the items beside it count.
func TestFeedbackOfDeadLeasesIsDropped(t *testing.T) {
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 3)
		r.submitAll(t, 3)
		a := tk.given(3)
		did(t, tk.judge(released(a[0])))
		again := tk.given(1)[0]
		tk.say(&lessorv1.Capacity{MaxParallel: 0})
		forged, crossed := feedback(a[1], "forged"), feedback(a[1], "crossed")
		forged.LeaseId, crossed.LeaseId = "x", a[2].GetLeaseId()
		tk.say(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{
			feedback(a[0], "dead"), forged, crossed, feedback(a[2], "live"), feedback(again, ""),
		}})
		tk.quiet()
		for i, want := range []string{"", "", "live"} {
			if got := r.get(t, a[i].GetTask().GetTaskId()).GetProgress().GetStage(); got != want {
				t.Errorf("task %d shows %q, want %q", i, got, want)
			}
		}
		time.Sleep(40 * time.Second)
		tk.beat(a[2])
		time.Sleep(59 * time.Second) // the others' leases run out
		if shown := r.get(t, again.GetTask().GetTaskId()); shown.GetProgress() != nil {
			t.Errorf("after its lease: %v", shown)
		}
		if shown := r.get(t, a[2].GetTask().GetTaskId()); shown.GetProgress().GetStage() != "live" {
			t.Errorf("under a live lease: %v", shown)
		}
	})
}

// A bad item is refused by name; the others count.
func TestBadFeedbackIsRefused(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		r.submitAll(t, 1)
		a := tk.given(1)[0]
		for field, spoil := range map[string]func(*lessorv1.FeedbackItem){
			"task_id: is empty":       func(m *lessorv1.FeedbackItem) { m.TaskId = "" },
			"lease_id: is empty":      func(m *lessorv1.FeedbackItem) { m.LeaseId = "" },
			"stage: has 257 bytes":    func(m *lessorv1.FeedbackItem) { m.Stage = text(257) },
			"message: has 65537":      func(m *lessorv1.FeedbackItem) { m.Message = text(64<<10 + 1) },
			"progress: is NaN":        func(m *lessorv1.FeedbackItem) { m.Progress = math.NaN() },
			"progress: is 1.5":        func(m *lessorv1.FeedbackItem) { m.Progress = 1.5 },
			"metrics: has 257 bytes":  func(m *lessorv1.FeedbackItem) { m.Metrics = map[string]float64{text(257): 1} },
			"chunks: has 257 entries": func(m *lessorv1.FeedbackItem) { m.Chunks = make([]*lessorv1.FeedbackChunk, 257) },
			"chunks[0].channel: has 257 bytes": func(m *lessorv1.FeedbackItem) {
				m.Chunks = []*lessorv1.FeedbackChunk{{Channel: text(257)}}
			},
			"chunks[0].body: has 65537 bytes; the limit is 65536": func(m *lessorv1.FeedbackItem) {
				m.Chunks = []*lessorv1.FeedbackChunk{{Body: &lessorv1.FeedbackChunk_Data{Data: make([]byte, 64<<10+1)}}}
			},
			"chunks[0].metadata: has 257 bytes": func(m *lessorv1.FeedbackItem) {
				m.Chunks = []*lessorv1.FeedbackChunk{{Metadata: map[string]string{"k": text(257)}}}
			},
		} {
			bad := feedback(a, "bad")
			spoil(bad)
			tk.refused(tk.say(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{feedback(a, field), bad}}), codeInvalid, "feedback.items[1]."+field)
			synctest.Wait()
			wantText(t, "the stage", r.get(t, a.GetTask().GetTaskId()).GetProgress().GetStage(), field)
		}
	})
}

// Progress that rides in a heartbeat is shown where the heartbeat counts, and only there.
func TestProgressOfAHeartbeat(t *testing.T) {
	serve(t, nil, func(t *testing.T, r *rig) {
		tk := r.work(t, "w", 1)
		id := r.submit(t, nil).GetTaskId()
		a := tk.given(1)[0]
		say := func(stage string, fraction float64) {
			m := renewal(a)
			m.Progress = &lessorv1.Progress{Stage: stage, Fraction: fraction}
			tk.say(&lessorv1.WorkerHeartbeat{Healthy: true, Leases: []*lessorv1.HeartbeatRequest{m}})
			hear[*lessorv1.HeartbeatAck](tk)
			synctest.Wait()
		}
		say("good", 0.25)
		say("bad", 2)
		if p := r.get(t, id).GetProgress(); p.GetStage() != "good" || p.GetFraction() != 0.25 {
			t.Errorf("shown: %v", p)
		}
	})
}
