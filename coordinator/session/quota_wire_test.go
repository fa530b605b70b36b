package session_test

import (
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X5, W14, W6: feedback over the quota of frames is refused with a wait, and the same frame is
// accepted after this wait. Watchers are told at once that they miss it. Heartbeats and reports are
// always accepted.
func TestQuotaOfFrames(t *testing.T) {
	t.Attr("rules", "X5 W14 W6")
	wiretest.WithQuotas(t, quota.Limits{Frames: quota.Rate{PerSecond: 1, Burst: 5}}, func(t *testing.T, r *wiretest.Rig) {
		r.SubmitAll(t, 1)
		worker := r.OpenSession(t, "w", 1)
		work := worker.ReceiveAssignments(1)
		watch := func() func() []*lessorv1.WatchTaskResponse {
			return wiretest.WatchInBackground(t, r, &lessorv1.WatchTaskRequest{TaskId: work[0].GetTask().GetTaskId()})
		}
		feedback := func() *lessorv1.SessionRequest {
			item := wiretest.Feedback(work[0], "half way")
			return worker.NewFrame(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{item, item}})
		}
		refusals, all := watch(), watch()
		for range 2 { // handshake, register and acknowledgement used 3 of the 5 frames
			worker.SendFrame(feedback())
		}
		worker.WantNoFrame()
		over := feedback()
		corr := worker.SendFrame(over)
		m := worker.NextFrame()
		refused := wiretest.WantPayload[*lessorv1.Error](worker, m)
		if m.GetCorr() != corr || refused.GetCode() != "E.QUOTA.FRAMES" || refused.GetRetryAfter().AsDuration() != time.Second {
			t.Fatalf("received %v, want a refusal with a wait of 1 s", m)
		}
		wiretest.WantEqual(t, "the watch", wiretest.EventNames(refusals()),
			"SUBMITTED GRANTED ACKNOWLEDGED progress progress progress progress missed(0,2)")
		wiretest.WantContains(t, "metrics", wiretest.GetPath(t, r, "/metrics", http.StatusOK), "lessor_feedback_dropped_total 2")
		time.Sleep(refused.GetRetryAfter().AsDuration())
		worker.SendFrame(over)
		worker.WantNoFrame()
		wiretest.WantEqual(t, "the end of the watch",
			strings.SplitN(wiretest.EventNames(all()), " ", 8)[7], "missed(0,2) progress progress")
		for range 20 {
			if ack := worker.Heartbeat(work...); ack[0].GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Fatalf("a heartbeat got %v, want COMMITTED", ack)
			}
		}
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(work[0]), wiretest.Completed(work[0], "done")))
	})
}

// X5: a worker that sends many bad frames or bad reports is delayed. Other workers are not.
func TestBadFramesAndReportsAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		r.SubmitAll(t, 1)
		other := r.OpenSession(t, "other", 1)
		work := other.ReceiveAssignments(1)
		bad := make([]*lessorv1.Report, 1000)
		for i := range bad {
			bad[i] = wiretest.Started(&lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "unknown"}, LeaseId: "forged"})
		}
		for name, flood := range map[string]struct {
			opening bool // the stream has no session yet
			once    func(worker *wiretest.Worker)
			n       int
		}{
			"reports": {n: 6, once: func(worker *wiretest.Worker) {
				for _, v := range worker.Report(bad...) {
					if v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED {
						t.Fatalf("a bad report got %v, want REJECTED", v)
					}
				}
			}},
			"frames": {n: 5001, once: func(worker *wiretest.Worker) {
				worker.WantError(worker.Send(wiretest.HandshakeOf("again")), "E.CMD.UNKNOWN", "handshake")
			}},
			"frames before the handshake": {opening: true, n: 5001, once: func(worker *wiretest.Worker) {
				worker.WantError(worker.Send(wiretest.Registration(1)), "E.CMD.UNKNOWN", "register")
			}},
		} {
			worker := r.OpenStream(t, name)
			if !flood.opening {
				worker.Handshake()
				worker.Send(wiretest.Registration(1))
				synctest.Wait()
			}
			begin := time.Now()
			for range flood.n {
				flood.once(worker)
			}
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("a flood of bad %s took %v, want 3 s", name, took)
			}
			begin = time.Now()
			other.Heartbeat(work...)
			if took := time.Since(begin); took != 0 {
				t.Errorf("the heartbeat of another worker took %v, want no delay", took)
			}
		}
		synctest.Wait()
	})
}
