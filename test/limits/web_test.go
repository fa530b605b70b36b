package limits

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// dialWeb returns an HTTP client of a coordinator.
func dialWeb(l *life) *http.Client {
	return &http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return l.web.DialContext(ctx) },
		// bufconn may report a read deadline that the server has already cleared. The server would
		// then think that an idle client has left.
		DisableKeepAlives: true,
	}}
}

// webAnswer has what the test reads of the body of an answer.
type webAnswer struct {
	status int

	Error                            string
	Message                          string
	Verdict                          *string
	Reason                           string
	FinalState                       string
	ExpectedAttempt, ReceivedAttempt uint32
	ShouldCancel                     bool
	ExpiresAt                        time.Time
	TaskToken                        string
	TokenExpiresAt                   time.Time
	Assignments                      []webAssignment
	Created                          bool
	Task                             struct {
		TaskID       string
		State        string
		OutputBase64 []byte
	}
}

// webAssignment has what a worker needs of an assignment.
type webAssignment struct {
	TaskID, LeaseID, TaskToken string
	Attempt                    uint32
	FencingToken               uint64
	HeartbeatTimeoutMs         int64
	ExpiresAt, TokenExpiresAt  time.Time
}

// proto returns the assignment as it comes over gRPC.
func (a *webAssignment) proto() *lessorv1.Assignment {
	return &lessorv1.Assignment{
		Task: &lessorv1.Task{TaskId: a.TaskID}, LeaseId: a.LeaseID, Attempt: a.Attempt, FencingToken: a.FencingToken,
		TaskToken:        a.TaskToken,
		HeartbeatTimeout: durationpb.New(time.Duration(a.HeartbeatTimeoutMs) * time.Millisecond),
		ExpiresAt:        timestamppb.New(a.ExpiresAt),
		TokenExpiresAt:   timestamppb.New(a.TokenExpiresAt),
	}
}

// request makes a request; body nil: a GET. The error is that of a gRPC call which ends in the same
// way; a verdict is no error.
func (c *client) request(ctx context.Context, path, token string, body any) (a webAnswer, err error) {
	method, sent := http.MethodGet, io.Reader(nil)
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return a, err
		}
		method, sent = http.MethodPost, bytes.NewReader(text)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://coordinator"+path, sent)
	if err != nil {
		return a, err
	}
	req.Header.Set("Authorization", "Bearer "+token)
	res, err := c.web.Do(req)
	if err != nil {
		return a, lostRequest(ctx, err)
	}
	defer res.Body.Close()
	a.status = res.StatusCode
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return a, lostRequest(ctx, err)
	}
	if err := json.Unmarshal(text, &a); err != nil {
		return a, fmt.Errorf("%w: %s", err, text)
	}
	if a.status < 300 || a.Verdict != nil {
		return a, nil
	}
	code, ok := map[int]codes.Code{
		http.StatusUnauthorized: codes.Unauthenticated, http.StatusForbidden: codes.PermissionDenied,
		http.StatusNotFound: codes.NotFound,
		http.StatusConflict: codes.FailedPrecondition, http.StatusTooManyRequests: codes.ResourceExhausted,
		http.StatusServiceUnavailable:  codes.Unavailable,
		http.StatusInternalServerError: codes.Internal,
	}[a.status]
	if !ok {
		code = codes.Unknown
	}
	return a, status.Errorf(code, "%d %s", a.status, text)
}

// lostRequest returns the error for a request without an answer.
func lostRequest(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return status.FromContextError(ctx.Err()).Err()
	}
	return status.Error(codes.Unavailable, err.Error())
}

