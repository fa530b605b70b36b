package httpapi_test

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// succeeded follows the attempt in the body of a callback "completed".
const succeeded = `, "outcome": "SUCCEEDED"`

// H1, H2: each COMMITTED callback has the body that docs/http.md shows, and a renewed task token.
func TestCallbacksAreCommitted(t *testing.T) {
	t.Attr("rules", "H1 H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
		a := r.Lease(t)
		started := w.Callback("started", a,
			`, "workerId": "w", "startedAt": "2025-01-15T10:00:00Z", "attemptId": "`+a.GetAttemptId()+`"`)
		started.Want(t, http.StatusOK, "acknowledged", true, "shouldCancel", false, "verdict", "COMMITTED", "reason",
			"NONE", "taskState", "RUNNING",
			"serverTime", r.Engine.Now().Wall.Time().Format(time.RFC3339Nano))
		time.Sleep(time.Minute)
		token, _ := started.Body["taskToken"].(string)
		beat := w.PostCallback("heartbeat", a.GetTask().GetTaskId(), token,
			`{"attempt": 1, "progressPct": 45, "message": "5 of 10", "checkpoint": {"at": 5}}`)
		beat.Want(t, http.StatusOK, "acknowledged", true, "shouldCancel", false, "expiresInMs", 90_000.0)
		synctest.Wait() // the coordinator passes progress on after the answer
		task := r.Get(t, a.GetTask().GetTaskId())
		if p := task.GetProgress(); p.GetFraction() != 0.45 || p.GetMessage() != "5 of 10" || string(task.GetCheckpoint()) != `{"at":5}` {
			t.Errorf("the task has progress %v and checkpoint %s, want those of the heartbeat", p, task.GetCheckpoint())
		}
		token, _ = beat.Body["taskToken"].(string)
		report := `{"attempt": 1, "outcome": "SUCCEEDED", "output": {"rowCount": 1000000}, "metrics": {"cpuTimeMs": 45000}}`
		done := w.PostCallback("completed", a.GetTask().GetTaskId(), token, report)
		done.Want(t, http.StatusOK, "acknowledged", true, "finalState", "SUCCEEDED", "verdict", "COMMITTED", "replayed", "")
		w.PostCallback("completed", a.GetTask().GetTaskId(), a.GetTaskToken(), report).Want(t, http.StatusOK,
			"finalState", "SUCCEEDED", "replayed", true)
		if task := r.Get(t, a.GetTask().GetTaskId()); string(task.GetOutput()) != `{"rowCount":1000000}` || task.GetMetrics()["cpuTimeMs"] != 45000 {
			t.Errorf("the task has output %s and metrics %v, want those of the report", task.GetOutput(), task.GetMetrics())
		}
	})
}

// S3: a heartbeat with any part of a progress replaces all of its numbers: progressPct may be 0,
// and is 0 if only the message is sent. A heartbeat without progress, and one that is refused,
// changes none of it.
func TestProgressOfHeartbeats(t *testing.T) {
	t.Attr("rules", "S3")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		for _, c := range []struct {
			sent     string
			fraction float64
			message  string
		}{
			{`, "progressPct": 45, "message": "half"`, 0.45, "half"},
			{``, 0.45, "half"},
			{`, "progressPct": null, "message": null, "stage": ""`, 0.45, "half"},
			{`, "progressPct": 0`, 0, "half"},
			{`, "progressPct": 100`, 1, "half"},
			{`, "progressPct": 100.5`, 1, "half"},
			{`, "progressPct": -0.5`, 1, "half"},
			{`, "message": "still there"`, 0, "still there"},
		} {
			w.Callback("heartbeat", a, c.sent)
			synctest.Wait() // the coordinator passes progress on after the answer
			if p := r.Get(t, a.GetTask().GetTaskId()).GetProgress(); p.GetFraction() != c.fraction || p.GetMessage() != c.message {
				t.Errorf("after a heartbeat with %q: the progress is %v %q, want %v %q",
					c.sent, p.GetFraction(), p.GetMessage(), c.fraction, c.message)
			}
		}
	})
}

