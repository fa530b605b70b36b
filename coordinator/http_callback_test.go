package coordinator

import (
	"errors"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/engine"
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
	serve(t, nil, func(t *testing.T, r *rig) {
		w := r.web(t)
		r.submit(t, func(s *lessorv1.TaskSpec) { s.RunId = "run" })
		a := r.lease(t)
		started := w.callback("started", a, `, "workerId": "w", "startedAt": "2025-01-15T10:00:00Z", "attemptId": "`+a.GetAttemptId()+`"`)
		started.want(t, http.StatusOK, "acknowledged", true, "shouldCancel", false, "verdict", "COMMITTED", "reason", "NONE", "taskState", "RUNNING",
			"serverTime", r.engine.Now().Wall.Time().Format(time.RFC3339Nano))
		time.Sleep(time.Minute)
		token, _ := started.body["taskToken"].(string)
		beat := w.postCallback("heartbeat", a.GetTask().GetTaskId(), token, `{"attempt": 1, "progressPct": 45, "message": "5 of 10", "checkpoint": {"at": 5}}`)
		beat.want(t, http.StatusOK, "acknowledged", true, "shouldCancel", false, "expiresInMs", 90_000.0)
		synctest.Wait() // the coordinator passes progress on after the answer
		task := r.get(t, a.GetTask().GetTaskId())
		if p := task.GetProgress(); p.GetFraction() != 0.45 || p.GetMessage() != "5 of 10" || string(task.GetCheckpoint()) != `{"at":5}` {
			t.Errorf("the task has progress %v and checkpoint %s, want those of the heartbeat", p, task.GetCheckpoint())
		}
		token, _ = beat.body["taskToken"].(string)
		report := `{"attempt": 1, "outcome": "SUCCEEDED", "output": {"rowCount": 1000000}, "metrics": {"cpuTimeMs": 45000}}`
		done := w.postCallback("completed", a.GetTask().GetTaskId(), token, report)
		done.want(t, http.StatusOK, "acknowledged", true, "finalState", "SUCCEEDED", "verdict", "COMMITTED", "replayed", "")
		w.postCallback("completed", a.GetTask().GetTaskId(), a.GetTaskToken(), report).want(t, http.StatusOK, "finalState", "SUCCEEDED", "replayed", true)
		if task := r.get(t, a.GetTask().GetTaskId()); string(task.GetOutput()) != `{"rowCount":1000000}` || task.GetMetrics()["cpuTimeMs"] != 45000 {
			t.Errorf("the task has output %s and metrics %v, want those of the report", task.GetOutput(), task.GetMetrics())
		}
	})
}

// S3: a heartbeat with any part of a progress replaces all of its numbers: progressPct may be 0, and is 0 if only the message is sent. A heartbeat without
// progress, and one that is refused, changes none of it.
func TestProgressOfHeartbeats(t *testing.T) {
	t.Attr("rules", "S3")
	serve(t, nil, func(t *testing.T, r *rig) {
		w := r.web(t)
		r.submit(t, nil)
		a := r.lease(t)
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
			w.callback("heartbeat", a, c.sent)
			synctest.Wait() // the coordinator passes progress on after the answer
			if p := r.get(t, a.GetTask().GetTaskId()).GetProgress(); p.GetFraction() != c.fraction || p.GetMessage() != c.message {
				t.Errorf("after a heartbeat with %q: the progress is %v %q, want %v %q", c.sent, p.GetFraction(), p.GetMessage(), c.fraction, c.message)
			}
		}
	})
}

// H2, T4, T7: in the answer to a report, finalState is how the report ended the attempt, and taskState is the state that the task has then.
func TestCallbacksTellHowAnAttemptEnded(t *testing.T) {
	t.Attr("rules", "H2 T4 T7")
	serve(t, nil, func(t *testing.T, r *rig) {
		w := r.web(t)
		r.submit(t, nil)
		a := r.lease(t)
		w.callback("completed", a, `, "outcome": "FAILED", "error": {"category": "USER_CODE", "message": "KeyError", "stackTrace": "..."}`).
			want(t, http.StatusOK, "finalState", "FAILED", "taskState", "SCHEDULED")
		time.Sleep(2 * time.Second)
		w.callback("completed", r.lease(t), `, "outcome": "FAILED", "error": {"category": "INFRASTRUCTURE", "retryable": false}`).
			want(t, http.StatusOK, "finalState", "FAILED", "taskState", "FAILED", "retryAt", "")
		r.submit(t, nil)
		a = r.lease(t)
		w.callback("started", a, "").want(t, http.StatusOK)
		r.cancel(t, a)
		w.callback("heartbeat", a, "").want(t, http.StatusOK, "shouldCancel", true, "cancelReason", "not needed", "taskState", "CANCELLING")
		w.callback("completed", a, `, "outcome": "CANCELLED", "cancelledDuringPhase": "processing", "partialProgress": {"recordsProcessed": 500000}`).
			want(t, http.StatusOK, "finalState", "CANCELLED", "taskState", "CANCELLED")
		if task := r.get(t, a.GetTask().GetTaskId()); task.GetCancelledDuringPhase() != "processing" ||
			string(task.GetPartialProgress()) != `{"recordsProcessed":500000}` {
			t.Errorf("the task has phase %q and partial progress %s, want those of the report", task.GetCancelledDuringPhase(), task.GetPartialProgress())
		}
	})
}

