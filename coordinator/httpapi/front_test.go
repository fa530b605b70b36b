package httpapi

import (
	"context"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// countingDoor is a door that counts who is inside, and keeps the credentials and the trace context
// that it was shown.
type countingDoor struct {
	fixedHolder
	inside, admitted int
	shown            metadata.MD
}

func (d *countingDoor) Admit(ctx context.Context, route, task string) (context.Context, func(), error) {
	d.inside++
	d.admitted++
	d.shown, _ = metadata.FromIncomingContext(ctx)
	in, _, err := d.fixedHolder.Admit(ctx, route, task)
	return in, func() { d.inside-- }, err
}

// newAPIWithDoor returns an API behind a door for the holder of attempt 1 of a task, and the path
// of the task.
func newAPIWithDoor(cfg Config) (api http.Handler, door *countingDoor, task string) {
	door = &countingDoor{}
	door.holder.Ticket.Task, door.holder.Ticket.Attempt = lease.TaskID{Space: 1, Seq: 1}, 1
	cfg.Door, cfg.MaxBody, cfg.Logger, cfg.Answered = door, 1000, slog.New(slog.DiscardHandler), func(string, int) {}
	if cfg.Misread == nil {
		cfg.Misread = func(context.Context, string, proto.Message, string, string) error {
			return status.Error(codes.InvalidArgument, "misread")
		}
	}
	return New(cfg, http.NewServeMux()), door, "/v1/tasks/" + door.holder.Ticket.Task.String()
}

// H2: the door releases a caller that it has admitted at the end of the request, however the
// request ends. The door sees the credential, and the call has the trace context of the request.
func TestAdmittedCallerIsReleased(t *testing.T) {
	t.Attr("rules", "H2")
	api, door, task := newAPIWithDoor(Config{Calls: &recordingCalls{}})
	for _, c := range []struct {
		path, body string
		want       int
	}{
		{"/v1/tasks", `{"queue": "q"}`, 201},
		{"/v1/tasks", `{"queue": 1}`, 400},
		{"/v1/tasks", `{"queue": "q", "affinity": {"key": "k", "mode": "UNSPECIFIED"}}`, 400},
		{task + ":cancel", ``, 200},
		{task + ":retry", ``, 200},
		{task + ":adopt", ``, 200},
		{"/v1/tasks:batchSubmit", `{"tasks": [{"queue": "q"}]}`, 200},
		{"/v1/tasks:batchSubmit", `{"tasks": [{"queue": "q", "payload": 1, "payloadBase64": "MQ=="}]}`, 400},
		{"/v1/leases", `{`, 400},
		{task + "/started", `{"attempt": 1}`, 200},
		{task + "/started", `{"attempt": 2}`, 403},
		{task + "1/started", `{"attempt": 1}`, 403},
	} {
		before := door.admitted
		r := httptest.NewRequest(http.MethodPost, c.path, strings.NewReader(c.body))
		r.Header.Set("Authorization", "Bearer x")
		r.Header.Set("Traceparent", "00-1-2-01")
		w := httptest.NewRecorder()
		api.ServeHTTP(w, r)
		if w.Code != c.want || door.admitted != before+1 || door.inside != 0 {
			t.Errorf("%s %s: %d, want %d; %d are still inside", c.path, c.body, w.Code, c.want, door.inside)
		}
		if !slices.Equal(door.shown.Get("authorization"), []string{"Bearer x"}) || !slices.Equal(door.shown.Get("traceparent"), []string{"00-1-2-01"}) {
			t.Errorf("%s: the door sees %v", c.path, door.shown)
		}
	}
}

// H2, T10: if a malformed report cannot be added to the history of its task, the worker gets no
// verdict.
func TestRejectedOnlyIfItIsInTheHistory(t *testing.T) {
	t.Attr("rules", "H2 T10")
	for want, err := range map[int]error{400: nil, 503: status.Error(codes.Unavailable, "stopping")} {
		api, _, task := newAPIWithDoor(Config{Rejected: func(context.Context, Holder, lease.Kind, *lease.FieldError) error { return err }})
		w := httptest.NewRecorder()
		api.ServeHTTP(w, httptest.NewRequest(http.MethodPost, task+"/completed",
			strings.NewReader(`{"attempt": 1, "outcome": "DONE"}`)))
		if w.Code != want || strings.Contains(w.Body.String(), `"verdict":"REJECTED"`) != (err == nil) {
			t.Errorf("%d %s, want %d", w.Code, w.Body, want)
		}
	}
}

// V16: work that a cancel has stopped fails with the category CANCELLED, whatever category its
// error has. If the worker sends no error, the message says that, and does not claim a cancel,
// which perhaps nobody has asked for.
func TestOutcomeCancelled(t *testing.T) {
	t.Attr("rules", "V16")
	for more, message := range map[string]string{
		``: "reported without an error", `, "error": {"message": "m"}`: "m", `, "error": {"category": "USER_CODE"}`: "",
	} {
		calls := &recordingCalls{}
		api, _, task := newAPIWithDoor(Config{Calls: calls})
		body := `{"attempt": 1, "outcome": "CANCELLED"` + more + `}`
		api.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(http.MethodPost, task+"/completed", strings.NewReader(body)))
		m, _ := calls.request.(*lessorv1.FailRequest)
		if e := m.GetError(); e.GetCategory() != lessorv1.ErrorCategory_ERROR_CATEGORY_CANCELLED || e.GetMessage() != message {
			t.Errorf("%s becomes %v", body, calls.request)
		}
	}
}

// A body of exactly the limit is read, also if its caller asks first.
func TestLongestBody(t *testing.T) {
	api, _, _ := newAPIWithDoor(Config{Calls: &recordingCalls{}})
	for more, want := range map[int]int{0: 201, 1: 413} {
		body := `{"queue": "q", "payload": "`
		body += strings.Repeat("x", 1000+more-len(body)-2) + `"}`
		for _, expect := range []string{"", "100-continue"} {
			r := httptest.NewRequest(http.MethodPost, "/v1/tasks", strings.NewReader(body))
			r.Header.Set("Expect", expect)
			w := httptest.NewRecorder()
			api.ServeHTTP(w, r)
			if w.Code != want {
				t.Errorf("%d bytes, Expect %q: %d, want %d", len(body), expect, w.Code, want)
			}
		}
	}
}

// A task whose requirements name no resources has an empty object of resources, as one without
// requirements.
func TestResourcesOfAnAssignment(t *testing.T) {
	for _, needs := range []*lessorv1.Requirements{nil, {Runtimes: []string{"go"}}} {
		if g := assignmentOf(&lessorv1.Assignment{Task: &lessorv1.Task{Spec: &lessorv1.TaskSpec{Requirements: needs}}}); g.Resources == nil {
			t.Errorf("%v has the resources null", needs)
		}
	}
}