// H2, T4, T7: in the answer to a report, finalState is how the report ended the attempt, and
// taskState is the state that the task has then. The outcome and the category may come in any case.
func TestCallbacksTellHowAnAttemptEnded(t *testing.T) {
	t.Attr("rules", "H2 T4 T7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		w.Callback("completed", a, `, "outcome": "FAILED", "error": {"category": "USER_CODE", "message": "KeyError", "stackTrace": "..."}`).
			Want(t, http.StatusOK, "finalState", "FAILED", "taskState", "SCHEDULED")
		time.Sleep(2 * time.Second)
		w.Callback("completed", r.Lease(t), `, "outcome": "FAILED", "error": {"category": "ERROR_CATEGORY_INFRASTRUCTURE"}`).
			Want(t, http.StatusOK, "finalState", "FAILED", "taskState", "SCHEDULED")
		time.Sleep(3 * time.Second)
		w.Callback("completed", r.Lease(t), `, "outcome": "failed", "error": {"category": "Infrastructure", "retryable": false}`).
			Want(t, http.StatusOK, "finalState", "FAILED", "taskState", "FAILED", "retryAt", "")
		r.Submit(t, nil)
		a = r.Lease(t)
		w.Callback("started", a, "").Want(t, http.StatusOK)
		r.Cancel(t, a)
		w.Callback("heartbeat", a, "").Want(t, http.StatusOK, "shouldCancel", true, "cancelReason", "not needed",
			"taskState", "CANCELLING")
		w.Callback("completed", a, `, "outcome": "CANCELLED", "cancelledDuringPhase": "processing", "partialProgress": {"recordsProcessed": 500000}`).
			Want(t, http.StatusOK, "finalState", "CANCELLED", "taskState", "CANCELLED")
		if task := r.Get(t, a.GetTask().GetTaskId()); task.GetCancelledDuringPhase() != "processing" ||
			string(task.GetPartialProgress()) != `{"recordsProcessed":500000}` {
			t.Errorf("the task has phase %q and partial progress %s, want those of the report",
				task.GetCancelledDuringPhase(), task.GetPartialProgress())
		}
	})
}

// T4: the error of a report that has no category, over HTTP or gRPC, is shown with the category
// USER_CODE, as it is judged.
func TestErrorWithoutCategoryIsShownAsUserCode(t *testing.T) {
	t.Attr("rules", "T4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for how, report := range map[string]func(a *lessorv1.Assignment){
			"HTTP": func(a *lessorv1.Assignment) {
				w.Callback("completed", a, `, "outcome": "FAILED", "error": {"message": "boom"}`).Want(t, http.StatusOK,
					"replayed", "")
				w.Callback("completed", a,
					`, "outcome": "FAILED", "error": {"message": "boom", "category": "USER_CODE"}`).Want(t,
					http.StatusOK, "replayed", true)
			},
			"gRPC": func(a *lessorv1.Assignment) {
				_, err := r.Workers.Fail(t.Context(), &lessorv1.FailRequest{
					TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{Message: "boom"},
				})
				if err != nil {
					t.Fatal(err)
				}
			},
		} {
			r.Submit(t, nil)
			a := r.Lease(t)
			report(a)
			task := r.Get(t, a.GetTask().GetTaskId())
			if c := task.GetError().GetCategory(); c != lessorv1.ErrorCategory_ERROR_CATEGORY_USER_CODE {
				t.Errorf("after a report over %s the task has an error of category %v, want USER_CODE", how, c)
			}
			shown, _ := w.Send(http.MethodGet, "/v1/tasks/"+task.GetTaskId(), "", "").Body["task"].(map[string]any)
			if e, _ := shown["error"].(map[string]any); e["category"] != "USER_CODE" {
				t.Errorf("after a report over %s the JSON API shows the error %v, want the category USER_CODE", how, e)
			}
		}
	})
}

// V19, T10: a completed callback with startedAt needs no started before it: the history has the
// start.
func TestCompletedCallbackThatSaysWhenItBegan(t *testing.T) {
	t.Attr("rules", "V19 T10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for _, outcome := range []string{succeeded, `, "outcome": "FAILED", "error": {"retryable": false}`} {
			r.Submit(t, nil)
			a := r.Lease(t)
			w.Callback("completed", a, outcome+`, "startedAt": "2001-02-03T04:05:06Z"`).Want(t, http.StatusOK)
			got := r.Get(t, a.GetTask().GetTaskId()).GetHistory()
			if len(got) != 4 || got[2].GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED {
				t.Errorf("the history is %v, want the start as event 2 of 4", got)
			}
		}
	})
}

// T7: a started callback that says that the work has begun is not turned away by a cancel that came
// before it: the worker has the grace, and what it reports counts.
func TestStartedCallbackOfWhatHasBegun(t *testing.T) {
	t.Attr("rules", "T7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		r.Cancel(t, a)
		w.Callback("started", a, `, "begun": true`).Want(t, http.StatusOK, "shouldCancel", true)
		w.Callback("completed", a, succeeded).Want(t, http.StatusOK, "taskState", "COMPLETED")
	})
}

