package httpapi_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// tokensOf returns what issues the task tokens of a coordinator.
func tokensOf(r *wiretest.Rig) convert.Tokens {
	return convert.Tokens{Signer: tasktoken.New(r.Engine.DeriveKey(tasktoken.Purpose), tasktoken.DefaultTTL)}
}

// taskTokenOfOtherTenant leases a task as the tenant "other", and returns its task token and id.
func taskTokenOfOtherTenant(t *testing.T, r *wiretest.Rig) (token, id string) {
	t.Helper()
	task, now := r.LeaseOfOtherTenant(t).Task, r.Engine.Now()
	token, _ = tokensOf(r).Of(&convert.Times{Now: now}, task.Holding(), task.ExpiresAt(now))
	return token, task.ID.String()
}

// badBody is a body that must be refused. field is the field that the answer must name; "" means
// none.
type badBody struct{ name, body, field string }

// badBodies are bodies that every route must refuse.
var badBodies = []badBody{
	{"nothing", ``, ""},
	{"cut off", `{"attempt": 1`, ""},
	{"no object", `[1]`, ""},
	{"two documents", `{"attempt": 1} {"attempt": 1}`, ""},
	{"NaN", `{"attempt": NaN}`, ""},
	{"no UTF-8", "{\"attempt\": 1, \"message\": \"\xff\"}", ""},
}

// V1, H2: a callback with a bad body is REJECTED with the field's name, and changes nothing.
func TestBadCallbacksAreRejected(t *testing.T) {
	t.Attr("rules", "H2 V1")
	deep := strings.Repeat(`{"a":`, 10_000) + "1" + strings.Repeat("}", 10_000)
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		show := func() string {
			task := r.Get(t, a.GetTask().GetTaskId())
			task.History = nil       // the history records refusals (T10)
			task.Lease.AckedAt = nil // who sends even a bad callback has the lease (W5)
			return task.String()
		}
		before := show()
		for verb, bodies := range map[string][]badBody{
			"started": {
				{"no attempt", `{"workerId": "w"}`, "attempt"},
				{"null attempt", `{"attempt": null}`, "attempt"},
				{"attempt as text", `{"attempt": "1"}`, "attempt"},
				{"attempt with a fraction", `{"attempt": 1.5}`, "attempt"},
				{"negative attempt", `{"attempt": -1}`, "attempt"},
				{"half a character", `{"attempt": 1, "workerId": "\ud800"}`, "workerId"},
				{"another case", `{"attempt": 1, "Attempt": 2}`, "Attempt"},
				{"twice", `{"attempt": 1, "attempt": 1}`, "attempt"},
				{"no time", `{"attempt": 1, "startedAt": "yesterday"}`, "startedAt"},
				{"before 1970", `{"attempt": 1, "startedAt": "1900-01-01T00:00:00Z"}`, "startedAt"},
				{"long name", `{"attempt": 1, "workerId": "` + strings.Repeat("w", 300) + `"}`, "workerId"},
				{"control character", `{"attempt": 1, "workerId": "\u0000"}`, "workerId"},
			},
			"heartbeat": {
				{"over 100 percent", `{"attempt": 1, "progressPct": 101}`, "progressPct"},
				{"out of range", `{"attempt": 1, "progressPct": 1e999}`, "progressPct"},
				{"twice, inside", `{"attempt": 1, "metrics": {"a": 1, "a": 2}}`, "metrics.a"},
				{"two checkpoints", `{"attempt": 1, "checkpoint": 1, "checkpointBase64": "MQ=="}`, "checkpoint"},
				{"no base64", `{"attempt": 1, "checkpointBase64": "-"}`, "checkpointBase64"},
				{"large checkpoint", `{"attempt": 1, "checkpoint": "` + strings.Repeat("c", 70_000) + `"}`, "checkpoint"},
			},
			"completed": {
				{"no outcome", `{"attempt": 1}`, "outcome"},
				{"metric as text", `{"attempt": 1, "outcome": "SUCCEEDED", "metrics": {"cpu": "1"}}`, "metrics.cpu"},
				{"artifacts as object", `{"attempt": 1, "outcome": "SUCCEEDED", "artifacts": {}}`, "artifacts"},
				{"unknown outcome", `{"attempt": 1, "outcome": "COMPLETED"}`, "outcome"},
				{"no error", `{"attempt": 1, "outcome": "FAILED"}`, "error"},
				{"unknown category", `{"attempt": 1, "outcome": "FAILED", "error": {"category": "BAD"}}`, "error.category"},
				{"success with an error", `{"attempt": 1, "outcome": "SUCCEEDED", "error": {}}`, "error"},
				{"success with a phase", `{"attempt": 1, "outcome": "SUCCEEDED", "cancelledDuringPhase": "p"}`, "cancelledDuringPhase"},
				{"success with a part", `{"attempt": 1, "outcome": "SUCCEEDED", "partialProgress": 0}`, "partialProgress"},
				{"failure with an output", `{"attempt": 1, "outcome": "FAILED", "error": {}, "output": false}`, "output"},
				{"failure with bytes", `{"attempt": 1, "outcome": "FAILED", "error": {}, "outputBase64": ""}`, "outputBase64"},
				{"failure with artifacts", `{"attempt": 1, "outcome": "FAILED", "error": {}, "artifacts": [{"resourceId": "r"}]}`, "artifacts"},
				{"cancel with an output", `{"attempt": 1, "outcome": "CANCELLED", "output": 1}`, "output"},
				{"no resource id", `{"attempt": 1, "outcome": "SUCCEEDED", "artifacts": [{"type": "t"}]}`, "artifacts[0].resourceId"},
				{"deep", `{"attempt": 1, "outcome": "SUCCEEDED", "output": ` + deep + `}`, "output"},
				{"twice, deep inside", `{"attempt": 1, "outcome": "SUCCEEDED", "output": [{"a": {"b": 1, "b": 1}}]}`, "output[0].a.b"},
			},
		} {
			for _, c := range append(bodies, badBodies...) {
				w.PostCallback(verb, a.GetTask().GetTaskId(), a.GetTaskToken(), c.body).Named(c.name).Want(t,
					http.StatusBadRequest,
					"error", "invalid_request", "code", "E.REQUEST.INVALID", "field", c.field, "verdict", "REJECTED", "reason", "INVALID_REQUEST")
			}
		}
		if after := show(); after != before {
			t.Errorf("bad callbacks changed the task from\n%s\nto\n%s", before, after)
		}
		// unknown fields are accepted, because a worker may be newer
		w.Callback("heartbeat", a, `, "newerThanThis": {"any": []}`).Want(t, http.StatusOK)
	})
}

