package coordinator

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// under is a task token of a lease, and how the worker got it.
type under struct{ how, id, token string }

// taskTokens leases tasks in every way with the credential of the rig, and renews each lease in every way. It returns all task tokens, one task for each. The leases
// live for a day.
func (r *rig) taskTokens(ctx, operator context.Context, t *testing.T, w *httpClient) (all []under) {
	t.Helper()
	submit := func(n int) {
		for range n {
			_, err := r.tasks.SubmitTask(operator, &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q", HeartbeatTimeout: durationpb.New(24 * time.Hour)}})
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	add := func(how string, a *lessorv1.Assignment, token string) {
		if token == "" {
			t.Fatalf("no task token by %s", how)
		}
		all = append(all, under{how, a.GetTask().GetTaskId(), token})
	}
	take := func() *lessorv1.Assignment {
		submit(1)
		res, err := r.workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
		if err != nil || len(res.GetAssignments()) != 1 {
			t.Fatalf("lease: %v (%v), want one assignment", res, err)
		}
		return res.GetAssignments()[0]
	}
	a := take()
	add("a Lease", a, a.GetTaskToken())
	for _, verb := range []string{"started", "heartbeat"} {
		a := take()
		token, _ := w.callback(verb, a, "").body["taskToken"].(string)
		add("the callback "+verb, a, token)
	}
	a = take()
	begun, err := r.workers.Start(ctx, &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
	if err != nil {
		t.Fatal(err)
	}
	add("a Start", a, begun.GetTaskToken())
	a = take()
	beat, err := r.workers.Heartbeat(ctx, renewal(a))
	if err != nil {
		t.Fatal(err)
	}
	add("a Heartbeat", a, beat.GetTaskToken())
	if r.token != "" {
		submit(1)
		leased := w.send(http.MethodPost, "/v1/leases", r.token, `{"workerId": "h", "queues": ["q"], "maxTasks": 1}`)
		leased.want(t, http.StatusOK)
		one := leased.body["assignments"].([]any)[0].(map[string]any)
		all = append(all, under{"POST /v1/leases", one["taskId"].(string), one["taskToken"].(string)})
	}
	worker := r.openSession(t, "s", 3)
	submit(3)
	work := worker.receiveAssignments(3)
	add("a dispatch", work[0], work[0].GetTaskToken())
	add("a reports frame", work[1], worker.report(started(work[1]))[0].GetTaskToken())
	add("a heartbeat frame", work[2], worker.heartbeat(work[2])[0].GetTaskToken())
	return all
}

// wantEnded checks that every callback with a task token is refused like one that has expired, and has no effect.
func (r *rig) wantEnded(viewer context.Context, t *testing.T, w *httpClient, all []under) {
	t.Helper()
	for _, c := range all {
		before := errless(t)(r.tasks.GetTask(viewer, &lessorv1.GetTaskRequest{TaskId: c.id})).String()
		for verb, body := range map[string]string{
			"started": `{"attempt": 1}`, "heartbeat": `{"attempt": 1, "checkpoint": 5}`, "completed": `{"attempt": 1, "outcome": "SUCCEEDED"}`, "completed ": `{`,
			"heartbeat ": `{"attempt": 2}`, // with a good token: 403
		} {
			w.postCallback(strings.TrimSpace(verb), c.id, c.token, body).named(c.how).want(t, http.StatusUnauthorized, "error", "unauthorized",
				"code", "E.AUTH.INVALID_TOKEN", "reason", "AUTH_INVALID_TOKEN", "verdict", nil)
		}
		if after := errless(t)(r.tasks.GetTask(viewer, &lessorv1.GetTaskRequest{TaskId: c.id})).String(); after != before {
			t.Errorf("%s: refused callbacks changed the task from\n%s\nto\n%s", c.how, before, after)
		}
	}
}

// errless returns a function that returns the answer of a call that must not fail.
func errless(t *testing.T) func(*lessorv1.GetTaskResponse, error) *lessorv1.GetTaskResponse {
	return func(res *lessorv1.GetTaskResponse, err error) *lessorv1.GetTaskResponse {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return res
	}
}

// wantGood checks that callbacks with the task tokens are COMMITTED.
func wantGood(t *testing.T, w *httpClient, all []under) {
	t.Helper()
	for _, c := range all {
		w.postCallback("heartbeat", c.id, c.token, `{"attempt": 1}`).named(c.how).want(t, http.StatusOK, "verdict", "COMMITTED")
	}
}

// X3, H1: when the credential under which a worker holds a lease is revoked or loses its key, the task tokens of the lease end, however the worker got them. That
// stays so after a restart and after the expiry of the credential. If the credential only expires, they do not end.
func TestTaskTokensEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3 H1")
	for problem, end := range credentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			cfg := noHeartbeats
			cfg.Auth = &gate.Auth{}
			st := memstore.New()
			var all []under
			check := func(t *testing.T, r *rig, w *httpClient) {
				viewer, _ := r.issue(t, gate.DefaultTenant, auth.Viewer)
				if problem == auth.Expired {
					wantGood(t, w, all)
					return
				}
				r.wantEnded(withToken(t.Context(), viewer), t, w, all)
			}
			serveWith(t, st, cfg, func(t *testing.T, r *rig) {
				token, id := r.issueFor(t, gate.DefaultTenant, auth.Worker, shortLife)
				operator, _ := r.issue(t, gate.DefaultTenant, auth.Operator)
				mine, w := r.withToken(token), r.web(t)
				all = mine.taskTokens(withToken(t.Context(), token), withToken(t.Context(), operator), t, w)
				wantGood(t, w, all)
				if err := end(r, id); err != nil {
					t.Fatal(err)
				}
				check(t, r, w)
			})
			serveWith(t, st.Reopen(), cfg, func(t *testing.T, r *rig) {
				w := r.web(t)
				check(t, r, w)
				time.Sleep(2 * shortLife)
				check(t, r, w)
				if problem == auth.Expired { // also if its key is dropped after that
					if err := credentialEndings[auth.UnknownKey](r, ""); err != nil {
						t.Fatal(err)
					}
					check(t, r, w)
				}
			})
		})
	}
}