// leaseEnding is a way in which a lease ends. status and want are what later callbacks must be
// answered.
type leaseEnding struct {
	name   string
	spec   func(*lessorv1.TaskSpec)
	end    func(t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient, a *lessorv1.Assignment)
	status int
	want   []any
}

// leaseEndings has the ways in which a lease ends that H2 names.
var leaseEndings = []leaseEnding{
	{"cancelled before its start", nil, func(t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient, a *lessorv1.Assignment) {
		r.Cancel(t, a)
		w.Callback("started", a, "").Want(t, http.StatusConflict, "error", "task_already_terminal", "state",
			"CANCELLED", "reason", "TASK_CANCELLED",
			"cancelReason", "not needed")
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "CANCELLED", "verdict", "CANCELLED", "reason", "TASK_CANCELLED"}},
	{"reported", nil, func(t *testing.T, _ *wiretest.Rig, w *wiretest.HTTPClient, a *lessorv1.Assignment) {
		w.Callback("completed", a, succeeded+`, "output": 1`).Want(t, http.StatusOK)
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "SUCCEEDED", "verdict", "CANCELLED", "reason", "ALREADY_REPORTED"}},
	{"reported, and the task tried again", nil, func(t *testing.T, _ *wiretest.Rig, w *wiretest.HTTPClient, a *lessorv1.Assignment) {
		w.Callback("completed", a, `, "outcome": "FAILED", "error": {"category": "USER_CODE"}`).Want(t, http.StatusOK,
			"taskState", "SCHEDULED")
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "SCHEDULED", "verdict", "CANCELLED", "reason", "ALREADY_REPORTED"}},
	{"reported, and the task deleted", nil, func(t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient, a *lessorv1.Assignment) {
		w.Callback("completed", a, succeeded+`, "output": 1`).Want(t, http.StatusOK)
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId()}); err != nil {
			t.Fatal(err)
		}
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "SUCCEEDED", "verdict", "CANCELLED", "reason", "ALREADY_REPORTED"}},
	{"superseded", shortLease, func(t *testing.T, r *wiretest.Rig, _ *wiretest.HTTPClient, _ *lessorv1.Assignment) {
		time.Sleep(time.Second)
		r.Lease(t)
	}, http.StatusConflict, []any{
		"error", "attempt_mismatch", "expectedAttempt", 2.0, "receivedAttempt", 1.0, "verdict", "CANCELLED", "reason", "SUPERSEDED",
	}},
	{"expired", shortLease, func(*testing.T, *wiretest.Rig, *wiretest.HTTPClient, *lessorv1.Assignment) {
		time.Sleep(time.Second)
	}, http.StatusGone, []any{"error", "task_expired", "verdict", "CANCELLED", "reason", "LEASE_EXPIRED", "taskState", "READY"}},
	{"deleted", nil, func(t *testing.T, r *wiretest.Rig, _ *wiretest.HTTPClient, a *lessorv1.Assignment) {
		if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId(), Force: true}); err != nil {
			t.Fatal(err)
		}
	}, http.StatusGone, []any{"error", "task_expired", "verdict", "CANCELLED", "reason", "TASK_GONE"}},
	{
		"over its grace", func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(time.Second) },
		func(t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient, a *lessorv1.Assignment) {
			w.Callback("started", a, "").Want(t, http.StatusOK)
			r.Cancel(t, a)
			time.Sleep(2 * time.Second)
		}, http.StatusGone,
		[]any{"error", "task_expired", "verdict", "CANCELLED", "reason", "CANCEL_TIMEOUT"},
	},
	{
		"over its time", func(s *lessorv1.TaskSpec) { s.AttemptTimeout = durationpb.New(time.Second) },
		func(*testing.T, *wiretest.Rig, *wiretest.HTTPClient, *lessorv1.Assignment) {
			time.Sleep(2 * time.Second)
		},
		http.StatusGone,
		[]any{"error", "task_expired", "verdict", "CANCELLED", "reason", "DEADLINE_EXCEEDED"},
	},
}

// shortLease gives a task a lease of half a second.
func shortLease(s *lessorv1.TaskSpec) { s.HeartbeatTimeout = durationpb.New(500 * time.Millisecond) }

