package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/quota"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X5, W14: feedback over the quota of frames is refused with a wait after which it is accepted. Heartbeats and reports are always accepted.
func TestQuotaOfFrames(t *testing.T) {
	t.Attr("rules", "X5 W14")
	withQuotas(t, quota.Limits{Frames: quota.Rate{PerSecond: 1, Burst: 5}}, func(t *testing.T, r *rig) {
		r.submitAll(t, 1)
		worker := r.openSession(t, "w", 1)
		work := worker.receiveAssignments(1)
		say := func() string {
			return worker.send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{{
				TaskId: work[0].GetTask().GetTaskId(), LeaseId: work[0].GetLeaseId(), Message: "half way",
			}}})
		}
		for range 2 { // besides handshake, register and acknowledgement
			say()
		}
		worker.wantNoFrame()
		corr := say()
		m := worker.nextFrame()
		refused := wantPayload[*lessorv1.Error](worker, m)
		if m.GetCorr() != corr || refused.GetCode() != "E.QUOTA.FRAMES" || refused.GetRetryAfter().AsDuration() != time.Second {
			t.Fatalf("heard %v, want a refusal with a wait of 1 s", m)
		}
		time.Sleep(refused.GetRetryAfter().AsDuration())
		say()
		worker.wantNoFrame()
		for range 20 {
			if ack := worker.heartbeat(work...); ack[0].GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Fatalf("a heartbeat: %v", ack)
			}
		}
		wantCommitted(t, worker.report(started(work[0]), completed(work[0], "done")))
	})
}

// X5: a worker that sends many bad frames or reports is slowed down; other workers are not.
func TestBadFramesAndReportsAreDelayed(t *testing.T) {
	t.Attr("rules", "X5")
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		r.submitAll(t, 1)
		other := r.openSession(t, "other", 1)
		work := other.receiveAssignments(1)
		bad := make([]*lessorv1.Report, 1000)
		for i := range bad {
			bad[i] = started(&lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "nobody's"}, LeaseId: "forged"})
		}
		for name, flood := range map[string]struct {
			once func(worker *testWorker)
			n    int
		}{
			"reports": {n: 6, once: func(worker *testWorker) {
				for _, v := range worker.report(bad...) {
					if v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED {
						t.Fatal(v)
					}
				}
			}},
			"frames": {n: 5001, once: func(worker *testWorker) {
				worker.wantError(worker.send(handshakeOf("again")), "E.CMD.UNKNOWN", "handshake")
			}},
		} {
			worker := r.openSession(t, name, 1)
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
				t.Errorf("another's heartbeat took %v", took)
			}
		}
		synctest.Wait()
	})
}