// T10, V1: the history of a task has each REJECTED callback with the reason, even if the body
// cannot be read. The same callback again adds nothing to the history. The metrics count every
// verdict.
func TestBadCallbacksAreInTheHistory(t *testing.T) {
	t.Attr("rules", "T10 V1")
	deep := strings.Repeat(`{"a_long_name_that_makes_the_path_of_the_field_long":`,
		20) + `{"a": 1, "a": 2}` + strings.Repeat("}", 20)
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for _, c := range []struct{ verb, body, kind, detail string }{
			{"started", `{"attempt": 1`, "START", "body: ends before its JSON object is complete"},
			{"heartbeat", `{"attempt": 1, "progressPct": 101}`, "HEARTBEAT", "progressPct: is 101; the range is 0 to 100; this heartbeat did not renew the lease"},
			{"heartbeat", `{"attempt": 1, "checkpoint": ` + deep + `}`, "HEARTBEAT", ""},
			{"completed", `{"attempt": 1, "outcome": "DONE"}`, "COMPLETE", `outcome: is "DONE"; it is SUCCEEDED, FAILED or CANCELLED`},
			{"completed", `{"attempt": 1, "outcome": "FAILED", "error": {"category": "BAD"}}`, "FAIL", ""},
			{"completed", `{"attempt": 1, "outcome": "FAILED"}`, "FAIL", "error: is missing"},
			{"completed", `{"attempt": 1, "outcome": "SUCCEEDED", "error": {}}`, "COMPLETE", "error: cannot be sent with the outcome SUCCEEDED"},
			{"completed", `{"attempt": 1, "outcome": "CANCELLED", "output": 1}`, "FAIL", "output: cannot be sent with the outcome CANCELLED"},
		} {
			r.Submit(t, nil)
			a := r.Lease(t)
			for range 3 {
				w.PostCallback(c.verb, a.GetTask().GetTaskId(), a.GetTaskToken(), c.body).Want(t, http.StatusBadRequest,
					"verdict", "REJECTED")
			}
			var got []*lessorv1.HistoryEvent
			for _, e := range r.Get(t, a.GetTask().GetTaskId()).GetHistory() {
				if e.GetType() == lessorv1.HistoryEventType_HISTORY_EVENT_TYPE_REFUSED {
					got = append(got, e)
				}
			}
			if len(got) != 1 || got[0].GetRefusedKind().String() != "REFUSED_KIND_"+c.kind || got[0].GetReason() != lessorv1.Reason_REASON_INVALID_REQUEST ||
				got[0].GetActor() != "w" || len(got[0].GetDetail()) > 600 || c.detail != "" && got[0].GetDetail() != c.detail {
				t.Errorf("%s %.80s: the history has %v, want one refusal of %s: %s", c.verb, c.body, got, c.kind, c.detail)
			}
		}
		const want = `lessor_verdicts_total{kind="complete",reason="INVALID_REQUEST",verdict="REJECTED"} 6`
		if metrics := w.Send(http.MethodGet, "/metrics", "", "").Text; !strings.Contains(metrics, want) {
			t.Errorf("the metrics have no %s:\n%s", want, metrics)
		}
	})
}