// H1, H2: after the end of a lease, each callback with its token is refused with the reason for the
// end.
func TestCallbacksAreToldThatTheLeaseHasEnded(t *testing.T) {
	t.Attr("rules", "H1 H2")
	for _, c := range leaseEndings {
		t.Run(c.name, func(t *testing.T) {
			wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
				w := r.Web(t)
				r.Submit(t, c.spec)
				a := r.Lease(t)
				c.end(t, r, w, a)
				for _, verb := range []string{"started", "heartbeat"} {
					w.Callback(verb, a, "").Want(t, c.status, c.want...)
				}
				late := w.Callback("completed", a, succeeded+`, "output": "late"`)
				if strings.HasPrefix(c.name, "reported") {
					late.Want(t, http.StatusConflict, "error", "task_already_terminal", "reason", "DUPLICATE_REPORT",
						"verdict", "REJECTED",
						"state", c.want[3], "code", "E.RESULT.DUPLICATE")
					return
				}
				late.Want(t, c.status, c.want...)
			})
		})
	}
}

// H1, H2, A9: after a restart, a task token and its lease are still valid. After a restart with
// --recovery=invalidate, and after a restore, the lease has ended, and the log says so.
func TestTaskTokensSurviveARestart(t *testing.T) {
	t.Attr("rules", "H1 H2 A9")
	for _, c := range []struct {
		restored bool // lessor restore has made the store
		recovery engine.Recovery
		status   int
		want     []any
		revoked  int // according to the log
	}{
		{false, engine.KeepLeases, http.StatusOK, []any{"acknowledged", true}, 0},
		{false, engine.InvalidateLeases, http.StatusGone, []any{"error", "task_expired", "reason", "COORDINATOR_RECOVERED"}, 1},
		{true, engine.KeepLeases, http.StatusGone, []any{"error", "task_expired", "reason", "COORDINATOR_RECOVERED"}, 1},
	} {
		st := memstore.New()
		var a *lessorv1.Assignment
		wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
			r.Submit(t, nil)
			a = r.Lease(t)
		})
		st = st.Reopen()
		if c.restored {
			var b store.Batch
			err := st.View(func(r store.Reader) error {
				_, err := records.MakeIndependent(&b, r, lease.WallOf(time.Now()))
				return err
			})
			if err = errors.Join(err, st.Commit(t.Context(), &b)); err != nil {
				t.Fatal(err)
			}
		}
		wiretest.ServeWith(t, st, coordinator.Config{Recovery: c.recovery}, func(t *testing.T, r *wiretest.Rig) {
			r.Web(t).Callback("heartbeat", a, "").Want(t, c.status, c.want...)
			if n := strings.Count(r.Log.String(), `"msg":"leases from before the start were revoked","leases":1,`); n != c.revoked {
				t.Errorf("the log says %d times that the start has revoked a lease, want %d: %s", n, c.revoked, r.Log.String())
			}
		})
	}
}

// H1, H2: a task token is valid only for its own attempt of its own task.
func TestTaskTokenIsValidForItsAttemptOnly(t *testing.T) {
	t.Attr("rules", "H1 H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, shortLease)
		first := r.Lease(t)
		r.Submit(t, nil)
		other := r.Lease(t)
		time.Sleep(time.Second)
		again := r.Lease(t) // of the first task
		id := again.GetTask().GetTaskId()
		before := r.Get(t, id).String()
		for _, verb := range []string{"started", "heartbeat", "completed"} {
			body := `{"attempt": 2, "outcome": "SUCCEEDED"}`
			for what, token := range map[string]string{
				"none": "", "no token": "lst_", "a lease id": again.GetLeaseId(), "altered": altered(again.GetTaskToken()),
				"no UTF-8": "lst_\xff",
			} {
				refused := w.PostCallback(verb, id, token, body)
				refused.Want(t, http.StatusUnauthorized, "error", "unauthorized", "code", "E.AUTH.INVALID_TOKEN",
					"reason", "AUTH_INVALID_TOKEN",
					"verdict", nil)
				if refused.Header.Get("WWW-Authenticate") != "Bearer" {
					t.Errorf("%s: WWW-Authenticate is %q, want Bearer", what, refused.Header.Get("WWW-Authenticate"))
				}
			}
			for what, token := range map[string]string{"another task": other.GetTaskToken(), "an older attempt": first.GetTaskToken()} {
				body := body
				if what == "another task" {
					body = `{"attempt": 1, "outcome": "SUCCEEDED"}`
				}
				refused := w.PostCallback(verb, id, token, body)
				refused.Want(t, http.StatusForbidden, "error", "forbidden", "code", "E.AUTH.FORBIDDEN", "verdict", nil)
				if !strings.Contains(refused.Text, "token is for another") {
					t.Errorf("%s: %s, want that the token is for another", what, refused.Text)
				}
			}
			w.PostCallback(verb, id, again.GetTaskToken(),
				`{"attempt": 2, "outcome": "SUCCEEDED", "attemptId": "`+first.GetAttemptId()+`"}`).
				Want(t, http.StatusForbidden, "field", "attemptId", "verdict", nil)
		}
		if after := r.Get(t, id).String(); after != before {
			t.Errorf("refused callbacks changed the task from\n%s\nto\n%s", before, after)
		}
	})
}

