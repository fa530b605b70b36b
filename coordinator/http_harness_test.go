package coordinator

import (
	"context"
	"encoding/json"
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

// httpResponse is an HTTP response with its body.
type httpResponse struct {
	*http.Response
	what string // the request, for failure messages
	text string
	body map[string]any // the text decoded, if it is JSON
}

// httpClient is an HTTP client of a rig. It connects over bufconn, so that fake time works.
type httpClient struct {
	*http.Client
	t *testing.T
}

// web makes the coordinator serve HTTP until the end of the test, and returns a client.
func (r *rig) web(t *testing.T) *httpClient {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- r.serveHTTP(lis) }()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		// bufconn may report a read deadline that the server has already cleared. The server would then think that an idle client has left.
		DisableKeepAlives: true,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = r.http.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &httpClient{&http.Client{Transport: transport}, t}
}

// send makes a request with this body. token may be empty.
func (w *httpClient) send(method, path, token, body string) httpResponse {
	w.t.Helper()
	return w.sendWith(method, path, token, strings.NewReader(body), nil)
}

// sendWith makes a request with additional headers and any kind of body.
func (w *httpClient) sendWith(method, path, token string, body io.Reader, header http.Header) httpResponse {
	w.t.Helper()
	res := w.sendWithoutReading(method, path, token, body, header)
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	a := httpResponse{Response: res, what: method + " " + path, text: string(text)}
	if method != http.MethodHead && strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &a.body); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	wantDescribed(w.t, method, path, res.StatusCode, a.body)
	return a
}

// sendWithoutReading makes a request, and does not read the body of the response; the caller does that.
func (w *httpClient) sendWithoutReading(method, path, token string, body io.Reader, header http.Header) *http.Response {
	w.t.Helper()
	req, err := http.NewRequestWithContext(w.t.Context(), method, "http://coordinator"+path, body)
	if err != nil {
		w.t.Fatal(err)
	}
	if header != nil {
		req.Header = header
	}
	if token != "" {
		req.Header.Set("Authorization", "Bearer "+token)
	}
	res, err := w.Do(req)
	if err != nil {
		w.t.Fatalf("%s %s: %v", method, path, err)
	}
	return res
}

// named adds the name of a test case to the failure messages about this response.
func (a httpResponse) named(name string) httpResponse {
	a.what += " (" + name + ")"
	return a
}

// want checks the status and fields of the body. fields has pairs of a name and a value; nil means that the field is null, and "" that it is missing.
func (a httpResponse) want(t *testing.T, status int, fields ...any) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: status %d, want %d: %s", a.what, a.StatusCode, status, a.text)
	}
	for i := 0; i < len(fields); i += 2 {
		name := fields[i].(string)
		got, there := a.body[name]
		if want := fields[i+1]; want == "" && !there || there && got == want {
			continue
		}
		t.Errorf("%s: %s is %v, want %v: %s", a.what, name, got, fields[i+1], a.text)
	}
}

// httpLease has the ids of a leased task and of its lease, and the task token.
type httpLease struct{ id, token, lease string }

// submitTask submits a task over HTTP and returns its id.
func (w *httpClient) submitTask(token, queue string) string {
	w.t.Helper()
	created := w.send(http.MethodPost, "/v1/tasks", token, `{"queue": "`+queue+`"}`)
	created.want(w.t, http.StatusCreated)
	id, _ := created.body["task"].(map[string]any)["taskId"].(string)
	return id
}

// submitAndLease submits a task to a queue, and leases it.
func (w *httpClient) submitAndLease(token, queue string) httpLease {
	w.t.Helper()
	id := w.submitTask(token, queue)
	granted := w.send(http.MethodPost, "/v1/leases", token, `{"workerId": "w", "queues": ["`+queue+`"]}`)
	all, _ := granted.body["assignments"].([]any)
	if len(all) != 1 {
		w.t.Fatalf("the answer is %s, want one assignment", granted.text)
	}
	a := all[0].(map[string]any)
	return httpLease{id, a["taskToken"].(string), a["leaseId"].(string)}
}

// callback makes a callback for an assignment, with its task token and attempt. more is JSON that follows the attempt in the body.
func (w *httpClient) callback(verb string, a *lessorv1.Assignment, more string) httpResponse {
	w.t.Helper()
	return w.postCallback(verb, a.GetTask().GetTaskId(), a.GetTaskToken(), fmt.Sprintf(`{"attempt": %d%s}`, a.GetAttempt(), more))
}

// postCallback makes a callback with this body.
func (w *httpClient) postCallback(verb, task, token, body string) httpResponse {
	w.t.Helper()
	return w.send(http.MethodPost, "/v1/tasks/"+task+"/"+verb, token, body)
}

func getPath(t *testing.T, r *rig, path string, want int) string {
	t.Helper()
	w := httptest.NewRecorder()
	r.http.Handler.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	body, _ := io.ReadAll(w.Body)
	if w.Code != want {
		t.Errorf("%s: status %d, want %d", path, w.Code, want)
	}
	return string(body)
}
