package coordinator

import (
	"context"
	"encoding/json"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"

	"google.golang.org/grpc/test/bufconn"
)

// httpAnswer is an HTTP response that was read.
type httpAnswer struct {
	*http.Response
	what string // the request, for failure messages
	text string
	body map[string]any // if it is JSON
}

// web is an HTTP client of a rig. Its connections work with fake time.
type web struct {
	*http.Client
	t *testing.T
}

// web serves HTTP besides gRPC, until the end of the test.
func (r *rig) web(t *testing.T) *web {
	t.Helper()
	lis := bufconn.Listen(1 << 20)
	served := make(chan error, 1)
	go func() { served <- r.serveHTTP(lis) }()
	transport := &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) { return lis.DialContext(ctx) },
		// bufconn may deliver a deadline that was withdrawn; the server would then take an idle client for one that has left.
		DisableKeepAlives: true,
	}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		_ = r.http.Close()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return &web{&http.Client{Transport: transport}, t}
}

// send makes a request; the body is sent as it is, and token may be empty.
func (w *web) send(method, path, token, body string) httpAnswer {
	w.t.Helper()
	return w.sent(method, path, token, strings.NewReader(body), nil)
}

// sent makes a request with additional headers and any kind of body.
func (w *web) sent(method, path, token string, body io.Reader, header http.Header) httpAnswer {
	w.t.Helper()
	res := w.open(method, path, token, body, header)
	text, err := io.ReadAll(res.Body)
	_ = res.Body.Close()
	if err != nil {
		w.t.Fatal(err)
	}
	a := httpAnswer{Response: res, what: method + " " + path, text: string(text)}
	if method != http.MethodHead && strings.HasPrefix(res.Header.Get("Content-Type"), "application/json") {
		if err := json.Unmarshal(text, &a.body); err != nil {
			w.t.Fatalf("%s %s: %v in %s", method, path, err, text)
		}
	}
	return a
}

// open makes a request, and leaves it to the caller to read the body of the response.
func (w *web) open(method, path, token string, body io.Reader, header http.Header) *http.Response {
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

// called adds a name to the request, for failure messages.
func (a httpAnswer) called(name string) httpAnswer {
	a.what += " (" + name + ")"
	return a
}

// want checks the status, and fields of the body, given as pairs of name and value. nil stands for null; an empty string for a field that is missing.
func (a httpAnswer) want(t *testing.T, status int, fields ...any) {
	t.Helper()
	if a.StatusCode != status {
		t.Errorf("%s: %d, want %d: %s", a.what, a.StatusCode, status, a.text)
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
