package httpapi_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// H2, T1: a repeated submit returns the same task, also if it names values as the protos do, and a
// GET returns its spec as it was sent.
func TestSubmitOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		const spec = `{"queue": "q", "type": "t", "payload": {"z": 1, "a": [1.50]}, "idempotencyKey": "k", "heartbeatTimeoutMs": 60000,
			"retryPolicy": {"maxAttempts": 2, "nonRetryableCategories": ["TIMEOUT"]}, "labels": {"a": "b"}, "requirements": {"resources": {"gb": 2}},
			"affinity": {"key": "k", "mode": "STICKY", "ttlMs": 5000}, "traceMeta": {"chainIndex": 0, "middlewareChain": ["m"]},
			"resourceRefs": [{"resourceId": "r", "workerId": "w"}], "runAt": "2020-01-01T00:00:00Z", "requestId": "x"}`
		created := w.Send(http.MethodPost, "/v1/tasks", "", spec)
		created.Want(t, http.StatusCreated, "created", true)
		again := w.Send(http.MethodPost, "/v1/tasks", "", spec)
		again.Want(t, http.StatusOK, "created", false)
		inProtos := strings.NewReplacer(`"TIMEOUT"`, `"ERROR_CATEGORY_TIMEOUT"`,
			`"STICKY"`, `"AFFINITY_MODE_STICKY"`).Replace(spec)
		w.Send(http.MethodPost, "/v1/tasks", "", inProtos).Want(t, http.StatusOK, "created", false)
		id, _ := created.Body["task"].(map[string]any)["taskId"].(string)
		if at := created.Header.Get("Location"); at != "/v1/tasks/"+id {
			t.Errorf("the header Location is %q, want /v1/tasks/%s", at, id)
		}
		w.Send(http.MethodPost, "/v1/tasks", "", strings.NewReplacer("1.50", "2", "60000", "60001").Replace(spec)).
			Want(t, http.StatusConflict, "code", "E.TASK.EXISTS", "field", "idempotencyKey", "taskId", id, "message",
				`idempotencyKey: "k" was already used by task `+id+" with a spec that differs in payload, heartbeatIntervalMs, heartbeatTimeoutMs")
		shown := w.Send(http.MethodGet, "/v1/tasks/"+id, "", "")
		var sent, got map[string]any
		_ = json.Unmarshal([]byte(spec), &sent)
		got, _ = shown.Body["task"].(map[string]any)["spec"].(map[string]any)
		delete(sent, "requestId")
		for name, want := range sent {
			if a, b := asText(want), asText(got[name]); name != "retryPolicy" && a != b {
				t.Errorf("%s is %s, want it as it was sent: %s", name, b, a)
			}
		}
		if task := r.Get(t, id); string(task.GetSpec().GetPayload()) != `{"z":1,"a":[1.50]}` {
			t.Errorf("the payload is %s, want the JSON as it was sent, without spaces", task.GetSpec().GetPayload())
		}
	})
}

// asText returns v as JSON.
func asText(v any) string {
	text, _ := json.Marshal(v)
	return string(text)
}

// T1: white space and the order of fields make no other spec, nor does a null. Within a payload all
// else counts, and so does a default that is written out.
func TestSpecsAreComparedAsTheyWereSent(t *testing.T) {
	t.Attr("rules", "T1")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		const sent = `{"queue": "q", "idempotencyKey": "k", "payload": {"a": 1, "b": "é"}}`
		w.Send(http.MethodPost, "/v1/tasks", "", sent).Want(t, http.StatusCreated)
		for change, want := range map[[2]string]int{
			{`"q", `, `"q",`}: http.StatusOK,
			{`"queue": "q", "idempotencyKey": "k"`, `"idempotencyKey": "k", "queue": "q"`}:         http.StatusOK,
			{`"q", `, `"q", "priority": 0, "retentionMs": 0, "labels": {}, "retryPolicy": null, `}: http.StatusOK,
			{`"a": 1, "b": "é"`, `"b": "é", "a": 1`}:                                               http.StatusConflict,
			{`é`, `\u00e9`}:                              http.StatusConflict,
			{`1`, `1.0`}:                                 http.StatusConflict,
			{`"q", `, `"q", "retryPolicy": {}, `}:        http.StatusConflict,
			{`"q", `, `"q", "retentionMs": 259200000, `}: http.StatusConflict,
		} {
			w.Send(http.MethodPost, "/v1/tasks", "",
				strings.Replace(sent, change[0], change[1], 1)).Named(change[1]).Want(t, want)
		}
		const none = `{"queue": "q", "idempotencyKey": "none"`
		w.Send(http.MethodPost, "/v1/tasks", "", none+`, "payload": null}`).Want(t, http.StatusCreated)
		w.Send(http.MethodPost, "/v1/tasks", "", none+`}`).Want(t, http.StatusOK)
	})
}