// H2: a callback whose body was cut off in transfer is no report: the answer has no verdict, and
// the task does not change.
func TestBrokenCallbacksHaveNoVerdict(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		r.Submit(t, nil)
		a := r.Lease(t)
		before := r.Get(t, a.GetTask().GetTaskId()).String()
		body := io.MultiReader(strings.NewReader(`{"attempt": 1`), iotest.ErrReader(io.ErrUnexpectedEOF))
		res, req := httptest.NewRecorder(),
			httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/v1/tasks/"+a.GetTask().GetTaskId()+"/started", body)
		req.Host = "localhost"
		req.Header.Set("Authorization", "Bearer "+a.GetTaskToken())
		r.HTTP.Handler.ServeHTTP(res, req)
		if res.Code != http.StatusBadRequest || !strings.Contains(res.Body.String(), `"verdict":null`) {
			t.Errorf("status %d: %s, want 400 without a verdict", res.Code, res.Body)
		}
		if after := r.Get(t, a.GetTask().GetTaskId()).String(); after != before {
			t.Errorf("the broken callback changed the task from\n%s\nto\n%s", before, after)
		}
	})
}

// H2: a body with a Content-Encoding is refused, and the answer names that header. "identity" is
// allowed.
func TestEncodedBodiesAreRefused(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		var packed bytes.Buffer
		z := gzip.NewWriter(&packed)
		_, _ = z.Write([]byte(`{"attempt": 1}`)) // bytes.Buffer returns no error
		_ = z.Close()
		for _, c := range []struct {
			path, token, body string
			encodings         []string
			verdict           any
			status            int
		}{
			{"/v1/tasks/" + a.GetTask().GetTaskId() + "/heartbeat", a.GetTaskToken(), packed.String(), []string{"gzip"}, "REJECTED", http.StatusBadRequest},
			{"/v1/tasks/" + a.GetTask().GetTaskId() + "/heartbeat", a.GetTaskToken(), packed.String(), []string{"identity", "gzip"}, "REJECTED", http.StatusBadRequest},
			{"/v1/tasks", "", packed.String(), []string{"gzip"}, nil, http.StatusBadRequest},
			{"/v1/tasks/" + a.GetTask().GetTaskId() + "/heartbeat", a.GetTaskToken(), `{"attempt": 1}`, []string{"Identity"}, "COMMITTED", http.StatusOK},
		} {
			res := w.SendWith(http.MethodPost, c.path, c.token, strings.NewReader(c.body),
				http.Header{"Content-Encoding": c.encodings})
			res.Named(strings.Join(c.encodings, ", ")).Want(t, c.status, "verdict", c.verdict)
			if c.status == http.StatusBadRequest {
				res.Want(t, c.status, "field", "Content-Encoding", "code", "E.REQUEST.INVALID")
			}
		}
	})
}

// H2, V11: an output over the inline limit is REJECTED, and the lease stays live. A body over the
// limit of bodies is refused without being read.
func TestLargeCallbacksAreRefused(t *testing.T) {
	t.Attr("rules", "H2 V11")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		w.Callback("completed", a, succeeded+`, "output": "`+strings.Repeat("x", 1<<20)+`"`).
			Want(t, http.StatusRequestEntityTooLarge, "error", "too_large", "verdict", "REJECTED", "reason", "RESULT_TOO_LARGE")
		w.Callback("completed", a, succeeded+`, "output": "`+strings.Repeat("x", 10<<20)+`"`).
			Want(t, http.StatusRequestEntityTooLarge, "error", "too_large", "code", "E.REQUEST.TOO_LARGE", "verdict", nil)
		w.Callback("completed", a, succeeded+`, "output": "small"`).Want(t, http.StatusOK)
	})
}

