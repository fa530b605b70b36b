package readiness

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"
)

const secret = "s3cr3t"

// offer is what the tests notify.
var offer = Ready{Endpoint: "http://127.0.0.1:8001", VRAMUsedBytes: 24 << 30, SlotsTotal: 4, ModelRef: "m", EngineVersion: "v1"}

// asPool sets the environment of a process of a pool, with the given address of the supervisor.
func asPool(t *testing.T, at string) {
	t.Helper()
	for name, value := range map[string]string{
		VarPoolURL: at, VarPoolToken: secret, VarPoolID: "p0", VarWorkerID: "p0/1", VarGPUDevice: "3",
	} {
		t.Setenv(name, value)
	}
}

// newNotifier returns a Notifier of this environment.
func newNotifier(t *testing.T) *Notifier {
	t.Helper()
	n, err := FromEnv()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// answer is a supervisor: it gets the number of the try, from 1.
type answer func(try int, r *http.Request) (status int, body string, err error)

// served returns a Notifier whose calls get the answers of a, and when it was tried.
func served(t *testing.T, a answer) (n *Notifier, tries *[]time.Duration) {
	t.Helper()
	asPool(t, "http://127.0.0.1:9200")
	n, tries = newNotifier(t), new([]time.Duration)
	begun := time.Now()
	n.client.Transport = roundTripper(func(r *http.Request) (*http.Response, error) {
		*tries = append(*tries, time.Since(begun))
		status, body, err := a(len(*tries), r)
		if err != nil {
			return nil, err
		}
		return &http.Response{StatusCode: status, Body: io.NopCloser(strings.NewReader(body)), Request: r}, nil
	})
	return n, tries
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// hang never answers.
func hang(_ int, r *http.Request) (int, string, error) {
	<-r.Context().Done()
	return 0, "", r.Context().Err()
}

// P2: the names of the JSON, the paths and the bearer token.
func TestNotifications(t *testing.T) {
	var got string
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		got += r.Method + " " + r.URL.EscapedPath() + " " + string(body)
		if auth, typ := r.Header.Get("Authorization"), r.Header.Get("Content-Type"); auth != "Bearer "+secret || typ != "application/json" {
			t.Errorf("Authorization = %q, Content-Type = %q", auth, typ)
		}
		_, _ = io.WriteString(w, "{}")
	}))
	defer server.Close()
	for name, test := range map[string]struct {
		say  func(context.Context, *Notifier) error
		gpu  string
		want string
	}{
		"ready": {
			func(ctx context.Context, n *Notifier) error { return n.Ready(ctx, offer) }, "3",
			`POST /v2/internal/workers/ready {"worker_id":"p0/1","pool_id":"p0","status":"ready","endpoint":"http://127.0.0.1:8001",` +
				`"vram_used_bytes":25769803776,"capabilities":{"gpu_device":3,"slots_total":4,"model_ref":"m","engine_version":"v1"}}`,
		},
		"without a GPU": {
			func(ctx context.Context, n *Notifier) error { return n.Ready(ctx, Ready{VRAMUsedBytes: 1}) }, "",
			`POST /v2/internal/workers/ready {"worker_id":"p0/1","pool_id":"p0","status":"ready","vram_used_bytes":1,` +
				`"capabilities":{"slots_total":0,"model_ref":"","engine_version":""}}`,
		},
		"GPU 0": {
			func(ctx context.Context, n *Notifier) error {
				return n.Ready(ctx, Ready{VRAMUsedBytes: 1, SlotsTotal: 1})
			}, "0",
			`POST /v2/internal/workers/ready {"worker_id":"p0/1","pool_id":"p0","status":"ready","vram_used_bytes":1,` +
				`"capabilities":{"gpu_device":0,"slots_total":1,"model_ref":"","engine_version":""}}`,
		},
		"draining": {
			func(ctx context.Context, n *Notifier) error { return n.Draining(ctx) }, "3",
			`POST /v2/internal/workers/ready {"worker_id":"p0/1","pool_id":"p0","status":"draining"}`,
		},
		"failed": {
			func(ctx context.Context, n *Notifier) error { return n.Failed(ctx, "no \"model\"") }, "3",
			`POST /v2/internal/workers/p0%2F1/failed {"worker_id":"p0/1","pool_id":"p0","status":"failed","message":"no \"model\""}`,
		},
	} {
		t.Run(name, func(t *testing.T) {
			asPool(t, server.URL+"/")
			t.Setenv(VarGPUDevice, test.gpu)
			got = ""
			if err := test.say(t.Context(), newNotifier(t)); err != nil {
				t.Error(err)
			}
			if got != test.want {
				t.Errorf("the supervisor got\n%s\nwant\n%s", got, test.want)
			}
		})
	}
}

