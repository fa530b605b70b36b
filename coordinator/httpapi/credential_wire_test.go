package httpapi_test

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

	"github.com/lessor-dev/lessor/coordinator"
	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/convert"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// under is a task token of a lease, and how the worker got it.
type under struct{ how, id, token string }

// taskTokens leases tasks in every way with the credential of the rig, and renews each lease in
// every way. It returns all task tokens, one task for each. The leases live for a day.
func taskTokens(ctx, operator context.Context, t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient) (all []under) {
	t.Helper()
	submit := func(n int) {
		for range n {
			_, err := r.Tasks.SubmitTask(operator,
				&lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{
					Queue:            "q",
					HeartbeatTimeout: durationpb.New(24 * time.Hour),
				}})
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
		res, err := r.Workers.Lease(ctx, &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
		if err != nil || len(res.GetAssignments()) != 1 {
			t.Fatalf("lease: %v (%v), want one assignment", res, err)
		}
		return res.GetAssignments()[0]
	}
	a := take()
	add("a Lease", a, a.GetTaskToken())
	for _, verb := range []string{"started", "heartbeat"} {
		a := take()
		token, _ := w.Callback(verb, a, "").Body["taskToken"].(string)
		add("the callback "+verb, a, token)
	}
	a = take()
	begun, err := r.Workers.Start(ctx, &lessorv1.StartRequest{TaskId: a.GetTask().GetTaskId(), LeaseId: a.GetLeaseId()})
	if err != nil {
		t.Fatal(err)
	}
	add("a Start", a, begun.GetTaskToken())
	a = take()
	beat, err := r.Workers.Heartbeat(ctx, wiretest.Renewal(a))
	if err != nil {
		t.Fatal(err)
	}
	add("a Heartbeat", a, beat.GetTaskToken())
	if r.Token != "" {
		submit(1)
		leased := w.Send(http.MethodPost, "/v1/leases", r.Token, `{"workerId": "h", "queues": ["q"], "maxTasks": 1}`)
		leased.Want(t, http.StatusOK)
		one := leased.Body["assignments"].([]any)[0].(map[string]any)
		all = append(all, under{"POST /v1/leases", one["taskId"].(string), one["taskToken"].(string)})
	}
	worker := r.OpenSession(t, "s", 3)
	submit(3)
	work := worker.ReceiveAssignments(3)
	add("a dispatch", work[0], work[0].GetTaskToken())
	add("a reports frame", work[1], worker.Report(wiretest.Started(work[1]))[0].GetTaskToken())
	add("a heartbeat frame", work[2], worker.Heartbeat(work[2])[0].GetTaskToken())
	return all
}

// wantEnded checks that every callback with a task token is refused like one that has expired, and
// has no effect.
func wantEnded(viewer context.Context, t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient, all []under) {
	t.Helper()
	for _, c := range all {
		before := errless(t)(r.Tasks.GetTask(viewer, &lessorv1.GetTaskRequest{TaskId: c.id})).String()
		for verb, body := range map[string]string{
			"started": `{"attempt": 1}`, "heartbeat": `{"attempt": 1, "checkpoint": 5}`, "completed": `{"attempt": 1, "outcome": "SUCCEEDED"}`, "completed ": `{`,
			"heartbeat ": `{"attempt": 2}`, // with a good token: 403
		} {
			w.PostCallback(strings.TrimSpace(verb), c.id, c.token, body).Named(c.how).Want(t, http.StatusUnauthorized,
				"error", "unauthorized",
				"code", "E.AUTH.INVALID_TOKEN", "reason", "AUTH_INVALID_TOKEN", "verdict", nil)
		}
		if after := errless(t)(r.Tasks.GetTask(viewer, &lessorv1.GetTaskRequest{TaskId: c.id})).String(); after != before {
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
func wantGood(t *testing.T, w *wiretest.HTTPClient, all []under) {
	t.Helper()
	for _, c := range all {
		w.PostCallback("heartbeat", c.id, c.token, `{"attempt": 1}`).Named(c.how).Want(t, http.StatusOK, "verdict", "COMMITTED")
	}
}

// X3, H1: when the credential under which a worker holds a lease is revoked or loses its key, the
// task tokens of the lease end, however the worker got them. That stays so after a restart and
// after the expiry of the credential. If the credential only expires, they do not end.
func TestTaskTokensEndWithTheirCredential(t *testing.T) {
	t.Attr("rules", "X3 H1")
	for problem, end := range wiretest.CredentialEndings {
		t.Run(string(problem), func(t *testing.T) {
			cfg := wiretest.NoHeartbeats
			cfg.Auth = &gate.Auth{}
			st := memstore.New()
			var all []under
			check := func(t *testing.T, r *wiretest.Rig, w *wiretest.HTTPClient) {
				viewer, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
				if problem == auth.Expired {
					wantGood(t, w, all)
					return
				}
				wantEnded(wiretest.WithToken(t.Context(), viewer), t, r, w, all)
			}
			wiretest.ServeWith(t, st, cfg, func(t *testing.T, r *wiretest.Rig) {
				token, id := r.IssueFor(t, gate.DefaultTenant, auth.Worker, wiretest.ShortLife)
				operator, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
				mine, w := r.WithToken(token), r.Web(t)
				all = taskTokens(wiretest.WithToken(t.Context(), token), wiretest.WithToken(t.Context(), operator), t, mine, w)
				wantGood(t, w, all)
				if err := end(r, id); err != nil {
					t.Fatal(err)
				}
				check(t, r, w)
			})
			wiretest.ServeWith(t, st.Reopen(), cfg, func(t *testing.T, r *wiretest.Rig) {
				w := r.Web(t)
				check(t, r, w)
				time.Sleep(2 * wiretest.ShortLife)
				check(t, r, w)
				if problem == auth.Expired { // also if its key is dropped after that
					if err := wiretest.CredentialEndings[auth.UnknownKey](r, ""); err != nil {
						t.Fatal(err)
					}
					check(t, r, w)
				}
			})
		})
	}
}

// X3, H1: the task tokens of a worker with a client certificate end when the certificate is
// revoked.
func TestTaskTokensEndWithTheirCertificate(t *testing.T) {
	t.Attr("rules", "X3 H1")
	wiretest.WithCertificates(t, func(t *testing.T, r *wiretest.Rig, cert *x509.Certificate, _ func()) {
		operator, _ := r.Issue(t, gate.DefaultTenant, auth.Operator)
		ctx, w := wiretest.WithToken(t.Context(), operator), r.Web(t)
		r.Tasks = lessorv1.NewTaskServiceClient(r.Conn)
		all := taskTokens(t.Context(), ctx, t, r, w)
		wantGood(t, w, all)
		if err := wiretest.CredentialEndings[auth.Revoked](r, auth.CertificateID(cert)); err != nil {
			t.Fatal(err)
		}
		for _, c := range all {
			w.PostCallback("heartbeat", c.id, c.token, `{"attempt": 1}`).Named(c.how).Want(t, http.StatusUnauthorized,
				"code", "E.AUTH.INVALID_TOKEN")
		}
	})
}

// X3: a callback whose body is still under way when the credential of its lease is revoked has no
// effect, even if it turns out to be malformed.
func TestRevocationWhileACallbackArrives(t *testing.T) {
	t.Attr("rules", "X3")
	for _, body := range []string{`{"attempt": 1, "outcome": "SUCCEEDED"}`, `{"attempt": 1, "outcome": "DONE"}`} {
		wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
			token, id := r.Issue(t, gate.DefaultTenant, auth.Operator)
			viewer, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
			w := r.Web(t)
			c := taskTokens(wiretest.WithToken(t.Context(), token), wiretest.WithToken(t.Context(), token), t,
				r.WithToken(token), w)[0]
			show := func() string {
				return errless(t)(r.Tasks.GetTask(wiretest.WithToken(t.Context(), viewer),
					&lessorv1.GetTaskRequest{TaskId: c.id})).String()
			}
			before := show()
			rest, send := io.Pipe()
			answered := make(chan wiretest.HTTPResponse, 1)
			go func() { answered <- w.SendWith(http.MethodPost, "/v1/tasks/"+c.id+"/completed", c.token, rest, nil) }()
			_, _ = io.WriteString(send, body[:10])
			synctest.Wait()
			if err := wiretest.CredentialEndings[auth.Revoked](r, id); err != nil {
				t.Fatal(err)
			}
			_, _ = io.WriteString(send, body[10:])
			_ = send.Close()
			answer := <-answered
			answer.Want(t, http.StatusUnauthorized, "error", "unauthorized", "code", "E.AUTH.INVALID_TOKEN", "verdict", nil)
			if after := show(); after != before {
				t.Errorf("%s: the task has changed from\n%s\nto\n%s", body, before, after)
			}
		})
	}
}

// X3, W8: a worker that resumes its session with a newer credential gets task tokens of that one.
// So they survive the revocation of the old one, and end with the new one.
func TestResumedLeaseGetsTaskTokensOfTheNewCredential(t *testing.T) {
	t.Attr("rules", "X3 W8")
	cfg := wiretest.NoHeartbeats
	cfg.Auth = &gate.Auth{}
	wiretest.ServeWith(t, nil, cfg, func(t *testing.T, r *wiretest.Rig) {
		first, firstID := r.Issue(t, gate.DefaultTenant, auth.Operator)
		second, secondID := r.Issue(t, gate.DefaultTenant, auth.Operator)
		w := r.Web(t)
		worker, accepted := r.WithToken(first).OpenSessionWith(t, "w", 4, nil)
		for range 4 {
			if _, err := r.Tasks.SubmitTask(wiretest.WithToken(t.Context(), first), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}}); err != nil {
				t.Fatal(err)
			}
		}
		unacked := func() (all []*lessorv1.Assignment) { // so that the next stream sends it again
			for len(all) < 4 {
				all = append(all, wiretest.NextFrameWith[*lessorv1.Dispatch](worker).GetDispatch().GetAssignments()...)
			}
			return all
		}
		work := unacked()
		worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(work[0])}})
		wiretest.NextPayload[*lessorv1.Verdicts](worker)
		worker.Cut()
		synctest.Wait()
		// the frames after the accept are sent again
		worker, accepted = r.WithToken(second).OpenSessionWith(t, "w", 4, wiretest.ResumeFrom(accepted, 1))
		if !accepted.GetResumed() {
			t.Fatal("the session is not resumed")
		}
		var again []under
		for _, a := range unacked() {
			again = append(again, under{"a repeated dispatch", a.GetTask().GetTaskId(), a.GetTaskToken()})
		}
		verdict := wiretest.NextPayload[*lessorv1.Verdicts](worker).GetVerdicts()[0]
		again = append(again, under{"a repeated verdict", verdict.GetTaskId(), verdict.GetTaskToken()})
		for _, beat := range worker.Heartbeat(work...) {
			again = append(again, under{"a heartbeat", beat.GetTaskId(), beat.GetTaskToken()})
		}
		if err := wiretest.CredentialEndings[auth.Revoked](r, firstID); err != nil {
			t.Fatal(err)
		}
		wantGood(t, w, again)
		old := under{"the first dispatch", work[0].GetTask().GetTaskId(), work[0].GetTaskToken()}
		wantEnded(wiretest.WithToken(t.Context(), second), t, r, w, []under{old})
		viewer, _ := r.Issue(t, gate.DefaultTenant, auth.Viewer)
		if err := wiretest.CredentialEndings[auth.Revoked](r, secondID); err != nil {
			t.Fatal(err)
		}
		wantEnded(wiretest.WithToken(t.Context(), viewer), t, r, w, again)
	})
}