// H2: the server reads a large request to its end even if it refuses the request. Most clients send
// the whole request before they read the answer; if the server closed the connection earlier, such
// a client would not learn the reason and would send the same request again.
func TestLargeRefusedRequestsAreReadToTheEnd(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		path := "/v1/tasks/" + a.GetTask().GetTaskId() + "/completed"
		for name, c := range map[string]struct {
			path, token   string
			bytes, status int
		}{
			"too large": {path, a.GetTaskToken(), 10 << 20, http.StatusRequestEntityTooLarge},
			"bad token": {path, "lst_bad", 3 << 20, http.StatusUnauthorized},
			"no route":  {"/v1/nothing", "", 3 << 20, http.StatusNotFound},
		} {
			conn, err := w.Transport.(*http.Transport).DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			head := fmt.Sprintf("POST %s HTTP/1.1\r\nHost: c\r\nAuthorization: Bearer %s\r\nContent-Length: %d\r\n\r\n",
				c.path, c.token, c.bytes)
			if _, err := io.WriteString(conn, head+strings.Repeat(" ", c.bytes)); err != nil {
				t.Fatalf("%s: the request could not be sent to its end: %v", name, err)
			}
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if res.StatusCode != c.status {
				t.Errorf("%s: status %d, want %d", name, res.StatusCode, c.status)
			}
			_, _ = res.Body.Close(), conn.Close()
		}
	})
}

// H2: a client that sends "Expect: 100-continue" gets the refusal of a too large body at once, and
// does not have to send the body.
func TestLargeBodyIsRefusedBeforeItIsSent(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		conn, err := w.Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		before := time.Now()
		_, _ = io.WriteString(conn, "POST /v1/tasks HTTP/1.1\r\nHost: c\r\nExpect: 100-continue\r\nContent-Length: 10000000\r\n\r\n")
		res, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		if waited := time.Since(before); res.StatusCode != http.StatusRequestEntityTooLarge || waited > 0 {
			t.Errorf("status %d after %v, want 413 at once", res.StatusCode, waited)
		}
	})
}

// H2: a request whose body does not arrive is answered with 408 after a time limit.
func TestSlowBodyIsAnsweredWith408(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		body, rest := io.Pipe()
		go func() { _, _ = rest.Write([]byte(`{"attempt":`)) }()
		res := w.SendWithoutReading(http.MethodPost, "/v1/tasks/"+a.GetTask().GetTaskId()+"/started", a.GetTaskToken(), body, nil)
		_ = rest.Close()
		text, _ := io.ReadAll(res.Body)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusRequestTimeout || !strings.Contains(string(text), "E.TIMEOUT") {
			t.Errorf("status %d %s, want 408 with E.TIMEOUT", res.StatusCode, text)
		}
		if state := r.Get(t, a.GetTask().GetTaskId()).GetState(); state != lessorv1.TaskState_TASK_STATE_LEASED {
			t.Errorf("the task is %v, want LEASED", state)
		}
	})
}

// H2, X5: the time limit of a body is 10 s for each 4 MiB of its length, so that a slow worker can
// report a large output. The answer then has its usual time.
func TestTimeLimitOfALongBody(t *testing.T) {
	t.Attr("rules", "H2 X5")
	limits := lease.DefaultLimits()
	limits.Output = 64 << 20
	wiretest.ServeWith(t, nil, coordinator.Config{Limits: limits}, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for name, c := range map[string]struct {
			bytes, perSecond, status int
			within                   time.Duration
		}{
			// which is longer than an answer may take
			"long":              {14 << 20, 400 << 10, http.StatusCreated, 40 * time.Second},
			"long and too slow": {14 << 20, 256 << 10, http.StatusRequestTimeout, 41 * time.Second},
			"short, too slow":   {3 << 20, 256 << 10, http.StatusRequestTimeout, 11 * time.Second},
		} {
			conn, err := w.Transport.(*http.Transport).DialContext(t.Context(), "", "")
			if err != nil {
				t.Fatal(err)
			}
			began, sent := time.Now(), make(chan struct{})
			go func() {
				defer close(sent)
				body := `{"queue": "q"}` + strings.Repeat(" ", c.bytes)
				_, err := fmt.Fprintf(conn, "POST /v1/tasks HTTP/1.1\r\nHost: c\r\nContent-Length: %d\r\n\r\n", c.bytes)
				for i := 0; i < c.bytes && err == nil; i += c.perSecond {
					time.Sleep(time.Second)
					_, err = io.WriteString(conn, body[i:min(c.bytes, i+c.perSecond)])
				}
			}()
			res, err := http.ReadResponse(bufio.NewReader(conn), nil)
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if took := time.Since(began); res.StatusCode != c.status || took > c.within {
				t.Errorf("%s: status %d after %v, want %d within %v", name, res.StatusCode, took, c.status, c.within)
			}
			_, _ = res.Body.Close(), conn.Close()
			<-sent
		}
	})
}