// V19, T10: a completed callback with startedAt needs no started before it: the history has the start.
func TestCompletedCallbackThatSaysWhenItBegan(t *testing.T) {
	t.Attr("rules", "V19 T10")
	serve(t, nil, func(t *testing.T, r *rig) {
		w := r.web(t)
		for _, outcome := range []string{succeeded, `, "outcome": "FAILED", "error": {"retryable": false}`} {
			r.submit(t, nil)
			a := r.lease(t)
			w.callback("completed", a, outcome+`, "startedAt": "2001-02-03T04:05:06Z"`).want(t, http.StatusOK)
			got := r.get(t, a.GetTask().GetTaskId()).GetHistory()
			if len(got) != 4 || got[2].GetType() != lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_STARTED {
				t.Errorf("the history is %v, want the start as event 2 of 4", got)
			}
		}
	})
}

// leaseEnding is a way in which a lease ends. status and want are what later callbacks must be answered.
type leaseEnding struct {
	name   string
	spec   func(*lessorv1.TaskSpec)
	end    func(t *testing.T, r *rig, w *httpClient, a *lessorv1.Assignment)
	status int
	want   []any
}

// leaseEndings has the ways in which a lease ends that H2 names.
var leaseEndings = []leaseEnding{
	{"cancelled before its start", nil, func(t *testing.T, r *rig, w *httpClient, a *lessorv1.Assignment) {
		r.cancel(t, a)
		w.callback("started", a, "").want(t, http.StatusConflict, "error", "task_already_terminal", "state", "CANCELLED", "reason", "TASK_CANCELLED",
			"cancelReason", "not needed")
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "CANCELLED", "verdict", "CANCELLED", "reason", "TASK_CANCELLED"}},
	{"reported", nil, func(t *testing.T, _ *rig, w *httpClient, a *lessorv1.Assignment) {
		w.callback("completed", a, succeeded+`, "output": 1`).want(t, http.StatusOK)
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "SUCCEEDED", "verdict", "CANCELLED", "reason", "ALREADY_REPORTED"}},
	{"reported, and the task deleted", nil, func(t *testing.T, r *rig, w *httpClient, a *lessorv1.Assignment) {
		w.callback("completed", a, succeeded+`, "output": 1`).want(t, http.StatusOK)
		if _, err := r.tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId()}); err != nil {
			t.Fatal(err)
		}
	}, http.StatusConflict, []any{"error", "task_already_terminal", "state", "SUCCEEDED", "verdict", "CANCELLED", "reason", "ALREADY_REPORTED"}},
	{"superseded", shortLease, func(t *testing.T, r *rig, _ *httpClient, _ *lessorv1.Assignment) {
		time.Sleep(time.Second)
		r.lease(t)
	}, http.StatusConflict, []any{
		"error", "attempt_mismatch", "expectedAttempt", 2.0, "receivedAttempt", 1.0, "verdict", "CANCELLED", "reason", "SUPERSEDED",
	}},
	{"expired", shortLease, func(*testing.T, *rig, *httpClient, *lessorv1.Assignment) {
		time.Sleep(time.Second)
	}, http.StatusGone, []any{"error", "task_expired", "verdict", "CANCELLED", "reason", "LEASE_EXPIRED", "taskState", "READY"}},
	{"deleted", nil, func(t *testing.T, r *rig, _ *httpClient, a *lessorv1.Assignment) {
		if _, err := r.tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: a.GetTask().GetTaskId(), Force: true}); err != nil {
			t.Fatal(err)
		}
	}, http.StatusGone, []any{"error", "task_expired", "verdict", "CANCELLED", "reason", "TASK_GONE"}},
	{
		"over its grace", func(s *lessorv1.TaskSpec) { s.CancelGrace = durationpb.New(time.Second) },
		func(t *testing.T, r *rig, w *httpClient, a *lessorv1.Assignment) {
			w.callback("started", a, "").want(t, http.StatusOK)
			r.cancel(t, a)
			time.Sleep(2 * time.Second)
		}, http.StatusGone,
		[]any{"error", "task_expired", "verdict", "CANCELLED", "reason", "CANCEL_TIMEOUT"},
	},
	{
		"over its time", func(s *lessorv1.TaskSpec) { s.AttemptTimeout = durationpb.New(time.Second) },
		func(*testing.T, *rig, *httpClient, *lessorv1.Assignment) { time.Sleep(2 * time.Second) },
		http.StatusGone,
		[]any{"error", "task_expired", "verdict", "CANCELLED", "reason", "DEADLINE_EXCEEDED"},
	},
}