// H1, H2, S2: an assignment over HTTP has the fields of docs/http.md. A payload that is not JSON is
// in base64. A request with the same requestId gets the same leases again.
func TestLeaseOverHTTP(t *testing.T) {
	t.Attr("rules", "H1 H2 S2")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		const ask = `{"workerId": "w", "queues": ["q"], "maxTasks": 2, "requestId": "x", "capabilities": {"resources": {"gb": 4}}}`
		if none := w.Send(http.MethodPost, "/v1/leases", "", ask); none.Text != `{"assignments":[]}`+"\n" {
			t.Errorf("a lease request without waiting tasks got %s, want no assignments", none.Text)
		}
		r.Submit(t, func(s *lessorv1.TaskSpec) {
			s.Payload, s.RunId, s.TaskKey, s.AssetId = []byte(`{"a": 1}`), "run", "key", "asset"
			s.Requirements = &lessorv1.Requirements{Resources: map[string]float64{"gb": 2}}
		})
		r.Submit(t, func(s *lessorv1.TaskSpec) { s.Payload = []byte{0, 1} })
		granted := w.Send(http.MethodPost, "/v1/leases", "", ask)
		granted.Want(t, http.StatusOK)
		all, _ := granted.Body["assignments"].([]any)
		if len(all) != 2 {
			t.Fatalf("the answer is %s, want two assignments", granted.Text)
		}
		first, second := all[0].(map[string]any), all[1].(map[string]any)
		for name, want := range map[string]any{
			"runId": "run", "taskKey": "key", "assetId": "asset", "tenantId": "default", "workspaceId": "default", "attempt": 1.0,
			"heartbeatIntervalMs": 30_000.0, "heartbeatTimeoutMs": 90_000.0, "cancelGracePeriodMs": 30_000.0, "expiresInMs": 90_000.0,
			"deadline": nil, "fencingToken": float64(1<<21 + 1), "callbackBaseUrl": "",
		} {
			if first[name] != want {
				t.Errorf("%s is %v, want %v", name, first[name], want)
			}
		}
		if asText(first["payload"]) != `{"a":1}` || asText(first["resources"]) != `{"gb":2}` || second["payloadBase64"] != "AAE=" {
			t.Errorf("the answer is %s, want payload and resources as they were sent, and the second payload in base64",
				granted.Text)
		}
		again := w.Send(http.MethodPost, "/v1/leases", "", ask)
		if same, _ := again.Body["assignments"].([]any); len(same) != 2 || same[0].(map[string]any)["leaseId"] != first["leaseId"] {
			t.Errorf("the repeated request got %s, want the same two leases", again.Text)
		}
		id, token := first["taskId"].(string), first["taskToken"].(string)
		w.PostCallback("started", id, token, `{"attempt": 1, "attemptId": "`+first["attemptId"].(string)+`"}`).Want(t,
			http.StatusOK)
	})
}