// H2, S4: a request with a bad body is refused, and the answer names the bad field. The log has
// what the client was told.
func TestBadRequestsAreRefused(t *testing.T) {
	t.Attr("rules", "H2 S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for path, bodies := range map[string][]badBody{
			"/v1/tasks": {
				{"no queue", `{}`, "queue"},
				{"empty key", `{"queue": "q", "idempotencyKey": ""}`, "idempotencyKey"},
				{"unknown field", `{"queue": "q", "payloda": 1}`, "payloda"},
				{"tenant", `{"queue": "q", "tenantId": "other"}`, "tenantId"},
				{"tenant inside", `{"queue": "q", "retryPolicy": {"tenant": "other"}}`, "retryPolicy.tenant"},
				{"another case", `{"Queue": "q"}`, "Queue"},
				{"duration out of range", `{"queue": "q", "heartbeatTimeoutMs": 1}`, "heartbeatTimeoutMs"},
				{"duration as text", `{"queue": "q", "attemptTimeoutMs": "1s"}`, "attemptTimeoutMs"},
				{"negative duration", `{"queue": "q", "retentionMs": -1}`, "retentionMs"},
				{"largest integer as duration", `{"queue": "q", "retryPolicy": {"maxBackoffMs": 9223372036854775807}}`, "retryPolicy.maxBackoffMs"},
				{"unknown category", `{"queue": "q", "retryPolicy": {"nonRetryableCategories": ["BAD"]}}`, "retryPolicy.nonRetryableCategories[0]"},
				{"unknown mode", `{"queue": "q", "affinity": {"key": "k", "mode": "NEAR"}}`, "affinity.mode"},
				{"number as label", `{"queue": "q", "labels": {"a": 1}}`, "labels.a"},
				{"half a character", `{"queue": "q", "idempotencyKey": "a\udc00"}`, "idempotencyKey"},
				{"half a character in a key", `{"queue": "q", "labels": {"\ud800": "x"}}`, "labels.\ufffd"},
				{"large priority", `{"queue": "q", "priority": 2147483648}`, "priority"},
				{"two payloads", `{"queue": "q", "payload": 1, "payloadBase64": "MQ=="}`, "payload"},
			},
			"/v1/leases": {
				{"no worker", `{"queues": ["q"]}`, "workerId"},
				{"no queues", `{"workerId": "w"}`, "queues"},
				{"number as queue", `{"workerId": "w", "queues": ["q", 1]}`, "queues[1]"},
				{"empty queue", `{"workerId": "w", "queues": [""]}`, "queues[0]"},
				{"negative wait", `{"workerId": "w", "queues": ["q"], "waitMs": -1}`, "waitMs"},
				{"fraction", `{"workerId": "w", "queues": ["q"], "waitMs": 0.5}`, "waitMs"},
			},
			"/v1/tasks/t0000200000000001:cancel": {{"unknown field", `{"because": "x"}`, "because"}},
			"/v1/tasks/t0000200000000001:retry": {
				{"unknown field", `{"reason": "x"}`, "reason"},
				{"duration as deadline", `{"deadline": "1h"}`, "deadline"},
				{"early deadline", `{"deadline": "1969-01-01T00:00:00Z"}`, "deadline"},
			},
			"/v1/tasks/t0000200000000001:adopt": {
				{"unknown field", `{"reason": "x"}`, "reason"},
				{"negative attempt", `{"attempt": -1}`, "attempt"},
				{"text as attempt", `{"attempt": "1"}`, "attempt"},
			},
			"/v1/tasks:batchSubmit": {
				{"no tasks", `{}`, "tasks"},
				{"empty", `{"tasks": []}`, "tasks"},
				{"too many", `{"tasks": [` + strings.Repeat(`{"queue": "q"}, `, 1000) + `{"queue": "q"}]}`, "tasks"},
				{"no queue in the second", `{"tasks": [{"queue": "q"}, {}]}`, "tasks[1].queue"},
				{"empty key in the second", `{"tasks": [{"queue": "q"}, {"queue": "q", "idempotencyKey": ""}]}`, "tasks[1].idempotencyKey"},
				{"null", `{"tasks": [null]}`, "tasks[0]"},
				{"unknown field", `{"tasks": [{"queue": "q"}, {"queue": "q", "payloda": 1}]}`, "tasks[1].payloda"},
				{"unknown mode", `{"tasks": [{"queue": "q"}, {"queue": "q", "affinity": {"key": "k", "mode": "NEAR"}}]}`, "tasks[1].affinity.mode"},
				{"duration out of range", `{"tasks": [{"queue": "q", "heartbeatTimeoutMs": 1}]}`, "tasks[0].heartbeatTimeoutMs"},
				{"two workspaces", `{"tasks": [{"queue": "q"}, {"queue": "q", "workspaceId": "w"}]}`, "tasks[1].workspaceId"},
				{"request id inside", `{"tasks": [{"queue": "q", "requestId": "r"}]}`, "tasks[0].requestId"},
			},
		} {
			for _, c := range append(bodies, badBodies...) {
				if c.body == "" && strings.Contains(path, "1:") || strings.Contains(c.body, "attempt") && strings.HasSuffix(c.name, "documents") {
					// :cancel, :retry and :adopt may have an empty body; of two documents with an
					// unknown field, the field is reported first
					continue
				}
				refused := w.Send(http.MethodPost, path, "", c.body).Named(c.name)
				refused.Want(t, http.StatusBadRequest, "error", "invalid_request", "code", "E.REQUEST.INVALID", "verdict", nil)
				if got, _ := refused.Body["field"].(string); c.field != "" && got != c.field {
					t.Errorf("%s: the field is %q, want %q: %s", refused.What, got, c.field, refused.Text)
				}
			}
		}
		wiretest.WantContains(t, "the log", r.Log.String(), `"grpc.error":"rpc error: code = InvalidArgument desc = payloda: is not a field of this request"`)
		w.Send(http.MethodGet, "/v1/tasks/t0000200000000001", "", "").Want(t, http.StatusNotFound, "error", "not_found",
			"code", "E.TASK.NOT_FOUND")
	})
}