// shortLease gives a task a lease of half a second.
func shortLease(s *lessorv1.TaskSpec) { s.HeartbeatTimeout = durationpb.New(500 * time.Millisecond) }

// H1, H2: after the end of a lease, each callback with its token is refused with the reason for the end.
func TestCallbacksAreToldThatTheLeaseHasEnded(t *testing.T) {
	t.Attr("rules", "H1 H2")
	for _, c := range leaseEndings {
		t.Run(c.name, func(t *testing.T) {
			serve(t, nil, func(t *testing.T, r *rig) {
				w := r.web(t)
				r.submit(t, c.spec)
				a := r.lease(t)
				c.end(t, r, w, a)
				for _, verb := range []string{"started", "heartbeat"} {
					w.callback(verb, a, "").want(t, c.status, c.want...)
				}
				late := w.callback("completed", a, succeeded+`, "output": "late"`)
				if strings.HasPrefix(c.name, "reported") {
					late.want(t, http.StatusConflict, "error", "task_already_terminal", "reason", "DUPLICATE_REPORT", "verdict", "REJECTED",
						"state", "SUCCEEDED", "code", "E.RESULT.DUPLICATE")
					return
				}
				late.want(t, c.status, c.want...)
			})
		})
	}
}

// H1, H2, A9: after a restart, a task token and its lease are still valid. After a restart with --recovery=invalidate,
// and after a restore, the lease has ended, and the log says so.
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
		serve(t, st, func(t *testing.T, r *rig) {
			r.submit(t, nil)
			a = r.lease(t)
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
		serveWith(t, st, Config{Recovery: c.recovery}, func(t *testing.T, r *rig) {
			r.web(t).callback("heartbeat", a, "").want(t, c.status, c.want...)
			if n := strings.Count(r.log.String(), `"msg":"leases from before the start were revoked","leases":1,`); n != c.revoked {
				t.Errorf("the log says %d times that the start has revoked a lease, want %d: %s", n, c.revoked, r.log.String())
			}
		})
	}
}