// polls asks for work over HTTP. The worker reports over HTTP as well, or over HTTP and gRPC in
// turn.
func (w *world) polls(tn *tenant) {
	worker, gone, both := fmt.Sprint("w", w.rng.IntN(4)), one(w.rng, 10), one(w.rng, 2)
	wait := pick(w.rng, 0, time.Second, 5*time.Second)
	ask := map[string]any{
		"workerId": worker, "workspaceId": pick(w.rng, tn.spaces...), "queues": queues, "maxTasks": 1 + w.rng.IntN(6), "waitMs": wait.Milliseconds(),
	}
	if one(w.rng, 4) {
		ask["requestId"] = fmt.Sprint("r", w.rng.IntN(3))
	}
	if one(w.rng, 2) {
		ask["capabilities"] = map[string]any{"features": []string{fmt.Sprint("gpu", w.rng.IntN(features))}}
	}
	for range pick(w.rng, 1, 1, 2) {
		w.busy.Go(func() {
			var got []webAssignment
			err := w.call(tn, "POST leases", wait, func(ctx context.Context, c *client) error {
				if gone { // the caller leaves before the answer comes, or with it
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, wait/2)
					defer cancel()
				}
				a, err := c.request(ctx, "/v1/leases", tn.token.Load().token, ask)
				if got = a.Assignments; gone && status.Code(err) == codes.DeadlineExceeded {
					return nil
				}
				return err
			})
			if err != nil {
				return
			}
			for i := range got {
				a := got[i].proto()
				by := speaker(w.newWeb(a, worker))
				if both {
					by = &inTurn{by: []speaker{by, unary{w, worker}}}
				}
				w.busy.Go(func() { w.work(w.handed(tn, a, nil), by) })
			}
		})
	}
}

// web is a worker that reports over HTTP, with the task token of one lease.
type web struct {
	w      *world
	worker string

	mu     sync.Mutex // guards the rest
	rng    *rand.Rand
	first  string // the token of the assignment
	token  string // the newest one
	expire time.Time
}

func (w *world) newWeb(a *lessorv1.Assignment, worker string) *web {
	w.checkToken(a.GetTask().GetTaskId(), a.GetExpiresAt().AsTime(), a.GetTokenExpiresAt().AsTime())
	return &web{
		w: w, worker: worker, rng: w.fate("web " + a.GetLeaseId()), first: a.GetTaskToken(), token: a.GetTaskToken(),
		expire: a.GetTokenExpiresAt().AsTime(),
	}
}

// checkToken checks how long a task token is good.
func (w *world) checkToken(task string, leaseEnds, tokenEnds time.Time) {
	if tokenEnds.Sub(leaseEnds) < 10*time.Minute || time.Until(tokenEnds) > 2*time.Hour {
		w.problem("H1: a token of %s ends at %v, and its lease at %v", task, tokenEnds, leaseEnds)
	}
}

// good returns a token that is good: the newest one, or the first one.
func (b *web) good() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return pick(b.rng, b.token, b.token, b.first)
}

// hasRevoked reports whether a task token is of a lease under a credential that somebody has asked
// to revoke. The id of the credential is the last text in it.
func (tn *tenant) hasRevoked(token string) (revoked bool) {
	raw, err := base64.RawURLEncoding.DecodeString(strings.TrimPrefix(token, "lst_"))
	if err != nil || len(raw) < sha256.Size {
		return false
	}
	tn.revoked.Range(func(id, _ any) bool {
		revoked = bytes.HasSuffix(raw[:len(raw)-sha256.Size], []byte(id.(string)))
		return !revoked
	})
	return revoked
}

// callback makes a callback. ok is false if there is no verdict.
func (b *web) callback(l *held, verb string, body map[string]any) (a webAnswer, began time.Time, ok bool) {
	token := b.good()
	b.misuse(l, verb, token)
	body["attempt"], body["workerId"] = l.attempt, b.worker
	began = time.Now()
	err := b.w.call(l.tn, "POST "+verb, 0, func(ctx context.Context, c *client) (err error) {
		a, err = c.request(ctx, "/v1/tasks/"+l.task+"/"+verb, token, body)
		if status.Code(err) == codes.Unauthenticated && l.tn.hasRevoked(token) {
			err = status.Error(codes.FailedPrecondition, "the credential of the lease was revoked")
		}
		return err
	})
	if err != nil {
		return a, began, false
	}
	b.w.count("POST "+verb, *a.Verdict+" "+a.Reason)
	b.checkStatus(l, &a)
	return a, began, true
}