// H2: a path that is similar to a route, but is no route, is answered with 404, and the request
// changes nothing.
func TestPathsSimilarToARouteAreNotFound(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, nil).GetTaskId()
		before := r.Get(t, id).String()
		for _, path := range []string{
			"/v1/", "/v1/nothing", "/v1/tasks/ID/finished", "/v1/tasks/ID/events/", "/v1/tasks/ID/", "/V1/tasks/ID", "/v1/tasks/ID./x",
			"//v1/tasks/ID", "/v1//tasks/ID", "/v1/./tasks/ID", "/v1/leases/../tasks/ID", "/v1/tasks/ID/.", "/v1/tasks/x/../ID", "/../v1/tasks/ID",
			"/v1/tasks/ID:redo", "/v1/tasks/ID:", "/v1/tasks/ID//events", "/v1/tasks:", "/v1/tasks/", "/v1/tasks:list", "/v1/tasks/%2e%2e/tasks/ID", "/v1/%2E/tasks/ID", "/v1%2Ftasks%2FID", "/v1/tasks/..%2FID", "/v1/tasks%2fID", "/%2Fv1/tasks/ID",
		} {
			path = strings.ReplaceAll(path, "ID", id)
			w.Send(http.MethodGet, path, "", "").Want(t, http.StatusNotFound, "error", "not_found", "code",
				"E.REQUEST.NO_ROUTE", "verdict", nil)
		}
		for _, path := range []string{
			"/v1/tasks/ID:redo", "/v1/tasks/:batchSubmit", "/v1/tasks:batchsubmit", "/v1/tasks:batchSubmit/", "/v1/tasks/ID:cancel:cancel", "/v1/tasks/ID:CANCEL", "/v1/tasks/ID:", "/v1/tasks/ID:cancel/",
			"/v1/tasks/ID/started/", "/v1/tasks/ID//started", "/v1/tasks/ID/../ID:cancel", "/v1/tasks/ID:cancel%2F..", "/v1/tasks/ID%3Acancel%3A",
		} {
			w.Send(http.MethodPost, strings.ReplaceAll(path, "ID", id), "", "").Want(t, http.StatusNotFound, "code",
				"E.REQUEST.NO_ROUTE")
		}
		synctest.Wait() // until the last request is counted
		if metrics := w.Send(http.MethodGet, "/metrics", "", "").Text; !strings.Contains(metrics, `{route="none",status="404"}`) || strings.Contains(metrics, "verb") {
			t.Errorf("requests of no route are not counted as route=\"none\":\n%s", metrics)
		}
		// these are routes, of tasks that do not exist
		for _, name := range []string{"%20ID", "ID%20", "ID.", "ID%2Fevents", "ID;a=b", "*"} {
			path := "/v1/tasks/" + strings.ReplaceAll(name, "ID", id)
			w.Send(http.MethodGet, path, "", "").Want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
			w.Send(http.MethodPost, path+":cancel", "", "").Want(t, http.StatusNotFound, "code", "E.TASK.NOT_FOUND")
		}
		if after := r.Get(t, id).String(); after != before {
			t.Errorf("requests of no route changed the task from\n%s\nto\n%s", before, after)
		}
	})
}