// A reason that is too long is cut between two characters, so that it is not refused.
func TestLongReasonIsCut(t *testing.T) {
	var sent notification
	n, _ := served(t, func(_ int, r *http.Request) (int, string, error) {
		return 200, "{}", json.NewDecoder(r.Body).Decode(&sent)
	})
	if err := n.Failed(t.Context(), "\xff"+strings.Repeat("ä", maxReason)); err != nil {
		t.Fatal(err)
	}
	if got := len(sent.Message); got != maxReason-1 || !utf8.ValidString(sent.Message) {
		t.Errorf("the message has %d bytes, want %d", got, maxReason-1)
	}
}

// P3: answers of 500 and above, lost connections and tries without an answer are tried again after
// 100, 200 and 400 ms; anything else is not.
func TestTries(t *testing.T) {
	const ms = time.Millisecond
	lost := errors.New("connection refused")
	always := func(status int, body string, err error) answer {
		return func(int, *http.Request) (int, string, error) { return status, body, err }
	}
	for name, test := range map[string]struct {
		answer answer
		tries  []time.Duration
		want   string // the error; "": none
	}{
		"200": {always(200, "{}", nil), []time.Duration{0}, ""},
		"lost twice": {func(try int, _ *http.Request) (int, string, error) {
			if try <= 2 {
				return 0, "", lost
			}
			return 200, "{}", nil
		}, []time.Duration{0, 100 * ms, 300 * ms}, ""},
		"refused at the second try": {func(try int, _ *http.Request) (int, string, error) {
			return []int{503, 409}[try-1], `{"error":"says the supervisor"}`, nil
		}, []time.Duration{0, 100 * ms}, "readiness: ready: 409 Conflict: says the supervisor"},
		"lost": {
			always(0, "", lost),
			[]time.Duration{0, 100 * ms, 300 * ms, 700 * ms},
			`readiness: ready: Post "http://127.0.0.1:9200/v2/internal/workers/ready": connection refused`,
		},
		"500":      {always(500, "", nil), []time.Duration{0, 100 * ms, 300 * ms, 700 * ms}, "readiness: ready: 500 Internal Server Error"},
		"silent":   {hang, []time.Duration{0, 5100 * ms, 10300 * ms, 15700 * ms}, "readiness: ready: no answer within 5s"},
		"400":      {always(400, `{"error":"vram_used_bytes: must not be 0"}`, nil), []time.Duration{0}, "readiness: ready: 400 Bad Request: vram_used_bytes: must not be 0"},
		"499":      {always(499, "", nil), []time.Duration{0}, "readiness: ready: 499"},
		"no JSON":  {always(404, "404 page not found\n", nil), []time.Duration{0}, "readiness: ready: 404 Not Found: 404 page not found"},
		"too long": {always(400, `{"error":"`+strings.Repeat("ä", maxBody)+`"}`, nil), []time.Duration{0}, `readiness: ready: 400 Bad Request: {"error":"` + strings.Repeat("ä", 507)},
		"204":      {always(204, "", nil), []time.Duration{0}, "readiness: ready: 204 No Content"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, tries := served(t, test.answer)
				err := n.Ready(t.Context(), offer)
				if got := errorText(err); got != test.want {
					t.Errorf("Ready = %s, want %s", got, test.want)
				}
				if fmt.Sprint(*tries) != fmt.Sprint(test.tries) {
					t.Errorf("tries after %v, want %v", *tries, test.tries)
				}
				if errors.Is(err, context.DeadlineExceeded) {
					t.Error("the error looks like the end of the caller's context")
				}
			})
		})
	}
}

func errorText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// A caller can tell what the supervisor answered from what kept it from answering.
func TestStatusError(t *testing.T) {
	n, _ := served(t, func(int, *http.Request) (int, string, error) { return 409, `{"error":"taken"}`, nil })
	if got, ok := errors.AsType[*StatusError](n.Failed(t.Context(), "")); !ok || *got != (StatusError{409, "taken"}) {
		t.Errorf("Failed = %v, want status 409 and the message taken", got)
	}
}

// The end of ctx ends a call: while it waits for an answer, for the next try or for its turn. The
// error says what was wrong before.
func TestContextEndsACall(t *testing.T) {
	busy := func(int, *http.Request) (int, string, error) { return 503, "", nil }
	for name, test := range map[string]struct {
		answer answer
		after  time.Duration
		want   string
	}{
		"before the call":    {busy, 0, "readiness: draining: context deadline exceeded"},
		"without an answer":  {hang, time.Second, "readiness: draining: context deadline exceeded"},
		"between two tries":  {busy, 150 * time.Millisecond, "readiness: draining: context deadline exceeded; before that: 503 Service Unavailable"},
		"at the second try":  {hang, 7 * time.Second, "readiness: draining: context deadline exceeded; before that: no answer within 5s"},
		"when it is refused": {func(int, *http.Request) (int, string, error) { return 401, "", nil }, time.Second, "readiness: draining: 401 Unauthorized"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				n, _ := served(t, test.answer)
				ctx, cancel := context.WithTimeout(t.Context(), test.after)
				defer cancel()
				err := n.Draining(ctx)
				if got := errorText(err); got != test.want {
					t.Errorf("Draining = %q, want %q", got, test.want)
				}
				if _, refused := errors.AsType[*StatusError](err); !errors.Is(err, context.DeadlineExceeded) && !refused {
					t.Errorf("Draining = %v, which is not the error of the context", err)
				}
			})
		})
	}
}

