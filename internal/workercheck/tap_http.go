package workercheck

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// webTap is the tap for workers that speak HTTP.
type webTap struct {
	*tap
	proxy *httputil.ReverseProxy
}

// newWebTap returns a handler that passes requests on to where dial leads.
func newWebTap(t *tap, dial func() (net.Conn, error)) http.Handler {
	upstream := &url.URL{Scheme: "http", Host: "coordinator"}
	wt := &webTap{tap: t}
	wt.proxy = &httputil.ReverseProxy{
		Rewrite:       func(p *httputil.ProxyRequest) { p.SetURL(upstream) },
		Transport:     &http.Transport{DialContext: dialer(dial), DisableKeepAlives: true},
		FlushInterval: -1,
		ErrorHandler:  func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
	mux := http.NewServeMux()
	mux.HandleFunc("POST /v1/leases", wt.leases)
	mux.HandleFunc("POST /v1/tasks/{task}/{said}", wt.callback)
	mux.Handle("/", wt.proxy)
	return mux
}

// cutHTTP ends a request without an answer.
func cutHTTP() { panic(http.ErrAbortHandler) }

// forward passes the request on with the body, and returns the answer.
func (t *webTap) forward(r *http.Request, body []byte) *answer {
	out := r.Clone(r.Context())
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	a := &answer{header: http.Header{}, status: http.StatusOK}
	t.proxy.ServeHTTP(a, out)
	return a
}

// answer is a response that is kept before it goes on.
type answer struct {
	header http.Header
	status int
	body   bytes.Buffer
}

func (a *answer) Header() http.Header         { return a.header }
func (a *answer) WriteHeader(status int)      { a.status = status }
func (a *answer) Write(b []byte) (int, error) { return a.body.Write(b) }

// code returns the code and the message of an error, in what it is an answer to.
func (a *answer) code() (of string, err error) {
	var said struct{ Code, Message string }
	_ = json.Unmarshal(a.body.Bytes(), &said)
	return fmt.Sprintf("status %d %s", a.status, said.Code), errors.New(said.Message)
}

// send passes the answer on to the worker.
func (t *webTap) send(w http.ResponseWriter, a *answer) {
	body := a.body.Bytes()
	if d := t.now().distort; d != nil {
		if v, err := decode(body); err == nil {
			body, _ = json.Marshal(d.json(v))
		}
	}
	maps.Copy(w.Header(), a.header)
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(a.status)
	_, _ = w.Write(body)
}

// decode keeps numbers as they are.
func decode(body []byte) (v any, err error) {
	d := json.NewDecoder(bytes.NewReader(body))
	d.UseNumber()
	err = d.Decode(&v)
	return v, err
}

// leases is POST /v1/leases.
func (t *webTap) leases(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var asks struct{ Queues []string }
	_ = json.Unmarshal(body, &asks) // the coordinator refuses what is no object
	t.rec.takesFrom(asks.Queues)
	t.rec.ask(web, "POST /v1/leases")
	if wait := t.busy(); wait > 0 {
		t.rec.note("coordinator: come back in %v", wait)
		w.Header().Set("Retry-After", strconv.Itoa(int(math.Ceil(wait.Seconds()))))
		w.Header().Set("Content-Type", "application/json")
		w.WriteHeader(http.StatusTooManyRequests)
		_, _ = fmt.Fprintf(w, `{"error": "too_many_requests", "code": %q, "message": "too many calls; try again later"}`, codeCalls)
		return
	}
	a := t.forward(r, body)
	if a.status >= http.StatusBadRequest {
		t.rec.refuse(a.code())
	}
	var granted struct {
		Assignments []struct {
			TaskID  string `json:"taskId"`
			LeaseID string `json:"leaseId"`
			Attempt uint32 `json:"attempt"`
		} `json:"assignments"`
	}
	_ = json.Unmarshal(a.body.Bytes(), &granted) // what is no list of assignments grants nothing
	if t.loseGrant(len(granted.Assignments)) {
		cutHTTP()
	}
	for _, as := range granted.Assignments {
		t.rec.grant(as.TaskID, as.LeaseID, as.Attempt)
	}
	t.send(w, a)
}

// callback is POST /v1/tasks/{task}/started, heartbeat, completed.
func (t *webTap) callback(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	said, body := t.listen(r, body)
	a := t.forward(r, body)
	var told struct {
		Verdict, Reason   string
		ShouldCancel      bool
		CancelGraceLeftMs int64
	}
	_ = json.Unmarshal(a.body.Bytes(), &told) // no verdict, then
	v := lessorv1.Verdict(lessorv1.Verdict_value["VERDICT_"+told.Verdict])
	if t.tell(said) == lose {
		t.rec.answer(said, v, told.Reason, lostOnTheWay)
		cutHTTP()
	}
	t.rec.answer(said, v, told.Reason, "")
	if said != nil && v == lessorv1.Verdict_VERDICT_COMMITTED && told.ShouldCancel {
		t.rec.stop(said.attempt, time.Duration(told.CancelGraceLeftMs)*time.Millisecond)
	}
	t.send(w, a)
}

// listen records what the worker says, and returns the body to pass on. A refused request ends with
// a 503.
func (t *webTap) listen(r *http.Request, body []byte) (*word, []byte) {
	fields := map[string]json.RawMessage{}
	_ = json.Unmarshal(body, &fields) // the coordinator refuses what is no object
	k, content, category := describeJSON(r.PathValue("said"), fields)
	number, _ := strconv.ParseUint(string(fields["attempt"]), 10, 32)
	said := t.rec.say(k, r.PathValue("task"), "", uint32(number), content, category)
	switch t.hear(said) {
	case refuse:
		t.rec.answer(said, lessorv1.Verdict_VERDICT_UNSPECIFIED, "", "the coordinator cannot be reached")
		cutHTTP()
	case spoil:
		fields["outcome"] = json.RawMessage(`"SPOILT"`) // V1
		body, _ = json.Marshal(fields)
	}
	return said, body
}

func describeJSON(said string, fields map[string]json.RawMessage) (k kind, content, category string) {
	switch said {
	case "started":
		if string(fields["begun"]) == "true" {
			return start, begun, ""
		}
		return start, "", ""
	case "heartbeat":
		return heartbeat, "", ""
	}
	same := map[string]json.RawMessage{}
	for _, name := range []string{"outcome", "output", "outputBase64", "artifacts", "error"} {
		if v, ok := fields[name]; ok {
			same[name] = v
		}
	}
	b, _ := json.Marshal(same)
	var outcome string
	_ = json.Unmarshal(fields["outcome"], &outcome) // refused by the coordinator if it is no string
	switch outcome {
	case "SUCCEEDED":
		return complete, string(b), ""
	case "CANCELLED":
		return fail, string(b), "CANCELLED"
	}
	var failure struct{ Category string }
	_ = json.Unmarshal(fields["error"], &failure) // none is allowed
	return fail, string(b), failure.Category
}

// webServer serves the handler, and has patience with slow workers.
func webServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, ReadHeaderTimeout: time.Minute}
}