// H1, H2: a task token is valid only for its own attempt of its own task.
func TestTaskTokenIsValidForItsAttemptOnly(t *testing.T) {
	t.Attr("rules", "H1 H2")
	serve(t, nil, func(t *testing.T, r *rig) {
		w := r.web(t)
		r.submit(t, shortLease)
		first := r.lease(t)
		r.submit(t, nil)
		other := r.lease(t)
		time.Sleep(time.Second)
		again := r.lease(t) // of the first task
		id := again.GetTask().GetTaskId()
		before := r.get(t, id).String()
		for _, verb := range []string{"started", "heartbeat", "completed"} {
			body := `{"attempt": 2, "outcome": "SUCCEEDED"}`
			for what, token := range map[string]string{
				"none": "", "no token": "lst_", "a lease id": again.GetLeaseId(), "altered": altered(again.GetTaskToken()),
				"no UTF-8": "lst_\xff",
			} {
				refused := w.postCallback(verb, id, token, body)
				refused.want(t, http.StatusUnauthorized, "error", "unauthorized", "code", "E.AUTH.INVALID_TOKEN", "reason", "AUTH_INVALID_TOKEN",
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
				refused := w.postCallback(verb, id, token, body)
				refused.want(t, http.StatusForbidden, "error", "forbidden", "code", "E.AUTH.FORBIDDEN", "verdict", nil)
				if !strings.Contains(refused.text, "token is for another") {
					t.Errorf("%s: %s, want that the token is for another", what, refused.text)
				}
			}
			w.postCallback(verb, id, again.GetTaskToken(), `{"attempt": 2, "outcome": "SUCCEEDED", "attemptId": "`+first.GetAttemptId()+`"}`).
				want(t, http.StatusForbidden, "field", "attemptId", "verdict", nil)
		}
		if after := r.get(t, id).String(); after != before {
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

// H1: only the key of this store makes its task tokens: the token that another coordinator made for a task with the same id is refused.
func TestTaskTokenOfAnotherStoreIsRefused(t *testing.T) {
	t.Attr("rules", "H1")
	serve(t, nil, func(t *testing.T, r *rig) {
		other := newRig(t, memstore.New())
		defer other.close(t)
		other.submit(t, nil)
		r.submit(t, nil)
		theirs, ours := other.lease(t), r.lease(t)
		if theirs.GetAttemptId() != ours.GetAttemptId() {
			t.Fatalf("the attempts are %s and %s, want the same id in both stores", theirs.GetAttemptId(), ours.GetAttemptId())
		}
		w := r.web(t)
		w.callback("started", theirs, "").want(t, http.StatusUnauthorized)
		w.callback("started", ours, "").want(t, http.StatusOK)
	})
}

// H1, H2: a task token that is not renewed expires after its TTL, which is long after the end of its lease.
func TestTaskTokensExpire(t *testing.T) {
	t.Attr("rules", "H1 H2")
	serveWith(t, nil, Config{Callbacks: Callbacks{TokenTTL: 20 * time.Minute}}, func(t *testing.T, r *rig) {
		w := r.web(t)
		r.submit(t, nil)
		a := r.lease(t)
		if life := a.GetTokenExpiresAt().AsTime().Sub(a.GetServerTime().AsTime()); life != 20*time.Minute {
			t.Errorf("the token is valid for %v, want 20m", life)
		}
		time.Sleep(20*time.Minute - time.Second)
		w.callback("heartbeat", a, "").want(t, http.StatusGone, "reason", "LEASE_EXPIRED")
		time.Sleep(time.Second)
		w.callback("heartbeat", a, "").want(t, http.StatusUnauthorized, "code", "E.AUTH.INVALID_TOKEN")
	})
}

// H1, T7: the heartbeat that tells of a cancel renews the task token for as long as the lease may live now, since the attempt timeout no longer applies. So a
// worker can report until its grace is over, even if it sends no further heartbeat and the grace is longer than the token's TTL.
func TestTaskTokenIsValidInTheGrace(t *testing.T) {
	t.Attr("rules", "H1 T7")
	serveWith(t, nil, Config{Callbacks: Callbacks{TokenTTL: time.Minute}}, func(t *testing.T, r *rig) {
		w := r.web(t)
		r.submit(t, func(s *lessorv1.TaskSpec) {
			s.HeartbeatTimeout, s.AttemptTimeout = durationpb.New(time.Hour), durationpb.New(time.Minute)
			s.CancelGrace = durationpb.New(20 * time.Minute)
		})
		a := r.lease(t)
		w.callback("started", a, "").want(t, http.StatusOK)
		r.cancel(t, a)
		time.Sleep(30 * time.Second)
		beat := w.callback("heartbeat", a, "")
		beat.want(t, http.StatusOK, "shouldCancel", true)
		time.Sleep(20*time.Minute - 31*time.Second)
		token, _ := beat.body["taskToken"].(string)
		w.postCallback("completed", a.GetTask().GetTaskId(), token, `{"attempt": 1, "outcome": "CANCELLED"}`).
			want(t, http.StatusOK, "finalState", "CANCELLED", "taskState", "CANCELLED")
	})
}

// H1, S4: a callback acts for the tenant of its task token, whatever tenant the body names. Without the token, that tenant's task does not exist for the
// caller.
func TestTaskTokensActForTheirTenant(t *testing.T) {
	t.Attr("rules", "H1 S4")
	serve(t, nil, func(t *testing.T, r *rig) {
		w := r.web(t)
		token, id := r.taskTokenOfOtherTenant(t)
		w.send(http.MethodGet, "/v1/tasks/"+id, "", "").want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		w.send(http.MethodGet, "/v1/tasks/"+id+"/events", "", "").want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		w.send(http.MethodPost, "/v1/tasks/"+id+":cancel", "", "").want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		w.postCallback("started", id, token, `{"attempt": 1, "tenant": "default", "tenantId": "default"}`).want(t, http.StatusOK, "taskState", "RUNNING")
		w.postCallback("completed", id, token, `{"attempt": 1, "outcome": "SUCCEEDED"}`).want(t, http.StatusOK, "finalState", "SUCCEEDED")
	})
}
