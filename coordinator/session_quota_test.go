package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X5, W14: feedback over the quota of frames is refused with a wait, and accepted after this wait. Heartbeats and reports are always accepted.
func TestQuotaOfFrames(t *testing.T) {
	t.Attr("rules", "X5 W14")
	withQuotas(t, quota.Limits{Frames: quota.Rate{PerSecond: 1, Burst: 5}}, func(t *testing.T, r *rig) {
		r.submitAll(t, 1)
		worker := r.openSession(t, "w", 1)
		work := worker.receiveAssignments(1)
		sendFeedback := func() string {
			return worker.send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{{
				TaskId: work[0].GetTask().GetTaskId(), LeaseId: work[0].GetLeaseId(), Message: "half way",
			}}})
		}
		for range 2 { // handshake, register and acknowledgement used 3 of the 5 frames
			sendFeedback()
		}
		worker.wantNoFrame()
		corr := sendFeedback()
		m := worker.nextFrame()
		refused := wantPayload[*lessorv1.Error](worker, m)
		if m.GetCorr() != corr || refused.GetCode() != "E.QUOTA.FRAMES" || refused.GetRetryAfter().AsDuration() != time.Second {
			t.Fatalf("received %v, want a refusal with a wait of 1 s", m)
		}
		time.Sleep(refused.GetRetryAfter().AsDuration())
		sendFeedback()
		worker.wantNoFrame()
		for range 20 {
			if ack := worker.heartbeat(work...); ack[0].GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Fatalf("a heartbeat got %v, want COMMITTED", ack)
			}
		}
		wantCommitted(t, worker.report(started(work[0]), completed(work[0], "done")))
	})
}

// X5: a worker that sends many bad frames or bad reports is delayed. Other workers are not.
func TestBadFramesAndReportsAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		r.submitAll(t, 1)
		other := r.openSession(t, "other", 1)
		work := other.receiveAssignments(1)
		bad := make([]*lessorv1.Report, 1000)
		for i := range bad {
			bad[i] = started(&lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "unknown"}, LeaseId: "forged"})
		}
		for name, flood := range map[string]struct {
			opening bool // the stream has no session yet
			once    func(worker *testWorker)
			n       int
		}{
			"reports": {n: 6, once: func(worker *testWorker) {
				for _, v := range worker.report(bad...) {
					if v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED {
						t.Fatalf("a bad report got %v, want REJECTED", v)
					}
				}
			}},
			"frames": {n: 5001, once: func(worker *testWorker) {
				worker.wantError(worker.send(handshakeOf("again")), "E.CMD.UNKNOWN", "handshake")
			}},
			"frames before the handshake": {opening: true, n: 5001, once: func(worker *testWorker) {
				worker.wantError(worker.send(registration(1)), "E.CMD.UNKNOWN", "register")
			}},
		} {
			worker := r.openStream(t, name)
			if !flood.opening {
				worker.handshake()
				worker.send(registration(1))
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
			other.heartbeat(work...)
			if took := time.Since(begin); took != 0 {
				t.Errorf("the heartbeat of another worker took %v, want no delay", took)
			}
		}
		synctest.Wait()
	})
}