// H1: a task token that does not say under which credential its lease is held, because an older
// version issued it, is valid until it expires. The tokens that replace it do not say it either.
func TestTaskTokenWithoutACredentialIsValid(t *testing.T) {
	t.Attr("rules", "H1")
	st := memstore.New()
	wiretest.ServeWith(t, st, coordinator.Config{Auth: &gate.Auth{}}, func(t *testing.T, r *wiretest.Rig) {
		token, id := r.Issue(t, gate.DefaultTenant, auth.Operator)
		w := r.Web(t)
		c := taskTokens(wiretest.WithToken(t.Context(), token), wiretest.WithToken(t.Context(), token), t,
			r.WithToken(token), w)[0]
		task, now := new(lease.Task), r.Engine.Now()
		err := st.View(func(rd store.Reader) (err error) {
			at, _ := lease.ParseTaskID(c.id)
			task, err = records.Task(rd, at)
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		old, _ := tokensOf(r).Of(&convert.Times{Now: now}, task.Holding(), task.ExpiresAt(now))
		if err := wiretest.CredentialEndings[auth.Revoked](r, id); err != nil {
			t.Fatal(err)
		}
		for range 3 {
			beat := w.PostCallback("heartbeat", c.id, old, `{"attempt": 1}`)
			beat.Want(t, http.StatusOK, "verdict", "COMMITTED")
			old = fmt.Sprint(beat.Body["taskToken"])
		}
	})
}