// H2, W5: a lease request may wait longer than the server's usual time limit, and ends as soon as
// there is a task. A request whose caller has left gets no task.
func TestLongPoll(t *testing.T) {
	t.Attr("rules", "H2 W5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		begun := time.Now()
		w.Send(http.MethodPost, "/v1/leases", "", `{"workerId": "w", "queues": ["q"], "waitMs": 55000}`).Want(t, http.StatusOK)
		if waited := time.Since(begun); waited != 55*time.Second {
			t.Errorf("the lease request waited for %v, want 55 s", waited)
		}
		go func() { time.Sleep(50 * time.Second); r.Submit(t, nil) }()
		granted := w.Send(http.MethodPost, "/v1/leases", "", `{"workerId": "w", "queues": ["q"], "waitMs": 60000}`)
		if all, _ := granted.Body["assignments"].([]any); len(all) != 1 {
			t.Errorf("the answer is %s, want one assignment", granted.Text)
		}
		ctx, leave := context.WithTimeout(t.Context(), 20*time.Second)
		defer leave()
		req, _ := http.NewRequestWithContext(ctx, http.MethodPost, "http://coordinator/v1/leases",
			strings.NewReader(`{"workerId": "gone", "queues": ["q"], "waitMs": 60000}`))
		if res, err := w.Do(req); err == nil {
			_ = res.Body.Close()
			t.Error("the lease request was answered after its caller had left")
		}
		synctest.Wait()
		if task := r.Get(t, r.Submit(t, nil).GetTaskId()); task.GetState() != lessorv1.TaskState_TASK_STATE_READY {
			t.Errorf("a task that is submitted after the caller has left is %v, want READY", task.GetState())
		}
	})
}

// H2, T7: a cancel needs no body. The worker gets shouldCancel with its next heartbeat.
func TestCancelOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 T7")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		waiting := r.Submit(t, func(s *lessorv1.TaskSpec) { s.Queue = "idle" }).GetTaskId()
		done := w.Send(http.MethodPost, "/v1/tasks/"+waiting+":cancel", "", "")
		done.Want(t, http.StatusOK)
		if task := done.Body["task"].(map[string]any); task["state"] != "CANCELLED" {
			t.Errorf("the cancelled task is %v, want CANCELLED", task["state"])
		}
		nothing := struct{ io.Reader }{strings.NewReader("")} // a body of unknown length that is empty
		w.SendWith(http.MethodPost, "/v1/tasks/"+waiting+":cancel", "", nothing, nil).Want(t, http.StatusOK)
		r.Submit(t, nil)
		a := r.Lease(t)
		w.Callback("started", a, "").Want(t, http.StatusOK)
		w.Send(http.MethodPost, "/v1/tasks/"+a.GetTask().GetTaskId()+":cancel", "",
			`{"reason": "user_requested"}`).Want(t, http.StatusOK)
		w.Callback("heartbeat", a, "").Want(t, http.StatusOK, "shouldCancel", true, "cancelReason", "user_requested")
		w.Callback("completed", a, succeeded).Want(t, http.StatusOK, "finalState", "SUCCEEDED")
		w.Send(http.MethodPost, "/v1/tasks/"+a.GetTask().GetTaskId()+":cancel", "", "").Want(t, http.StatusConflict,
			"code", "E.TASK.STATE",
			"taskState", "COMPLETED")
	})
}

// sse is a server-sent event.
type sse struct{ name, id, data string }

// nextEvent reads the next event of a stream. It returns a comment as an event without a name. ok
// is false at the end of the stream.
func nextEvent(from *bufio.Reader) (e sse, ok bool) {
	for {
		line, err := from.ReadString('\n')
		if err != nil {
			return e, false
		}
		field, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), ": ")
		switch field {
		case "event":
			e.name = value
		case "id":
			e.id = value
		case "data":
			e.data = value
		case "":
			if line == "\n" {
				return e, true
			}
		}
	}
}

// readEvents reads a stream to its end, and returns its events without the comments.
func readEvents(body io.Reader) (events []sse) {
	from := bufio.NewReader(body)
	for e, ok := nextEvent(from); ok; e, ok = nextEvent(from) {
		if e.name != "" {
			events = append(events, e)
		}
	}
	return events
}