// H2: a method that a route does not have is answered with 405, and headers do not override the
// method. A request from a web page of another origin is refused if it could change something. The
// answer to a GET has no CORS headers, so that the browser does not show it to such a page.
func TestMethods(t *testing.T) {
	t.Attr("rules", "H2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, nil).GetTaskId()
		for path, allowed := range map[string]string{
			"/v1/leases": "POST", "/v1/tasks": "GET, HEAD, POST", "/v1/tasks:batchSubmit": "POST", "/v1/tasks/ID/started": "POST", "/v1/tasks/ID/events": "GET, HEAD", "/openapi.json": "GET, HEAD",
			"/metrics": "GET, HEAD", "/metrics/queues": "GET, HEAD", "/v1/tasks/ID": "DELETE, GET, HEAD", "/v1/tasks/ID:cancel": "POST",
			"/v1/tasks/ID:retry": "POST", "/v1/tasks/ID:adopt": "POST",
		} {
			path = strings.ReplaceAll(path, "ID", id)
			for _, method := range []string{
				http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPatch, http.MethodPut, http.MethodDelete,
				http.MethodOptions, http.MethodTrace,
				"BREW", "post",
			} {
				if slices.Contains(strings.Split(allowed, ", "), method) {
					continue
				}
				refused := w.Send(method, path, "", "")
				if got := refused.Header.Get("Allow"); refused.StatusCode != http.StatusMethodNotAllowed || got != allowed {
					t.Errorf("%s %s: status %d, allowed are %q; want 405, %q", method, path, refused.StatusCode, got, allowed)
				}
				if method != http.MethodHead {
					refused.Want(t, http.StatusMethodNotAllowed, "error", "method_not_allowed", "code", "E.REQUEST.NO_ROUTE")
				}
			}
		}
		for _, path := range []string{"/v1/tasks", "/v1/tasks/" + id, "/v1/tasks/" + id + "/events"} {
			if head := w.Send(http.MethodHead, path, "", ""); head.StatusCode != http.StatusOK || head.Text != "" {
				t.Errorf("HEAD %s: status %d with body %q, want 200 without a body", path, head.StatusCode, head.Text)
			}
		}
		overridden := http.Header{"X-Http-Method-Override": {"DELETE"}, "X-Http-Method": {"POST"}, "X-Method-Override": {"POST"}}
		res := w.SendWithoutReading(http.MethodGet, "/v1/tasks/"+id, "", nil, overridden)
		_ = res.Body.Close()
		if res.StatusCode != http.StatusOK {
			t.Errorf("a GET with headers that name another method: status %d, want 200", res.StatusCode)
		}
		for _, header := range []http.Header{{"Origin": {"http://evil.example"}}, {"Sec-Fetch-Site": {"cross-site"}}} {
			res := w.SendWithoutReading(http.MethodPost, "/v1/tasks/"+id+":cancel", "", nil, header.Clone())
			_ = res.Body.Close()
			if res.StatusCode != http.StatusForbidden {
				t.Errorf("a POST from a page of another origin: status %d, want 403", res.StatusCode)
			}
			res = w.SendWithoutReading(http.MethodDelete, "/v1/tasks/"+id, "", nil, header.Clone())
			_ = res.Body.Close()
			if res.StatusCode != http.StatusForbidden {
				t.Errorf("a DELETE from a page of another origin: status %d, want 403", res.StatusCode)
			}
			res = w.SendWithoutReading(http.MethodGet, "/v1/tasks/"+id, "", nil, header.Clone())
			_ = res.Body.Close()
			for name := range res.Header {
				if strings.HasPrefix(name, "Access-Control-") {
					t.Errorf("the answer has the CORS header %s", name)
				}
			}
		}
		if task := r.Get(t, id); task.GetState() != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("the task is %v, want READY", task.GetState())
		}
		w.Send(http.MethodGet, "/openapi.json", "", "").Want(t, http.StatusOK, "openapi", "3.1.0")
	})
}

// S4: the error about a number that does not fit its field names the limits that the call behind
// the route has.
func TestLimitsOfNumbersAreThoseOfTheCalls(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for _, c := range []struct {
			field, method, path, body string
			most                      int
		}{
			{"pageSize", http.MethodGet, "/v1/tasks?pageSize=%d", "", 1000},
			{"maxTasks", http.MethodPost, "/v1/leases", `{"workerId": "w", "queues": ["empty"], "maxTasks": %d}`, 1000},
			{"concurrencyLimit", http.MethodPost, "/v1/tasks", `{"queue": "q", "concurrencyKey": "k", "concurrencyLimit": %d}`, lease.MaxConcurrency},
			{"retryPolicy.maxAttempts", http.MethodPost, "/v1/tasks", `{"queue": "q", "retryPolicy": {"maxAttempts": %d}}`, lease.MaxBudget},
			{"retryPolicy.maxLosses", http.MethodPost, "/v1/tasks", `{"queue": "q", "retryPolicy": {"maxLosses": %d}}`, lease.MaxBudget},
		} {
			send := func(n int) wiretest.HTTPResponse {
				return w.Send(c.method, strings.Replace(c.path, "%d", strconv.Itoa(n), 1), "",
					strings.Replace(c.body, "%d", strconv.Itoa(n), 1))
			}
			for _, n := range []int{-1, math.MaxUint32 + 1} {
				send(n).Want(t, http.StatusBadRequest, "field", c.field, "message",
					fmt.Sprintf("%s: is %d; it must be a whole number from 1 to %d, or 0 for the default", c.field, n, c.most))
			}
			send(c.most+1).Want(t, http.StatusBadRequest, "field", c.field, "message",
				fmt.Sprintf("%s: is %d; the limit is %d", c.field, c.most+1, c.most))
			if got := send(c.most); got.StatusCode/100 != 2 {
				t.Errorf("%s of %d: status %d, want that it is accepted: %s", c.field, c.most, got.StatusCode, got.Text)
			}
		}
	})
}

