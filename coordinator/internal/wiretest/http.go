package wiretest

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"google.golang.org/grpc/test/bufconn"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// HTTPResponse is an HTTP response with its body.
type HTTPResponse struct {
	*http.Response
	What string // the request, for failure messages
	Text string
	Body map[string]any // the text decoded, if it is JSON
}

// HTTPClient is an HTTP client of a rig. It connects over bufconn, so that fake time works.
type HTTPClient struct {
	*http.Client
	T *testing.T
}

// Web makes the coordinator serve HTTP until the end of the test, and returns a client.
func (r *Rig) Web(t *testing.T) *HTTPClient {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- r.HTTP.Serve(lis) }()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		// bufconn may report a read deadline that the server has already cleared. The server would
		// then think that an idle client has left.
		DisableKeepAlives: true,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = r.HTTP.Close()
		if err := <-served; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	})
	return &HTTPClient{&http.Client{Transport: transport}, t}
}

// Send makes a request with this body. token may be empty.
func (w *HTTPClient) Send(method, path, token, body string) HTTPResponse {
	w.T.Helper()
	return w.SendWith(method, path, token, strings.NewReader(body), nil)
}

// SendWith makes a request with additional headers and any kind of body.
func (w *HTTPClient) SendWith(method, path, token string, body io.Reader, header http.Header) HTTPResponse {
	w.T.Helper()
	res := w.SendWithoutReading(method, path, token, body, header)
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		w.T.Fatal(err)
	}
	a := HTTPResponse{Response: res, What: method + " " + path, Text: string(text)}
	if method != http.MethodHead && strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &a.Body); err != nil {
			w.T.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	WantDescribed(w.T, method, path, res.StatusCode, a.Body)
	return a
}

// SendWithoutReading makes a request, and does not read the body of the response; the caller does
// that.
func (w *HTTPClient) SendWithoutReading(method, path, token string, body io.Reader, header http.Header) *http.Response {
	w.T.Helper()
	req, err := http.NewRequestWithContext(w.T.Context(), method, "http://coordinator"+path, body)
	if err != nil {
		w.T.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := w.Do(req)
	if err != nil {
		w.T.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// Named adds the name of a test case to the failure messages about this response.
func (a HTTPResponse) Named(name string) HTTPResponse {
	a.What += " (" + name + ")"
	return a
}

// Want checks the status and fields of the body. fields has pairs of a name and a value; nil means
// that the field is null, and "" that it is missing.
func (a HTTPResponse) Want(t *testing.T, status int, fields ...any) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: status %d, want %d: %s", a.What, a.StatusCode, status, a.Text)
	}
	for i := 0; i < len(fields); i += 2 {
		name := fields[i].(string)
		got, there := a.Body[name]
		if want := fields[i+1]; want == "" && !there || there && got == want {
			continue
		}
		t.Errorf("%s: %s is %v, want %v: %s", a.What, name, got, fields[i+1], a.Text)
	}
}

// HTTPLease has the ids of a leased task and of its lease, and the task token.
type HTTPLease struct{ ID, Token, LeaseID string }

// SubmitTask submits a task over HTTP and returns its id.
func (w *HTTPClient) SubmitTask(token, queue string) string {
	w.T.Helper()
	created := w.Send(http.MethodPost, "/v1/tasks", token, `{"queue": "`+queue+`"}`)
	created.Want(w.T, http.StatusCreated)
	id, _ := created.Body["task"].(map[string]any)["taskId"].(string)
	return id
}

// SubmitAndLease submits a task to a queue, and leases it.
func (w *HTTPClient) SubmitAndLease(token, queue string) HTTPLease {
	w.T.Helper()
	w.SubmitTask(token, queue)
	return w.Lease(token, queue)
}

// Lease leases the only waiting task of a queue.
func (w *HTTPClient) Lease(token, queue string) HTTPLease {
	w.T.Helper()
	granted := w.Send(http.MethodPost, "/v1/leases", token, `{"workerId": "w", "queues": ["`+queue+`"]}`)
	all, _ := granted.Body["assignments"].([]any)
	if len(all) != 1 {
		w.T.Fatalf("the answer is %s, want one assignment", granted.Text)
	}
	a := all[0].(map[string]any)
	return HTTPLease{a["taskId"].(string), a["taskToken"].(string), a["leaseId"].(string)}
}

// Callback makes a callback for an assignment, with its task token and attempt. more is JSON that
// follows the attempt in the body.
func (w *HTTPClient) Callback(verb string, a *lessorv1.Assignment, more string) HTTPResponse {
	w.T.Helper()
	return w.PostCallback(verb, a.GetTask().GetTaskId(), a.GetTaskToken(),
		fmt.Sprintf(`{"attempt": %d%s}`, a.GetAttempt(), more))
}

// PostCallback makes a callback with this body.
func (w *HTTPClient) PostCallback(verb, task, token, body string) HTTPResponse {
	w.T.Helper()
	return w.Send(http.MethodPost, "/v1/tasks/"+task+"/"+verb, token, body)
}

// GetPath returns the body of the answer to a GET request without a credential. It fails the test
// if the status is not want.
func GetPath(t *testing.T, r *Rig, path string, want int) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.HTTP.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, _ := io.ReadAll(w.Body)
	if w.Code != want {
		t.Errorf("%s: status %d, want %d", path, w.Code, want)
	}
	return string(body)
}