// H2, S5: the stream of a task has the task's events as they happen, and ends with the task. It can
// be resumed after any event; after the last event, a resume is answered with 204.
func TestEventsOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 S5")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, nil).GetTaskId()
		path := "/v1/tasks/" + id + "/events"
		res := w.SendWithoutReading(http.MethodGet, path, "", nil, nil)
		defer func() { _ = res.Body.Close() }()
		if res.StatusCode != http.StatusOK || res.Header.Get("Content-Type") != "text/event-stream" {
			t.Fatalf("status %d with Content-Type %q, want 200 with text/event-stream",
				res.StatusCode, res.Header.Get("Content-Type"))
		}
		time.Sleep(2 * time.Minute) // longer than the server's usual time limit
		worker := r.OpenSession(t, "w", 1)
		a := worker.ReceiveAssignments(1)[0]
		wiretest.WantCommitted(t, worker.Report(wiretest.Started(a)))
		worker.Send(&lessorv1.Feedback{Items: []*lessorv1.FeedbackItem{wiretest.Feedback(a, "half way", "half")}})
		synctest.Wait()
		wiretest.WantCommitted(t, worker.Report(wiretest.Completed(a, "done")))
		var names, data []string
		lastID := ""
		for _, e := range readEvents(res.Body) {
			names = append(names, e.name)
			if e.id != "" {
				lastID = e.id
			}
			data = append(data, e.data)
		}
		if got := strings.Join(names, " "); got != "node.state node.state node.state node.state node.state node.result.delta node.state" {
			t.Errorf("the events are %s, want 5 states, a result delta and the last state:\n%s", got, strings.Join(data, "\n"))
		}
		for _, want := range []string{`"state":"READY"`, `"state":"LEASED"`, `"state":"RUNNING"`, `"progressPct":50`, `"text":"half"`, `"state":"COMPLETED"`} {
			if !strings.Contains(strings.Join(data, "\n"), want) {
				t.Errorf("the events lack %s:\n%s", want, strings.Join(data, "\n"))
			}
		}
		again := w.SendWithoutReading(http.MethodGet, path, "", nil, http.Header{"Last-Event-Id": {"3"}})
		resumed := readEvents(again.Body)
		_ = again.Body.Close()
		if len(resumed) != 2 || resumed[0].id != "4" || resumed[1].id != lastID {
			t.Errorf("a resume after event 3 got %v, want event 4 and the last event", resumed)
		}
		over := w.SendWithoutReading(http.MethodGet, path, "", nil, http.Header{"Last-Event-Id": {lastID}})
		_ = over.Body.Close()
		if over.StatusCode != http.StatusNoContent {
			t.Errorf("a resume after the last event: status %d, want 204", over.StatusCode)
		}
	})
}

// H2, S5: a stream without new events sends a comment within two seconds. A Last-Event-ID of no
// event is refused.
func TestIdleEventStreamSendsAComment(t *testing.T) {
	t.Attr("rules", "H2 S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		id := r.Submit(t, nil).GetTaskId()
		path := "/v1/tasks/" + id + "/events"
		begun := time.Now()
		res := w.SendWithoutReading(http.MethodGet, path, "", nil, http.Header{"Last-Event-Id": {"1"}})
		if e, ok := nextEvent(bufio.NewReader(res.Body)); !ok || e.name != "" || time.Since(begun) > 2*time.Second {
			t.Errorf("got %v after %v, want a comment within 2 s", e, time.Since(begun))
		}
		_ = res.Body.Close()
		for _, last := range []string{"99", "-1", "x"} {
			refused := w.SendWithoutReading(http.MethodGet, path, "", nil, http.Header{"Last-Event-Id": {last}})
			_ = refused.Body.Close()
			if refused.StatusCode != http.StatusBadRequest {
				t.Errorf("Last-Event-ID %s: status %d, want 400", last, refused.StatusCode)
			}
			w.SendWith(http.MethodGet, path, "", nil, http.Header{"Last-Event-Id": {last}}).Want(t,
				http.StatusBadRequest, "field", "Last-Event-ID")
		}
		res = w.SendWithoutReading(http.MethodGet, path, "", nil, nil)
		defer func() { _ = res.Body.Close() }()
		r.Stop() // ends the stream
		if events := readEvents(res.Body); len(events) != 1 {
			t.Errorf("the events before the stop are %v, want one", events)
		}
	})
}