// misuse uses the token for another task or attempt, or changes it, at times: then there is no
// verdict, and nothing happens.
func (b *web) misuse(l *held, verb, token string) {
	b.mu.Lock()
	how := b.rng.IntN(15)
	b.mu.Unlock()
	task, attempt, want := l.task, l.attempt, http.StatusForbidden
	switch how {
	case 0:
		task = "t0000200000000000"
	case 1:
		attempt++
	case 2:
		last := "A"
		if strings.HasSuffix(token, last) {
			last = "Q"
		}
		token, want = token[:len(token)-1]+last, http.StatusUnauthorized
	default:
		return
	}
	_ = b.w.call(l.tn, "misused token", 0, func(ctx context.Context, c *client) error {
		a, err := c.request(ctx, "/v1/tasks/"+task+"/"+verb, token, map[string]any{"attempt": attempt, "outcome": "SUCCEEDED"})
		if code := status.Code(err); code == codes.Unavailable || code == codes.ResourceExhausted {
			return err
		}
		if a.Verdict == nil && a.status == http.StatusUnauthorized && l.tn.hasRevoked(token) {
			return nil
		}
		if a.status != want || a.Verdict != nil {
			b.w.problem("H1: a token of %s, attempt %d, was misused in way %d: %d %v, %v",
				l.task, l.attempt, how, a.status, a.Verdict, err)
		}
		return nil
	})
}

// checkStatus checks the status of an answer against its verdict (H2).
func (b *web) checkStatus(l *held, a *webAnswer) {
	status, word := http.StatusGone, "task_expired"
	switch *a.Verdict + " " + a.Reason {
	case "COMMITTED NONE":
		status, word = http.StatusOK, ""
	case "CANCELLED TASK_CANCELLED", "CANCELLED ALREADY_REPORTED", "REJECTED DUPLICATE_REPORT":
		status, word = http.StatusConflict, "task_already_terminal"
	case "CANCELLED SUPERSEDED":
		status, word = http.StatusConflict, "attempt_mismatch"
		if a.ReceivedAttempt != l.attempt || a.ExpectedAttempt <= l.attempt {
			b.w.problem("H2: attempt %d of %s is superseded: received %d, expected %d",
				l.attempt, l.task, a.ReceivedAttempt, a.ExpectedAttempt)
		}
	}
	if a.status != status || a.Error != word {
		b.w.problem("H2: %s %s has the status %d %s; want %d %s", *a.Verdict, a.Reason, a.status, a.Error, status, word)
	}
}

// renewed takes the new token of an answer to a start or a heartbeat, and gives the answer to the
// book.
func (b *web) renewed(l *held, what string, m *webAnswer, began time.Time) answer {
	a := m.answer()
	if a.verdict == lessorv1.Verdict_VERDICT_COMMITTED {
		b.w.checkToken(l.task, m.ExpiresAt, m.TokenExpiresAt)
		b.mu.Lock()
		if m.TokenExpiresAt.After(b.expire) {
			b.token, b.expire = m.TaskToken, m.TokenExpiresAt
		}
		b.mu.Unlock()
	}
	b.w.book.answered(l.leaseRecord, what, a.verdict, a.reason, began)
	return a
}

// answer returns the answer as it comes over gRPC.
func (a *webAnswer) answer() answer {
	return answer{
		verdict: lessorv1.Verdict(lessorv1.Verdict_value["VERDICT_"+*a.Verdict]),
		reason:  lessorv1.Reason(lessorv1.Reason_value["REASON_"+a.Reason]),
		cancel:  a.ShouldCancel, expiresAt: a.ExpiresAt,
	}
}

func (b *web) start(l *held) (answer, bool) {
	m, began, ok := b.callback(l, "started", map[string]any{})
	if !ok {
		return answer{}, false
	}
	return b.renewed(l, "start", &m, began), true
}

func (b *web) beat(l *held, checkpoint []byte) (answer, bool) {
	m, began, ok := b.callback(l, "heartbeat", map[string]any{"progressPct": 50, "checkpointBase64": checkpoint})
	if !ok {
		return answer{}, false
	}
	return b.renewed(l, "heartbeat", &m, began), true
}