// S4: an error about a span names the number that was sent, and limits in the unit of the field,
// each of which is accepted.
func TestSpansAreNamedInMilliseconds(t *testing.T) {
	t.Attr("rules", "S4")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		for _, c := range []struct {
			sent, field, problem string
			least, most          int
		}{
			{`"attemptTimeoutMs": 1`, "attemptTimeoutMs", "is 1; the range is 100 to 2592000000", 100, 2592000000},
			{`"startTimeoutMs": 2592000001`, "startTimeoutMs", "is 2592000001; the limit is 2592000000", 100, 2592000000},
			{`"heartbeatIntervalMs": 9`, "heartbeatIntervalMs", "is 9; the range is 10 to 43200000", 10, 43200000},
			{`"heartbeatTimeoutMs": 99`, "heartbeatTimeoutMs", "is 99; the range is 100 to 86400000", 100, 86400000},
			{`"heartbeatTimeoutMs": 1500, "heartbeatIntervalMs": 1000`, "heartbeatTimeoutMs", "is 1500; it must be at least 2000, twice heartbeatIntervalMs (1000)", 2000, 86400000},
			{`"cancelGracePeriodMs": 86400001`, "cancelGracePeriodMs", "is 86400001; the limit is 86400000", 1, 86400000},
			{`"retentionMs": 1000000000000000`, "retentionMs", "is 1000000000000000; the limit is 315360000000", 1000, 315360000000},
			{`"retentionMs": -1000000000000000`, "retentionMs", "is -1000000000000000; it cannot be negative", 1000, 315360000000},
			{`"retentionMs": 9223372036854775807`, "retentionMs", "is 9223372036854775807; the limit is 315360000000", 1000, 315360000000},
			{`"retentionMs": -9223372036854775808`, "retentionMs", "is -9223372036854775808; it cannot be negative", 1000, 315360000000},
			{`"retryPolicy": {"maxBackoffMs": 9000000000000000001}`, "retryPolicy.maxBackoffMs", "is 9000000000000000001; the limit is 604800000", 1, 604800000},
			{`"retentionMs": 999`, "retentionMs", "is 999; the range is 1000 to 315360000000", 1000, 315360000000},
			{`"retryPolicy": {"initialBackoffMs": 86400001}`, "retryPolicy.initialBackoffMs", "is 86400001; the limit is 86400000", 1, 86400000},
			{`"retryPolicy": {"maxBackoffMs": 604800001}`, "retryPolicy.maxBackoffMs", "is 604800001; the limit is 604800000", 1, 604800000},
			{`"retryPolicy": {"initialBackoffMs": 3000, "maxBackoffMs": 2000}`, "retryPolicy.maxBackoffMs", "is 2000; it must be at least initialBackoffMs (3000)", 1, 604800000},
			{`"affinity": {"key": "k", "ttlMs": 999}`, "affinity.ttlMs", "is 999; the range is 1000 to 86400000", 1000, 86400000},
		} {
			refused := w.Send(http.MethodPost, "/v1/tasks", "", `{"queue": "q", `+c.sent+`}`)
			refused.Named(c.sent).Want(t, http.StatusBadRequest, "field", c.field, "message", c.field+": "+c.problem)
			for _, n := range []int{c.least, c.most} {
				body := fmt.Sprintf(`{"queue": "q", %q: %d}`, c.field, n)
				if outer, inner, ok := strings.Cut(c.field, "."); ok {
					key := map[string]string{"affinity": `"key": "k", `}[outer]
					body = fmt.Sprintf(`{"queue": "q", %q: {%s%q: %d}}`, outer, key, inner, n)
				}
				w.Send(http.MethodPost, "/v1/tasks", "", body).Named(body).Want(t, http.StatusCreated)
			}
		}
	})
}
