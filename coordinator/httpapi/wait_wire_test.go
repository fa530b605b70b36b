package httpapi_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// taskState returns the state of the task in an answer.
func taskState(a wiretest.HTTPResponse) string {
	task, _ := a.Body["task"].(map[string]any)
	state, _ := task["state"].(string)
	return state
}

// later does something after a time, while requests wait.
func later(d time.Duration, do func()) { go func() { time.Sleep(d); do() }() }

// H2: a get with a wait is answered as soon as the task has ended, or with the task as it is when
// the time is over, which is a minute at most; with 200 each time. The wait may be longer than the
// server's usual time limit. The answer is that of a get without a wait.
func TestWaitForTheEndOfATask(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = []byte(`{"in":1}`) }).GetTaskId()
		path := "/v1/tasks/" + id
		wait := func(query, state string, takes time.Duration) {
			t.Helper()
			begun := time.Now()
			got := w.Send(http.MethodGet, path+query, "", "")
			got.Want(t, http.StatusOK)
			if took := time.Since(begun); took != takes || taskState(got) != state {
				t.Errorf("%s: %s after %v, want %s after %v", query, taskState(got), took, state, takes)
			}
			if plain := w.Send(http.MethodGet, path, "", ""); got.Text != plain.Text {
				t.Errorf("%s: %s, want as without a wait: %s", query, got.Text, plain.Text)
			}
		}
		wait("?waitMs=0", "READY", 0)
		wait("?waitMs=1", "READY", time.Millisecond)
		wait("?waitMs=55000", "READY", 55*time.Second)
		wait("?waitMs=60001", "READY", time.Minute)
		wait("?waitMs=9223372036854775807", "READY", time.Minute)
		a := r.Lease(t)
		later(40*time.Second, func() { r.Complete(t, a, `{"out":2}`) })
		wait("?waitMs=60000", "COMPLETED", 40*time.Second)
		wait("?waitMs=60000", "COMPLETED", 0)
		if log := r.Log.String(); strings.Contains(log, `"WARN"`) || strings.Contains(log, `"ERROR"`) {
			t.Errorf("waits that are over are in the log as errors:\n%s", log)
		}
		const whole = 700 << 10 // with its wiretest.Payload as large, more than AwaitTasks tells
		id = r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = make([]byte, whole) }).GetTaskId()
		path, a = "/v1/tasks/"+id, r.Lease(t)
		later(time.Second, func() { r.Complete(t, a, wiretest.Text(whole)) })
		wait("?waitMs=5000", "COMPLETED", time.Second)
	})
}

// H2, T9: a cancel and a deletion end a wait. A task that does not exist is not waited for, and the
// answer is that of a get without a wait.
func TestWaitForATaskThatIsGone(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		begun := time.Now()
		for _, id := range []string{"t0000200000000zzz", "nothing", wiretest.Text(257)} {
			plain := w.Send(http.MethodGet, "/v1/tasks/"+id, "", "")
			got := w.Send(http.MethodGet, "/v1/tasks/"+id+"?waitMs=5000", "", "")
			if got.StatusCode < http.StatusBadRequest || got.StatusCode != plain.StatusCode || got.Text != plain.Text || time.Since(begun) != 0 {
				t.Errorf("a wait for %.20s: %d %s after %v, want as without it, at once: %d %s",
					id, got.StatusCode, got.Text, time.Since(begun), plain.StatusCode, plain.Text)
			}
		}
		gone, cancelled := r.Submit(t, nil).GetTaskId(), r.Submit(t, nil).GetTaskId()
		later(2*time.Second, func() {
			if _, err := r.Tasks.DeleteTask(t.Context(), &lessorv1.DeleteTaskRequest{TaskId: gone}); err != nil {
				t.Error(err)
			}
		})
		w.Send(http.MethodGet, "/v1/tasks/"+gone+"?waitMs=5000", "", "").Want(t, http.StatusNotFound, "code",
			refusal.CodeNotFound)
		later(time.Second, func() { r.CancelTask(t, cancelled) })
		if got := w.Send(http.MethodGet, "/v1/tasks/"+cancelled+"?waitMs=5000", "", ""); taskState(got) != "CANCELLED" || time.Since(begun) != 3*time.Second {
			t.Errorf("a wait for a task that is cancelled ends with %s after %v, want CANCELLED after 3s",
				got.Text, time.Since(begun))
		}
	})
}

