package coordinator_test

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// graceTold are the ways to ask how much of cancel_grace is left. Each returns nil if the answer
// does not say it.
var graceTold = map[string]func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) *durationpb.Duration{
	"Start": func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) *durationpb.Duration {
		res, err := r.Workers.Start(t.Context(), wiretest.Started(a).GetStart())
		if err != nil {
			t.Fatal(err)
		}
		return res.GetCancelGraceLeft()
	},
	"Heartbeat": func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) *durationpb.Duration {
		res, err := r.Workers.Heartbeat(t.Context(), wiretest.Renewal(a))
		if err != nil {
			t.Fatal(err)
		}
		return res.GetCancelGraceLeft()
	},
	"start on a stream": func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) *durationpb.Duration {
		worker := r.OpenSession(t, "other", 1)
		defer worker.Cut()
		return worker.Report(wiretest.Started(a))[0].GetCancelGraceLeft()
	},
	"heartbeat on a stream": func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) *durationpb.Duration {
		worker := r.OpenSession(t, "other", 1)
		defer worker.Cut()
		return worker.Heartbeat(a)[0].GetCancelGraceLeft()
	},
	"started over HTTP":   graceOverHTTP("started"),
	"heartbeat over HTTP": graceOverHTTP("heartbeat"),
}

func graceOverHTTP(verb string) func(*testing.T, *wiretest.Rig, *lessorv1.Assignment) *durationpb.Duration {
	return func(t *testing.T, r *wiretest.Rig, a *lessorv1.Assignment) *durationpb.Duration {
		answer := r.Web(t).Callback(verb, a, "")
		left, told := answer.Body["cancelGraceLeftMs"].(float64)
		if !told {
			return nil
		}
		answer.Want(t, http.StatusOK, "shouldCancel", true)
		return durationpb.New(time.Duration(left) * time.Millisecond)
	}
}

// T7, A8: while a task is CANCELLING, the answers to its worker say how much of cancel_grace is
// left, so that one which hears late of the cancel knows as well by when it must have reported. A
// restart takes nothing of it. At any other time no grace is told.
func TestWorkerIsToldWhatIsLeftOfTheGrace(t *testing.T) {
	t.Attr("rules", "T7 A8")
	for name, ask := range graceTold {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := memstore.New()
				r := wiretest.New(t, st)
				defer func() { r.Close(t) }()
				r.Submit(t, func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(40 * time.Second) })
				a := r.Lease(t)
				r.Start(t, a)
				wantNone := func(when string) {
					t.Helper()
					if got := ask(t, r, a); got != nil {
						t.Errorf("%s, the worker is told a grace of %v, want none", when, got.AsDuration())
					}
				}
				wantLeft := func(least, most time.Duration) {
					t.Helper()
					if got := ask(t, r, a); got == nil || got.AsDuration() < least || got.AsDuration() > most {
						t.Errorf("the worker is told a grace of %v, want %v to %v", got, least, most)
					}
				}
				wantNone("before the cancel")
				r.Cancel(t, a)
				wantLeft(40*time.Second, 40*time.Second)
				time.Sleep(10 * time.Second)
				wantLeft(30*time.Second, 30*time.Second) // although the lease has just been renewed for longer
				began := time.Now()
				r.Close(t)
				served := time.Since(began) + time.Millisecond // while it was stopping; HTTP tells whole milliseconds
				time.Sleep(10 * time.Minute)
				r = wiretest.New(t, st.Reopen())
				wantLeft(30*time.Second-served, 31*time.Second)
				time.Sleep(29 * time.Second)
				wantLeft(time.Second-served, 2*time.Second)
				time.Sleep(2 * time.Second)
				wantNone("after the end of the lease")
			})
		})
	}
}