// report reports the end of an attempt. HTTP has no release: the worker gives the task back by a
// failure that is not its own.
func (b *web) report(l *held, r report) (answer, bool) {
	if r.kind == "release" {
		r.kind = "give back"
	}
	b.w.book.sending(l.leaseRecord, r)
	m, began, ok := b.callback(l, "completed", completedBody(r))
	if !ok {
		return answer{}, false
	}
	a := m.answer()
	b.w.book.judged(l.leaseRecord, r, a.verdict, a.reason, began)
	return a, true
}

// completedBody returns the body of a report. It is the same report as that of reportProto.
func completedBody(r report) map[string]any {
	switch r.kind {
	case "complete":
		return map[string]any{"outcome": "SUCCEEDED", "reportId": r.kind + r.output, "outputBase64": []byte(r.output)}
	case "cancelled":
		return map[string]any{"outcome": "CANCELLED", "reportId": r.kind, "error": map[string]any{"message": "no"}}
	case "fail":
		return map[string]any{
			"outcome": "FAILED", "reportId": r.kind,
			"error": map[string]any{"category": "USER_CODE", "message": "no"},
		}
	}
	return map[string]any{
		"outcome": "FAILED", "reportId": r.kind,
		"error": map[string]any{"category": "INFRASTRUCTURE", "message": "given back"},
	}
}

// inTurn is a worker that speaks now in one way, now in another. To the coordinator these are the
// same reports.
type inTurn struct {
	mu   sync.Mutex
	next int
	by   []speaker
}

func (t *inTurn) turn() speaker {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.next++
	return t.by[t.next%len(t.by)]
}

func (t *inTurn) start(l *held) (answer, bool)                   { return t.turn().start(l) }
func (t *inTurn) beat(l *held, checkpoint []byte) (answer, bool) { return t.turn().beat(l, checkpoint) }

// report makes releases over gRPC alone.
func (t *inTurn) report(l *held, r report) (answer, bool) {
	if r.kind == "release" {
		return t.by[1].report(l, r)
	}
	return t.turn().report(l, r)
}

// posts submits a task over HTTP, or cancels one.
func (w *world) posts(tn *tenant) {
	if id := w.book.anyTask(w.rng, tn); id != "" && one(w.rng, 3) {
		w.command(tn, "POST cancel", id, func(ctx context.Context, c *client) error {
			_, err := c.request(ctx, "/v1/tasks/"+id+":cancel", tn.token.Load().token, map[string]any{})
			return err
		})
		return
	}
	spec := &lessorv1.TaskSpec{WorkspaceId: pick(w.rng, tn.spaces...), Queue: pick(w.rng, queues...)}
	if one(w.rng, 2) {
		spec.Queue, spec.IdempotencyKey = "a", "posted" // all with this key are alike
	}
	body := map[string]any{
		"workspaceId": spec.GetWorkspaceId(), "queue": spec.GetQueue(), "payload": []int{1, 2, 3}, "heartbeatIntervalMs": 1000, "heartbeatTimeoutMs": 4000,
	}
	if key := spec.GetIdempotencyKey(); key != "" {
		body["idempotencyKey"] = key
	}
	w.ask(tn, "POST Submit", 0, func(ctx context.Context, c *client) error {
		began := time.Now()
		a, err := c.request(ctx, "/v1/tasks", tn.token.Load().token, body)
		if err != nil {
			return err
		}
		if a.Created != (a.status == http.StatusCreated) {
			w.problem("a submit over HTTP has the status %d, and created is %v", a.status, a.Created)
		}
		w.book.submitted(tn, spec, a.Task.TaskID, a.Created, began)
		return nil
	})
}

// readOverHTTP reads a task, which must be as callers were told.
func (w *world) readOverHTTP(ctx context.Context, tn *tenant, c *client, id string) error {
	known := w.book.known(id)
	a, err := c.request(ctx, "/v1/tasks/"+id, tn.token.Load().token, nil)
	m := &lessorv1.Task{
		State:  lessorv1.TaskState(lessorv1.TaskState_value["TASK_STATE_"+a.Task.State]),
		Output: a.Task.OutputBase64,
	}
	w.book.read(known, id, m, err)
	return err
}