// H2, S4: what is wrong with the parameters of a get is refused with the name of the parameter,
// also on a task that does not exist.
func TestBadWaits(t *testing.T) {
	t.Attr("rules", "H2 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for _, id := range []string{r.Submit(t, nil).GetTaskId(), "nothing"} {
			begun := time.Now()
			for query, says := range map[string]string{
				"waitMs=":                    "waitMs: must not be empty; leave it out",
				"waitMs":                     "waitMs: must not be empty; leave it out",
				"waitMs=-1":                  "waitMs: is -1; it cannot be negative",
				"waitMs=5s":                  "waitMs: is a string; it must be a number",
				"waitMs=1.5":                 "waitMs: is 1.5; it must be a whole number from 0 to 9223372036854775807",
				"waitMs=9223372036854775808": "waitMs: is 9223372036854775808; it must be a whole number from 0 to 9223372036854775807",
				"waitMs=1&waitMs=1":          "waitMs: is sent twice",
				"WaitMs=1":                   "WaitMs: has the wrong case; the field is waitMs",
				"wait=1":                     "wait: is not a field of this request",
			} {
				field, _, _ := strings.Cut(says, ":")
				w.Send(http.MethodGet, "/v1/tasks/"+id+"?"+query, "", "").Want(t, http.StatusBadRequest, "code",
					refusal.CodeInvalid, "field", field, "message", says)
			}
			w.Send(http.MethodGet, "/v1/tasks/"+id, "", `{"waitMs": 1}`).Want(t, http.StatusBadRequest, "message",
				"a GET has no body; its fields are parameters of the URL")
			if took := time.Since(begun); took != 0 {
				t.Errorf("the refusals took %v, want no wait", took)
			}
		}
	})
}

// H2, A6: a wait ends when the coordinator stops, and the answer says when to ask again.
func TestWaitEndsWithAStop(t *testing.T) {
	t.Attr("rules", "H2 A6")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, nil).GetTaskId()
		later(2*time.Second, r.Stop)
		begun := time.Now()
		got := w.Send(http.MethodGet, "/v1/tasks/"+id+"?waitMs=60000", "", "")
		got.Want(t, http.StatusServiceUnavailable, "error", "unavailable", "code", refusal.CodeStopping, "verdict", nil,
			"retryAfterMs", 1000.0)
		if took := time.Since(begun); took != 2*time.Second || got.Header.Get("Retry-After") != "1" {
			t.Errorf("after %v, with Retry-After %q; want at the stop after 2s, with 1", took, got.Header.Get("Retry-After"))
		}
	})
}

// X3: a wait ends within a second of the credential.
func TestWaitEndsWithItsCredential(t *testing.T) {
	t.Attr("rules", "X3")
	for problem, end := range wiretest.CredentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
				w := r.Web(t)
				operator, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
				id := w.SubmitTask(operator, "q")
				token, tokenID := r.IssueFor(t, gate.DefaultTenant, auth.Viewer, wiretest.ShortLife)
				waited := make(chan wiretest.HTTPResponse, 1)
				go func() { waited <- w.Send(http.MethodGet, "/v1/tasks/"+id+"?waitMs=60000", token, "") }()
				synctest.Wait()
				if err := end(r, tokenID); err != nil {
					t.Fatal(err)
				}
				ended := time.Now()
				(<-waited).Want(t, http.StatusUnauthorized, "code", refusal.CodeToken, "verdict", nil)
				if took := time.Since(ended); took > time.Second {
					t.Errorf("the wait ended %v after its credential, want at most 1s", took)
				}
			})
		})
	}
}