// altered returns a token with one character changed.
func altered(token string) string {
	const at = 40
	if token[at] == 'x' {
		return token[:at] + "y" + token[at+1:]
	}
	return token[:at] + "x" + token[at+1:]
}

// H1: only the key of this store makes its task tokens: the token that another coordinator made for
// a task with the same id is refused.
func TestTaskTokenOfAnotherStoreIsRefused(t *testing.T) {
	t.Attr("rules", "H1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		other := wiretest.New(t, memstore.New())
		defer other.Close(t)
		other.Submit(t, nil)
		r.Submit(t, nil)
		theirs, ours := other.Lease(t), r.Lease(t)
		if theirs.GetAttemptId() != ours.GetAttemptId() {
			t.Fatalf("the attempts are %s and %s, want the same id in both stores", theirs.GetAttemptId(), ours.GetAttemptId())
		}
		w := r.Web(t)
		w.Callback("started", theirs, "").Want(t, http.StatusUnauthorized)
		w.Callback("started", ours, "").Want(t, http.StatusOK)
	})
}

// H1, H2: a task token that is not renewed expires after its TTL, which is long after the end of
// its lease.
func TestTaskTokensExpire(t *testing.T) {
	t.Attr("rules", "H1 H2")
	wiretest.ServeWith(t, nil, coordinator.Config{Callbacks: coordinator.Callbacks{TokenTTL: 20 * time.Minute}}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		if life := a.GetTokenExpiresAt().AsTime().Sub(a.GetServerTime().AsTime()); life != 20*time.Minute {
			t.Errorf("the token is valid for %v, want 20m", life)
		}
		time.Sleep(20*time.Minute - time.Second)
		w.Callback("heartbeat", a, "").Want(t, http.StatusGone, "reason", "LEASE_EXPIRED")
		time.Sleep(time.Second)
		w.Callback("heartbeat", a, "").Want(t, http.StatusUnauthorized, "code", "E.AUTH.INVALID_TOKEN")
	})
}

// H1, T7: the heartbeat that tells of a cancel renews the task token for as long as the lease may
// live now, since the attempt timeout no longer applies. So a worker can report until its grace is
// over, even if it sends no further heartbeat and the grace is longer than the token's TTL.
func TestTaskTokenIsValidInTheGrace(t *testing.T) {
	t.Attr("rules", "H1 T7")
	wiretest.ServeWith(t, nil, coordinator.Config{Callbacks: coordinator.Callbacks{TokenTTL: time.Minute}}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatTimeout, s.AttemptTimeout = durationpb.New(time.Hour), durationpb.New(time.Minute)
			s.CancelGrace = durationpb.New(20 * time.Minute)
		})
		a := r.Lease(t)
		w.Callback("started", a, "").Want(t, http.StatusOK)
		r.Cancel(t, a)
		time.Sleep(30 * time.Second)
		beat := w.Callback("heartbeat", a, "")
		beat.Want(t, http.StatusOK, "shouldCancel", true)
		time.Sleep(20*time.Minute - 31*time.Second)
		token, _ := beat.Body["taskToken"].(string)
		w.PostCallback("completed", a.GetTask().GetTaskId(), token, `{"attempt": 1, "outcome": "CANCELLED"}`).
			Want(t, http.StatusOK, "finalState", "CANCELLED", "taskState", "CANCELLED")
	})
}

// H1, S4: a callback acts for the tenant of its task token, whatever tenant the body names. Without
// the token, that tenant's task does not exist for the caller.
func TestTaskTokensActForTheirTenant(t *testing.T) {
	t.Attr("rules", "H1 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		token, id := taskTokenOfOtherTenant(t, r)
		w.Send(http.MethodGet, "/v1/tasks/"+id, "", "").Want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		w.Send(http.MethodGet, "/v1/tasks/"+id+"/events", "", "").Want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		w.Send(http.MethodPost, "/v1/tasks/"+id+":cancel", "", "").Want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		w.PostCallback("started", id, token, `{"attempt": 1, "tenant": "default", "tenantId": "default"}`).Want(t,
			http.StatusOK, "taskState", "RUNNING")
		w.PostCallback("completed", id, token, `{"attempt": 1, "outcome": "SUCCEEDED"}`).Want(t, http.StatusOK,
			"finalState", "SUCCEEDED")
	})
}