// H2, S5: HEAD of events has the status that GET has, within two seconds, as the head of GET.
func TestHeadOfEventsHasTheStatusOfGet(t *testing.T) {
	t.Attr("rules", "H2 S5")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		waiting, ended := r.Submit(t, nil).GetTaskId(), r.Submit(t, nil).GetTaskId()
		cancelled := w.Send(http.MethodPost, "/v1/tasks/"+ended+":cancel", "", "")
		cancelled.Want(t, http.StatusOK)
		history := r.Get(t, ended).GetHistory()
		newest := history[len(history)-1].GetSequence()
		got := map[int]bool{}
		for _, id := range []string{waiting, ended, "t0000200000000zzz", "x"} {
			for _, last := range []string{"", "0", "1", fmt.Sprint(newest), fmt.Sprint(newest + 1), "-1", "x"} {
				path, header := "/v1/tasks/"+id+"/events", http.Header{"Last-Event-Id": {last}}
				began := time.Now()
				head := w.SendWithoutReading(http.MethodHead, path, "", nil, header.Clone())
				_ = head.Body.Close()
				if waited := time.Since(began); waited > 2*time.Second {
					t.Errorf("HEAD %s after %q took %v, want at most 2 s", path, last, waited)
				}
				get := w.SendWithoutReading(http.MethodGet, path, "", nil, header)
				_ = get.Body.Close()
				if got[get.StatusCode] = true; head.StatusCode != get.StatusCode {
					t.Errorf("HEAD %s after %q: status %d, want %d as for GET", path, last, head.StatusCode, get.StatusCode)
				}
			}
		}
		if want := map[int]bool{200: true, 204: true, 400: true, 404: true}; !maps.Equal(got, want) {
			t.Errorf("the statuses of GET are %v, want %v", got, want)
		}
	})
}

// H2, A6: if the store fails, a report gets no verdict. The answer is 503, and says when to repeat
// the request.
func TestStoreFailureGivesNoVerdictOverHTTP(t *testing.T) {
	t.Attr("rules", "H2 A6")
	st := memstore.New()
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		w := r.Web(t)
		r.Submit(t, nil)
		a := r.Lease(t)
		st.SetHook(func(context.Context, *store.Batch, func()) error { return errors.New("no space") })
		refused := w.Callback("completed", a, succeeded)
		refused.Want(t, http.StatusServiceUnavailable, "error", "unavailable", "code", "E.STORE.FAILED", "verdict", nil,
			"retryAfterMs", 1000.0)
		if refused.Header.Get("Retry-After") != "1" {
			t.Errorf("Retry-After is %q, want 1", refused.Header.Get("Retry-After"))
		}
		if err := <-r.Served; !errors.Is(err, engine.ErrStore) {
			t.Errorf("Serve returned %v, want ErrStore", err)
		}
	})
}

// H1, W3: on a stream, a dispatch has the first task token of a lease, and each answer that renews
// the lease has a new one. The answer to a Complete has none.
func TestTaskTokensOnAStream(t *testing.T) {
	t.Attr("rules", "H1 W3")
	wiretest.ServeWith(t, nil, wiretest.NoHeartbeats, func(t *testing.T, r *wiretest.Rig) {
		w, worker := r.Web(t), r.OpenSession(t, "w", 1)
		r.Submit(t, nil)
		a := worker.ReceiveAssignments(1)[0]
		id := a.GetTask().GetTaskId()
		w.PostCallback("heartbeat", id, a.GetTaskToken(), `{"attempt": 1}`).Want(t, http.StatusOK)
		time.Sleep(time.Second)
		begun := worker.Report(wiretest.Started(a))[0]
		w.PostCallback("heartbeat", id, begun.GetTaskToken(), `{"attempt": 1}`).Want(t, http.StatusOK)
		time.Sleep(time.Second)
		beat := worker.Heartbeat(a)[0]
		w.PostCallback("heartbeat", id, beat.GetTaskToken(), `{"attempt": 1}`).Want(t, http.StatusOK)
		if !beat.GetTokenExpiresAt().AsTime().After(begun.GetTokenExpiresAt().AsTime()) {
			t.Error("the renewed token is not valid for longer than the one before")
		}
		if v := worker.Report(wiretest.Completed(a, ""))[0]; v.GetTaskToken() != "" || v.GetTokenExpiresAt() != nil {
			t.Error("the verdict on a Complete has a task token, want none")
		}
	})
}