// Calls take turns: what is said last arrives last, although the first call has to try again.
func TestCallsTakeTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var arrived []string
		n, _ := served(t, func(try int, r *http.Request) (int, string, error) {
			var got notification
			if err := json.NewDecoder(r.Body).Decode(&got); err != nil || try <= 2 {
				return 503, "", err
			}
			arrived = append(arrived, got.Status)
			return 200, "{}", nil
		})
		var calls sync.WaitGroup
		calls.Go(func() {
			if err := n.Ready(t.Context(), offer); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := n.Failed(ctx, ""); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("Failed = %v, want the error of its context", err)
		}
		if err := n.Draining(t.Context()); err != nil {
			t.Error(err)
		}
		calls.Wait()
		if got := strings.Join(arrived, " "); got != "ready draining" {
			t.Errorf("arrived: %s, want ready, draining", got)
		}
	})
}

// The token goes to the address of the pool alone: no redirect is followed, no proxy is used, and
// no error or log has it.
func TestTokenStaysHere(t *testing.T) {
	elsewhere := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the redirect was followed") }))
	defer elsewhere.Close()
	tries := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		tries++
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(http.StatusTemporaryRedirect)
		_, _ = io.WriteString(w, "you sent "+r.Header.Get("Authorization"))
	}))
	defer server.Close()
	asPool(t, server.URL)
	n := newNotifier(t)
	err := n.Ready(t.Context(), offer)
	if got, ok := errors.AsType[*StatusError](err); !ok || *got != (StatusError{307, "you sent Bearer [token]"}) || tries != 1 {
		t.Errorf("Ready = %v after %d tries, want status 307 after one", err, tries)
	}
	server.Close()
	if err := n.Failed(t.Context(), "gone"); err == nil || strings.Contains(err.Error(), secret) {
		t.Errorf("Failed = %v, want an error without the token", err)
	}
	if text := fmt.Sprintf("%v %+v %#v %+v", n, n, n, *n); strings.Contains(text, secret) {
		t.Errorf("the printed Notifier has the token: %s", text)
	}
	if n.client.Transport.(*http.Transport).Proxy != nil {
		t.Error("the client may use a proxy")
	}
}

func TestFromEnv(t *testing.T) {
	for name, test := range map[string]struct {
		set  map[string]string
		want string // in the error; "": none
	}{
		"all":            {nil, ""},
		"no GPU":         {map[string]string{VarGPUDevice: ""}, ""},
		"IPv6":           {map[string]string{VarPoolURL: "http://[::1]:9200/base"}, ""},
		"no pool":        {map[string]string{VarPoolURL: "", VarPoolToken: ""}, ErrNoPool.Error()},
		"no token":       {map[string]string{VarPoolToken: ""}, VarPoolToken + " is not set"},
		"no pool id":     {map[string]string{VarPoolID: ""}, VarPoolID + " is not set"},
		"no worker id":   {map[string]string{VarWorkerID: ""}, VarWorkerID + " is not set"},
		"no scheme":      {map[string]string{VarPoolURL: "127.0.0.1:9200"}, VarPoolURL + ` is "127.0.0.1:9200"`},
		"another scheme": {map[string]string{VarPoolURL: "ftp://127.0.0.1"}, VarPoolURL},
		"no host":        {map[string]string{VarPoolURL: "http://:9200"}, VarPoolURL},
		"user":           {map[string]string{VarPoolURL: "http://me@127.0.0.1:9200"}, VarPoolURL},
		"query":          {map[string]string{VarPoolURL: "http://127.0.0.1:9200?a=b"}, VarPoolURL},
		"fragment":       {map[string]string{VarPoolURL: "http://127.0.0.1:9200#a"}, VarPoolURL},
		"bad token":      {map[string]string{VarPoolToken: secret + "\n"}, VarPoolToken + " has a character"},
		"bad GPU":        {map[string]string{VarGPUDevice: "-1"}, VarGPUDevice + ` is "-1"`},
	} {
		t.Run(name, func(t *testing.T) {
			asPool(t, "http://127.0.0.1:9200")
			for variable, value := range test.set {
				t.Setenv(variable, value)
			}
			n, err := FromEnv()
			switch {
			case test.want == "" && (err != nil || n.PoolID() != "p0" || n.WorkerID() != "p0/1"):
				t.Errorf("FromEnv = %v, %v, want the pool p0 and the worker p0/1", n, err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want) || strings.Contains(err.Error(), secret)):
				t.Errorf("FromEnv: %v, want an error with %q and without the token", err, test.want)
			case errors.Is(err, ErrNoPool) != (name == "no pool"):
				t.Errorf("FromEnv: %v, and errors.Is(err, ErrNoPool) is %v", err, errors.Is(err, ErrNoPool))
			}
		})
	}
}