// X3, H1: the task tokens of a worker with a client certificate end when the certificate is revoked.
func TestTaskTokensEndWithTheirCertificate(t *testing.T) {
	t.Attr("rules", "X3 H1")
	withCertificates(t, func(t *testing.T, r *rig, cert *x509.Certificate, _ func()) {
		operator, _ := r.issue(t, gate.DefaultTenant, auth.Operator)
		ctx, w := withToken(t.Context(), operator), r.web(t)
		r.tasks = lessorv1.NewTaskServiceClient(r.conn)
		all := r.taskTokens(t.Context(), ctx, t, w)
		wantGood(t, w, all)
		if err := credentialEndings[auth.Revoked](r, auth.CertificateID(cert)); err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			w.postCallback("heartbeat", c.id, c.token, `{"attempt": 1}`).named(c.how).want(t, http.StatusUnauthorized, "code", "E.AUTH.INVALID_TOKEN")
		}
	})
}

// X3: a callback whose body is still under way when the credential of its lease is revoked has no effect, even if it turns out to be malformed.
func TestRevocationWhileACallbackArrives(t *testing.T) {
	t.Attr("rules", "X3")
	for _, body := range []string{`{"attempt": 1, "outcome": "SUCCEEDED"}`, `{"attempt": 1, "outcome": "DONE"}`} {
		withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
			token, id := r.issue(t, gate.DefaultTenant, auth.Operator)
			viewer, _ := r.issue(t, gate.DefaultTenant, auth.Viewer)
			w := r.web(t)
			c := r.withToken(token).taskTokens(withToken(t.Context(), token), withToken(t.Context(), token), t, w)[0]
			show := func() string {
				return errless(t)(r.tasks.GetTask(withToken(t.Context(), viewer), &lessorv1.GetTaskRequest{TaskId: c.id})).String()
			}
			before := show()
			rest, send := io.Pipe()
			answered := make(chan httpResponse, 1)
			go func() { answered <- w.sendWith(http.MethodPost, "/v1/tasks/"+c.id+"/completed", c.token, rest, nil) }()
			_, _ = io.WriteString(send, body[:10])
			synctest.Wait()
			if err := credentialEndings[auth.Revoked](r, id); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(send, body[10:])
			_ = send.Close()
			answer := <-answered
			answer.want(t, http.StatusUnauthorized, "error", "unauthorized", "code", "E.AUTH.INVALID_TOKEN", "verdict", nil)
			if after := show(); after != before {
				t.Errorf("%s: the task has changed from\n%s\nto\n%s", body, before, after)
			}
		})
	}
}

