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
	within(t, quota.Limits{Frames: quota.Rate{PerSecond: 1, Burst: 5}}, func(t *testing.T, r *rig) {
		r.submitAll(t, 1)
		tk := r.work(t, "w", 1)
		work := tk.given(1)
		say := func() string {
			return tk.say(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{{
				TaskId: work[0].GetTask().GetTaskId(), LeaseId: work[0].GetLeaseId(), Message: "half way",
			}}})
		}
		for range 2 { // besides handshake, register and acknowledgement
			say()
		}
		tk.quiet()
		corr := say()
		m := tk.next()
		refused := payloadOf[*lessorv1.Error](tk, m)
		if m.GetCorr() != corr || refused.GetCode() != "E.QUOTA.FRAMES" || refused.GetRetryAfter().AsDuration() != time.Second {
			t.Fatalf("heard %v, want a refusal with a wait of 1 s", m)
		}
		time.Sleep(refused.GetRetryAfter().AsDuration())
		say()
		tk.quiet()
		for range 20 {
			if ack := tk.beat(work...); ack[0].GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED {
				t.Fatalf("a heartbeat: %v", ack)
			}
		}
		did(t, tk.judge(started(work[0]), completed(work[0], "done")))
	})
}

// X5: a worker that sends many bad frames or reports is slowed down; other workers are not.
func TestWhatIsWrongCostsTime(t *testing.T) {
	t.Attr("rules", "X5")
	serveWith(t, nil, noHeartbeats, func(t *testing.T, r *rig) {
		r.submitAll(t, 1)
		other := r.work(t, "other", 1)
		work := other.given(1)
		bad := make([]*lessorv1.Report, 1000)
		for i := range bad {
			bad[i] = started(&lessorv1.Assignment{Task: &lessorv1.Task{TaskId: "nobody's"}, LeaseId: "forged"})
		}
		for name, flood := range map[string]struct {
			once func(tk *talker)
			n    int
		}{
			"reports": {n: 6, once: func(tk *talker) {
				for _, v := range tk.judge(bad...) {
					if v.GetVerdict() != lessorv1.Verdict_VERDICT_REJECTED {
						t.Fatal(v)
					}
				}
			}},
			"frames": {n: 5001, once: func(tk *talker) { tk.refused(tk.say(hello("again")), "E.CMD.UNKNOWN", "handshake") }},
		} {
			tk := r.work(t, name, 1)
			begin := time.Now()
			for range flood.n {
				flood.once(tk)
			}
			if took := time.Since(begin); took != 3*time.Second {
				t.Errorf("a flood of bad %s took %v, want 3 s", name, took)
			}
			begin = time.Now()
			other.beat(work...)
			if took := time.Since(begin); took != 0 {
				t.Errorf("another's heartbeat took %v", took)
			}
		}
		synctest.Wait()
	})
}