// X5: a wait counts in the quotas of waits and streams while it lasts, and no longer: not after its
// end, nor after its caller has left. Without room it is refused at once, with a wait; a task that
// has ended is told all the same.
func TestQuotaOfWaitsOverHTTP(t *testing.T) {
	t.Attr("rules", "X5")
	wiretest.WithQuotas(t, quota.Limits{Waits: 1}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		ended, waiting := r.Cancelled(t, 1, 0)[0], r.Submit(t, nil).GetTaskId()
		path := "/v1/tasks/" + waiting + "?waitMs=10000"
		uses := func(what string, n int) {
			t.Helper()
			synctest.Wait()
			all := r.Quotas.Usage(quota.Caller{Tenant: gate.DefaultTenant})
			if !wiretest.HasUse(all, quota.Waits, n) || !wiretest.HasUse(all, quota.Streams, n) {
				t.Errorf("%s the quotas say %v, want %d waits and streams", what, all, n)
			}
		}
		first := make(chan wiretest.HTTPResponse, 1)
		go func() { first <- w.Send(http.MethodGet, path, "", "") }()
		uses("during a wait", 1)
		begun := time.Now()
		refused := w.Send(http.MethodGet, path, "", "")
		refused.Want(t, http.StatusTooManyRequests, "error", "too_many_requests", "code", refusal.CodeQuotaWaits,
			"reason", "QUOTA_WAITS", "verdict", nil, "retryAfterMs", 1000.0)
		if refused.Header.Get("Retry-After") != "1" || time.Since(begun) != 0 {
			t.Errorf("Retry-After is %q, after %v; want 1, at once", refused.Header.Get("Retry-After"), time.Since(begun))
		}
		if got := w.Send(http.MethodGet, "/v1/tasks/"+ended+"?waitMs=10000", "", ""); taskState(got) != "CANCELLED" {
			t.Errorf("a task that has ended: %d %s, want it told", got.StatusCode, got.Text)
		}
		(<-first).Want(t, http.StatusOK)
		uses("after the wait", 0)
		ctx, leave := context.WithTimeout(t.Context(), time.Second)
		defer leave()
		req, _ := http.NewRequestWithContext(ctx, http.MethodGet, "http://coordinator"+path, nil)
		if res, err := w.Do(req); err == nil {
			_ = res.Body.Close()
			t.Error("the wait was answered after its caller had left")
		}
		uses("after its caller has left", 0)
	})
}

// H2: many requests may wait, for one task or for many, and each is answered when its task ends.
func TestManyWaits(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		const tasks, each = 20, 10
		answers := make(chan string, tasks*each)
		for i := range tasks {
			id := r.Submit(t, func(s *lessorv1.TaskSpec) { s.RunId = fmt.Sprint("r", i%2) }).GetTaskId()
			for range each {
				go func() { answers <- taskState(w.Send(http.MethodGet, "/v1/tasks/"+id+"?waitMs=60000", "", "")) }()
			}
		}
		for _, run := range []string{"r0", "r1"} {
			time.Sleep(time.Second)
			if _, err := r.Tasks.BatchCancelTasks(t.Context(), &lessorv1.BatchCancelTasksRequest{Filter: &lessorv1.TaskFilter{RunId: run}}); err != nil {
				t.Fatal(err)
			}
			if synctest.Wait(); len(answers) != tasks*each/2 {
				t.Errorf("after the end of half of the tasks, %d waits are answered, want %d", len(answers), tasks*each/2)
			}
			for range len(answers) {
				if state := <-answers; state != "CANCELLED" {
					t.Errorf("a wait is answered with %q, want CANCELLED", state)
				}
			}
		}
	})
}