// X3, W8: a worker that resumes its session with a newer credential gets task tokens of that one. So they survive the revocation of the old one, and end with
// the new one.
func TestResumedLeaseGetsTaskTokensOfTheNewCredential(t *testing.T) {
	t.Attr("rules", "X3 W8")
	cfg := noHeartbeats
	cfg.Auth = &gate.Auth{}
	serveWith(t, nil, cfg, func(t *testing.T, r *rig) {
		first, firstID := r.issue(t, gate.DefaultTenant, auth.Operator)
		second, secondID := r.issue(t, gate.DefaultTenant, auth.Operator)
		w := r.web(t)
		worker, accepted := r.withToken(first).openSessionWith(t, "w", 4, nil)
		for range 4 {
			if _, err := r.tasks.SubmitTask(withToken(t.Context(), first), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
				t.Fatal(err)
			}
		}
		unacked := func() (all []*lessorv1.Assignment) { // so that the next stream sends it again
			for len(all) < 4 {
				all = append(all, nextFrameWith[*lessorv1.Dispatch](worker).GetDispatch().GetAssignments()...)
			}
			return all
		}
		work := unacked()
		worker.send(&lessorv1.Reports{Reports: []*lessorv1.Report{started(work[0])}})
		nextPayload[*lessorv1.Verdicts](worker)
		worker.cut()
		synctest.Wait()
		worker, accepted = r.withToken(second).openSessionWith(t, "w", 4, resumeFrom(accepted, 1)) // the frames after the accept are sent again
		if !accepted.GetResumed() {
			t.Fatal("the session is not resumed")
		}
		var again []under
		for _, a := range unacked() {
			again = append(again, under{"a repeated dispatch", a.GetTask().GetTaskId(), a.GetTaskToken()})
		}
		verdict := nextPayload[*lessorv1.Verdicts](worker).GetVerdicts()[0]
		again = append(again, under{"a repeated verdict", verdict.GetTaskId(), verdict.GetTaskToken()})
		for _, beat := range worker.heartbeat(work...) {
			again = append(again, under{"a heartbeat", beat.GetTaskId(), beat.GetTaskToken()})
		}
		if err := credentialEndings[auth.Revoked](r, firstID); err != nil {
			t.Fatal(err)
		}
		wantGood(t, w, again)
		old := under{"the first dispatch", work[0].GetTask().GetTaskId(), work[0].GetTaskToken()}
		r.wantEnded(withToken(t.Context(), second), t, w, []under{old})
		viewer, _ := r.issue(t, gate.DefaultTenant, auth.Viewer)
		if err := credentialEndings[auth.Revoked](r, secondID); err != nil {
			t.Fatal(err)
		}
		r.wantEnded(withToken(t.Context(), viewer), t, w, again)
	})
}

// H1: a task token that does not say under which credential its lease is held, because an older version issued it, is valid until it expires. The tokens that
// replace it do not say it either.
func TestTaskTokenWithoutACredentialIsValid(t *testing.T) {
	t.Attr("rules", "H1")
	withAuth(t, gate.Auth{}, func(t *testing.T, r *rig) {
		token, id := r.issue(t, gate.DefaultTenant, auth.Operator)
		w := r.web(t)
		c := r.withToken(token).taskTokens(withToken(t.Context(), token), withToken(t.Context(), token), t, w)[0]
		task, now := new(lease.Task), r.engine.Now()
		err := r.edge.view(func(rd store.Reader) (err error) {
			at, _ := lease.ParseTaskID(c.id)
			task, err = records.Task(rd, at)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		old, _ := r.edge.assigner.Tokens.For("").Of(&convert.Times{Now: now}, task.Holding(), task.ExpiresAt(now))
		if err := credentialEndings[auth.Revoked](r, id); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			beat := w.postCallback("heartbeat", c.id, old, `{"attempt": 1}`)
			beat.want(t, http.StatusOK, "verdict", "COMMITTED")
			old = fmt.Sprint(beat.body["taskToken"])
		}
	})
}
