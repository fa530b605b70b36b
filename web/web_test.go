package web

import (
	"context"
	"fmt"
	"html"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
	"github.com/lessor-dev/lessor/lease"
)

// answers is a coordinator that gives the same answer to all calls of a method.
type answers struct {
	grpc.ClientConnInterface
	by      map[string]proto.Message
	refuses error
	only    string                                             // the method whose calls are refused; empty: all
	reply   func(request proto.Message) (proto.Message, error) // an answer to this request; nil: that in by. May be nil
	asked   proto.Message                                      // the last request
	calls   []proto.Message                                    // all requests
	asks    func()                                             // called before each answer; may be nil
}

func (a *answers) Invoke(_ context.Context, method string, request, answer any, _ ...grpc.CallOption) error {
	a.asked = proto.Clone(request.(proto.Message)) // the page may go on with it
	a.calls = append(a.calls, a.asked)
	if a.asks != nil {
		a.asks()
	}
	if a.refuses != nil && (a.only == "" || a.only == method) {
		return a.refuses
	}
	if a.reply != nil {
		m, err := a.reply(a.asked)
		if err != nil {
			return err
		}
		if m != nil {
			proto.Merge(answer.(proto.Message), m)
			return nil
		}
	}
	if a.by[method] != nil {
		proto.Merge(answer.(proto.Message), a.by[method])
	}
	return nil
}

// full returns answers in which every field is set. A text is the name of its field as markup,
// which must not come out as such.
func full() *answers {
	a := &answers{by: map[string]proto.Message{
		lessorv1.AdminService_GetStatus_FullMethodName:   &lessorv1.GetStatusResponse{},
		lessorv1.AdminService_ListQueues_FullMethodName:  &lessorv1.ListQueuesResponse{},
		lessorv1.AdminService_GetQueue_FullMethodName:    &lessorv1.GetQueueResponse{},
		lessorv1.AdminService_ListWorkers_FullMethodName: &lessorv1.ListWorkersResponse{},
		lessorv1.AdminService_GetWorker_FullMethodName:   &lessorv1.GetWorkerResponse{},
		lessorv1.TaskService_ListTasks_FullMethodName:    &lessorv1.ListTasksResponse{},
		lessorv1.TaskService_GetTask_FullMethodName:      &lessorv1.GetTaskResponse{},
		lessorv1.TaskService_ExplainTask_FullMethodName:  &lessorv1.ExplainTaskResponse{},
	}}
	for _, m := range a.by {
		fill(m.ProtoReflect())
	}
	return a
}

// text is what a field of this name has.
func text(field string) string { return `<b id="` + field + `">'&` }

// fill sets every field of a message; of those that exclude each other the last one.
func fill(m protoreflect.Message) {
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		switch {
		case f.IsMap():
			value := m.NewField(f)
			value.Map().Set(protoreflect.ValueOfString(text(string(f.Name())+" key")).MapKey(),
				filled(f.MapValue(), func() protoreflect.Value { return value.Map().NewValue() }))
			m.Set(f, value)
		case f.IsList():
			value := m.NewField(f)
			for range 2 {
				value.List().Append(filled(f, value.List().NewElement))
			}
			m.Set(f, value)
		default:
			m.Set(f, filled(f, func() protoreflect.Value { return m.NewField(f) }))
		}
	}
}

func filled(f protoreflect.FieldDescriptor, empty func() protoreflect.Value) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.MessageKind:
		value := empty()
		fill(value.Message())
		return value
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(text(string(f.Name())))
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(text(string(f.Name()))))
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(f.Enum().Values().Get(1).Number())
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(true)
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(0.5)
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(7)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(7)
	case protoreflect.Uint64Kind:
		return protoreflect.ValueOfUint64(7)
	default:
		return protoreflect.ValueOfUint32(7)
	}
}

// get asks for a path.
func get(t *testing.T, a *answers, path string) *httptest.ResponseRecorder {
	t.Helper()
	w := httptest.NewRecorder()
	serve(a).ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
	return w
}

// serve returns the pages of a coordinator, for everybody.
func serve(a *answers) http.Handler {
	mux := http.NewServeMux()
	Register(mux, Config{
		Calls: a, Admit: func(page http.Handler, _ Refuse) http.Handler { return page },
		Logger: slog.New(slog.DiscardHandler),
	})
	return mux
}

// What is no page is answered with a page that says so, without a call.
func TestUnknownPaths(t *testing.T) {
	for _, path := range []string{"/ui/nothing", "/ui/tasks/t1/x", "/ui/style", "/ui/queue/?workspace=%ff"} {
		a := &answers{}
		w := get(t, a, path)
		body := w.Body.String()
		if w.Code != http.StatusNotFound || w.Header().Get("Content-Type") != "text/html; charset=utf-8" || !strings.Contains(body, "there is no such page") || a.asked != nil {
			t.Errorf("%s: status %d, %s, a call %v:\n%s\nwant 404, a page, and no call",
				path, w.Code, w.Header().Get("Content-Type"), a.asked, body)
		}
		if w.Header().Get("Content-Security-Policy") == "" {
			t.Errorf("%s: the page has no policy", path)
		}
	}
}

// A page of another site may lead a reader to ours, and embed no part of it: each would be a call
// of the reader's tenant. Programs say nothing of sites.
func TestOtherSitesCannotEmbedPages(t *testing.T) {
	for _, c := range []struct {
		site, mode, dest string
		want             int
	}{
		{"", "", "", http.StatusOK},
		{"none", "navigate", "document", http.StatusOK},
		{"same-origin", "cors", "empty", http.StatusOK},
		{"cross-site", "navigate", "document", http.StatusOK},
		{"cross-site", "navigate", "", http.StatusOK}, // a browser that does not say for what
		{"cross-site", "navigate", "iframe", http.StatusForbidden},
		{"cross-site", "no-cors", "image", http.StatusForbidden},
		{"cross-site", "cors", "empty", http.StatusForbidden},
		{"cross-site", "", "", http.StatusForbidden},
		{"same-site", "no-cors", "image", http.StatusForbidden}, // of another host of the domain, or another port
	} {
		for _, path := range append([]string{"/ui/style.css", "/ui/page.js"}, all...) {
			a := full()
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			for name, value := range map[string]string{"Sec-Fetch-Site": c.site, "Sec-Fetch-Mode": c.mode, "Sec-Fetch-Dest": c.dest} {
				if value != "" {
					r.Header.Set(name, value)
				}
			}
			serve(a).ServeHTTP(w, r)
			if w.Code != c.want || c.want != http.StatusOK && a.asked != nil {
				t.Errorf("%s for %+v: status %d, a call %v; want %d, without a call if refused", path, c, w.Code, a.asked, c.want)
			}
		}
	}
}

// all has every page.
var all = []string{
	"/ui/", "/ui/queue?name=q", "/ui/tasks", "/ui/tasks/t1", "/ui/run?id=r", "/ui/workers?of=all",
	"/ui/worker?name=w",
}

// Every page can be made of answers that are empty, and of answers in which every field is set, in
// each state of a task. No text comes out as markup, and a browser is told to run nothing that is
// not ours.
func TestPages(t *testing.T) {
	for state := range lessorv1.TaskState_name {
		whole := full()
		whole.by[lessorv1.TaskService_GetTask_FullMethodName].(*lessorv1.GetTaskResponse).Task.State = lessorv1.TaskState(state)
		for _, path := range all {
			w := get(t, whole, path)
			if w.Code != http.StatusOK || strings.Contains(w.Body.String(), "<b id=") || !strings.HasSuffix(w.Body.String(), "</html>\n") {
				t.Errorf("%s: status %d, want 200 and a whole page in which no text of a task is markup:\n%s",
					path, w.Code, w.Body)
			}
			if policy := w.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
				t.Errorf("%s: the policy is %q", path, policy)
			}
			for name, want := range map[string]string{
				"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
				"Cross-Origin-Resource-Policy": "same-origin", "Content-Type": "text/html; charset=utf-8",
			} {
				if got := w.Header().Get(name); got != want {
					t.Errorf("%s: %s is %q, want %q", path, name, got, want)
				}
			}
		}
	}
	bare := &answers{by: map[string]proto.Message{
		lessorv1.AdminService_GetQueue_FullMethodName: &lessorv1.GetQueueResponse{Queue: &lessorv1.Queue{}},
		lessorv1.TaskService_GetTask_FullMethodName:   &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Spec: &lessorv1.TaskSpec{}}},
	}}
	for _, path := range all {
		if w := get(t, bare, path); w.Code != http.StatusOK {
			t.Errorf("%s with empty answers: status %d, want 200:\n%s", path, w.Code, w.Body)
		}
	}
}

// The pages of a task and of a worker show every text that there is about them, except for those
// that name what people have no use for.
func TestPagesShowEveryText(t *testing.T) {
	notShown := []string{
		"tenant_id", "session_id", // there is one tenant, and the page of the worker has the session
		"channel", "mime_type", // of what a task prints
		"metadata key", "scope", // of artifacts and resources
		"text",              // excluded by data, which is shown
		"worker_id", "name", // of a worker: the page has the name from its path
		"pool_id", // nothing depends on it
	}
	for path, of := range map[string]proto.Message{
		"/ui/tasks/t1":      &lessorv1.Task{},
		"/ui/worker?name=w": &lessorv1.Worker{},
	} {
		whole := full()
		task := whole.by[lessorv1.TaskService_GetTask_FullMethodName].(*lessorv1.GetTaskResponse).Task
		task.State = lessorv1.TaskState_TASK_STATE_COMPLETED
		body := get(t, whole, path).Body.String()
		for _, name := range textsOf(of.ProtoReflect().Descriptor(), nil) {
			if shown := strings.Contains(body, html.EscapeString(text(name))); !shown && !slices.Contains(notShown, name) {
				t.Errorf("%s does not show %s", path, name)
			}
		}
	}
}

// textsOf returns the names of all text fields of a message and of those within it.
func textsOf(m protoreflect.MessageDescriptor, seen []protoreflect.FullName) (names []string) {
	if slices.Contains(seen, m.FullName()) {
		return nil
	}
	seen = append(seen, m.FullName())
	fields := m.Fields()
	for i := range fields.Len() {
		switch f := fields.Get(i); {
		case f.IsMap():
			names = append(names, string(f.Name())+" key")
		case f.Kind() == protoreflect.MessageKind:
			names = append(names, textsOf(f.Message(), seen)...)
		case f.Kind() == protoreflect.StringKind, f.Kind() == protoreflect.BytesKind:
			names = append(names, string(f.Name()))
		}
	}
	return names
}

// A call that is refused, or a query that is wrong, is told with the status of HTTP for it.
func TestRefusals(t *testing.T) {
	for code, want := range map[codes.Code]int{
		codes.NotFound: 404, codes.InvalidArgument: 400, codes.PermissionDenied: 403, codes.Unauthenticated: 401,
		codes.ResourceExhausted: 429,
		codes.OutOfRange:        400, codes.FailedPrecondition: 409, codes.Unavailable: 503, codes.Internal: 500,
	} {
		for _, path := range all {
			if code == codes.NotFound && strings.HasPrefix(path, "/ui/worker?") {
				continue // TestWorkerWithoutASession
			}
			w := get(t, &answers{refuses: status.Error(code, "because <b>")}, path)
			if w.Code != want || !strings.Contains(w.Body.String(), `<p id="why">because &lt;b&gt;</p>`) {
				t.Errorf("%s, refused with %v: status %d, want %d and why:\n%s", path, code, w.Code, want, w.Body)
			}
		}
	}
	for method, paths := range map[string][]string{
		lessorv1.AdminService_GetStatus_FullMethodName:   {"/ui/"},
		lessorv1.AdminService_ListQueues_FullMethodName:  {"/ui/"},
		lessorv1.AdminService_GetQueue_FullMethodName:    {"/ui/queue?name=q"},
		lessorv1.AdminService_ListWorkers_FullMethodName: {"/ui/queue?name=q", "/ui/workers"},
		lessorv1.TaskService_GetTask_FullMethodName:      {"/ui/tasks/t1"},
		lessorv1.TaskService_ExplainTask_FullMethodName:  {"/ui/tasks/t1"},
	} {
		a := full()
		a.refuses, a.only = status.Error(codes.NotFound, "it is gone"), method
		for _, path := range paths {
			if w := get(t, a, path); w.Code != http.StatusNotFound || !strings.Contains(w.Body.String(), "it is gone") {
				t.Errorf("%s, %s refused: status %d, want 404:\n%s", path, method, w.Code, w.Body)
			}
		}
	}
	for query, why := range map[string]string{
		"state=GONE": "state: there is no state GONE", "state=UNSPECIFIED": "state:", "label=x": "label: write key=value",
		"queue=a;b": "query: ", "queue=%zz": "query: ", "queue=%ff": "queue: must be UTF-8", "state=%ff": "state: must be UTF-8", "%ff=x": "\uFFFD: must be UTF-8",
		"queue=%c3&queue=%a9": "queue: must be UTF-8", "end_reason=LEASE_EXPIRED": "end_reason: no task ends for the reason LEASE_EXPIRED",
		"ended_since=yesterday": "ended_since: &#34;yesterday&#34; is neither a time", "ended_until=x": "ended_until: ", "since=1d": "since: ", "until=0001": "until: ",
		"order=Oldest": "order: is newest or oldest, and not Oldest", "order=newest&order=oldest": "order: is there more than once",
		"since=1h": "since: 1h is in the future; -1h is an hour ago",
	} {
		a := &answers{}
		if w := get(t, a, "/ui/tasks?"+query); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), why) || a.asked != nil {
			t.Errorf("%s: status %d, want 400 with %q and no call:\n%s", query, w.Code, why, w.Body)
		}
	}
}

// Page.js asks again for every page, also for that of a task that is COMPLETED: somebody may delete
// it, and its ages grow.
func TestWhatIsKeptUpToDate(t *testing.T) {
	whole := full()
	task := whole.by[lessorv1.TaskService_GetTask_FullMethodName].(*lessorv1.GetTaskResponse).Task
	for state := range lessorv1.TaskState_name {
		task.State = lessorv1.TaskState(state)
		for _, path := range all {
			if body := get(t, whole, path).Body.String(); !regexp.MustCompile(`<main data-live="\d+">`).MatchString(body) {
				t.Errorf("%s, of a task that is %v, is not kept up to date", path, task.State)
			}
		}
	}
}

// A page that could not be shown is asked for again if what it lacks may come: a worker that will
// connect, room in a quota, a coordinator that starts. A mistake in the address stays, and refused
// credentials count against their sender.
func TestErrorsThatPass(t *testing.T) {
	for code, passes := range map[codes.Code]bool{
		codes.NotFound: true, codes.ResourceExhausted: true, codes.Unavailable: true, codes.Internal: true,
		codes.InvalidArgument: false, codes.PermissionDenied: false, codes.Unauthenticated: false,
	} {
		for _, path := range all {
			w := get(t, &answers{refuses: status.Error(code, "because")}, path)
			want := "<main>"
			if w.Code == http.StatusOK { // a worker without a session
				want = `<main data-live="3">`
			} else if passes {
				want = fmt.Sprintf(`<main data-live="3" data-error="%d">`, w.Code)
			}
			if !strings.Contains(w.Body.String(), want) {
				t.Errorf("%s, refused with %v, lacks %s:\n%s", path, code, want, w.Body)
			}
		}
	}
	for _, path := range []string{"/ui/nothing", "/ui/tasks?states=FAILED"} {
		if body := get(t, &answers{}, path).Body.String(); !strings.Contains(body, "<main>") {
			t.Errorf("%s is asked for again:\n%s", path, body)
		}
	}
}

// A queue stands out if its tasks wait for nobody. A worker over HTTP that is busy does not ask for
// work, so it is none of the takers.
func TestQueueThatNobodyWorksOn(t *testing.T) {
	for _, c := range []struct {
		queue *lessorv1.Queue
		alarm bool
	}{
		{&lessorv1.Queue{Ready: 1}, true},
		{&lessorv1.Queue{Ready: 1, Scheduled: 1, Blocked: 1}, true},
		{&lessorv1.Queue{Ready: 1, Leased: 1}, false},
		{&lessorv1.Queue{Ready: 1, Takers: 1}, false},
		{&lessorv1.Queue{Scheduled: 1}, false},
	} {
		a := full()
		a.by[lessorv1.AdminService_ListQueues_FullMethodName] = &lessorv1.ListQueuesResponse{Queues: []*lessorv1.Queue{c.queue}}
		body := get(t, a, "/ui/").Body.String()
		if got := strings.Contains(body, "⚠") && strings.Contains(body, `<tr class="alarm">`); got != c.alarm {
			t.Errorf("%v stands out: %v, want %v:\n%s", c.queue, got, c.alarm, body)
		}
	}
}

// Where not all queues are on a page, it says so above them, and how many of them nobody works on:
// others that stand out may be further on.
func TestQueuesOfOnePage(t *testing.T) {
	well, idle := &lessorv1.Queue{Name: "a"}, &lessorv1.Queue{Name: "b", Ready: 1}
	for _, c := range []struct {
		query, token string
		queues       []*lessorv1.Queue
		want         string
	}{
		{"", "", []*lessorv1.Queue{well, idle}, ""},
		{"", "c", []*lessorv1.Queue{well, idle, idle}, `<p class="alarm">These are not all queues, but 3 by name; with tasks and no worker: 2 of them.</p>`},
		{"?page=c", "", []*lessorv1.Queue{well}, "<p>These are not all queues, but 1 by name; with tasks and no worker: 0 of them.</p>"},
	} {
		a := full()
		a.by[lessorv1.AdminService_ListQueues_FullMethodName] = &lessorv1.ListQueuesResponse{
			Queues:        c.queues,
			NextPageToken: c.token,
		}
		body := get(t, a, "/ui/"+c.query).Body.String()
		if above, _, _ := strings.Cut(body, "<table"); strings.Contains(above, "not all queues") != (c.want != "") || !strings.Contains(above, c.want) {
			t.Errorf("/ui/%s, with %d queues and the token %q: want %q above the table:\n%s",
				c.query, len(c.queues), c.token, c.want, body)
		}
	}
}

// What is drawn has a name for those who do not see it, and the exact times can be shown without a
// mouse.
func TestWhatIsDrawnHasAName(t *testing.T) {
	drawn := 0
	for _, path := range all {
		body := get(t, full(), path).Body.String()
		for _, element := range regexp.MustCompile(`<(meter|progress)[^>]*>`).FindAllString(body, -1) {
			if drawn++; !strings.Contains(element, ` aria-label="`) {
				t.Errorf("%s: %s has no name", path, element)
			}
		}
		if !strings.Contains(body, `<label><input type="checkbox" id="exact"> exact times</label>`) {
			t.Errorf("%s has no box for exact times", path)
		}
	}
	if drawn < 3 {
		t.Errorf("%d are drawn, want those of a task, a run and workers", drawn)
	}
	if style := get(t, full(), "/ui/style.css").Body.String(); !strings.Contains(style, `body:has(#exact:checked) :is(.scroll, .facts) time::after { content: " " attr(title);`) {
		t.Error("the box shows no times")
	}
}

// The overview says how many tasks of a queue are FAILED, and links them; its page says how many
// have ended.
func TestEndedTasksOfAQueue(t *testing.T) {
	a := full()
	queue := &lessorv1.Queue{Name: "q", WorkspaceId: "ws", Completed: 31, Failed: 32, Cancelled: 33}
	a.by[lessorv1.AdminService_ListQueues_FullMethodName] = &lessorv1.ListQueuesResponse{Queues: []*lessorv1.Queue{queue}}
	a.by[lessorv1.AdminService_GetQueue_FullMethodName] = &lessorv1.GetQueueResponse{Queue: queue}
	const linked = `<a href="/ui/tasks?queue=q&amp;state=FAILED&amp;workspace=ws">32</a>`
	if body := get(t, a, "/ui/").Body.String(); !strings.Contains(body, linked) {
		t.Errorf("the overview lacks %s:\n%s", linked, body)
	}
	const ended = "31 <small>completed</small> " + linked + " <small>failed</small> 33 <small>cancelled</small>"
	if body := get(t, a, "/ui/queue?name=q&workspace=ws").Body.String(); !strings.Contains(body, ended) {
		t.Errorf("the page of the queue lacks %s:\n%s", ended, body)
	}
	queue.Failed = 0
	if body := get(t, a, "/ui/").Body.String(); strings.Contains(body, "state=FAILED") || !strings.Contains(body, `<td class="n">0</td>`) {
		t.Errorf("no task is FAILED, and some are linked:\n%s", body)
	}
}

// The overview says what a full disk has stopped.
func TestFullDiskStandsOut(t *testing.T) {
	for _, c := range []struct {
		full, stopped bool
		text          string
	}{{false, false, ""}, {true, false, "The disk is nearly full"}, {true, true, "none are granted"}} {
		a := full()
		a.by[lessorv1.AdminService_GetStatus_FullMethodName] = &lessorv1.GetStatusResponse{
			DiskFull:      c.full,
			GrantsStopped: c.stopped,
		}
		body := get(t, a, "/ui/").Body.String()
		if n := strings.Count(body, "The disk is "); (n == 1) != c.full || !strings.Contains(body, c.text) {
			t.Errorf("disk full %v, grants stopped %v: want one line with %q:\n%s", c.full, c.stopped, c.text, body)
		}
	}
}

// The overview says that the file of the store is gone.
func TestStoreThatIsGoneStandsOut(t *testing.T) {
	for _, gone := range []bool{false, true} {
		a := full()
		a.by[lessorv1.AdminService_GetStatus_FullMethodName] = &lessorv1.GetStatusResponse{StoreGone: gone}
		if body := get(t, a, "/ui/").Body.String(); strings.Contains(body, "moved or removed") != gone {
			t.Errorf("store gone %v:\n%s", gone, body)
		}
	}
}

// A queue shows its workers, not those of a queue of the same name in another workspace. Its tasks
// are linked by state, in the order of a life.
func TestQueue(t *testing.T) {
	a := full()
	a.by[lessorv1.AdminService_ListWorkers_FullMethodName] = &lessorv1.ListWorkersResponse{Workers: []*lessorv1.Worker{
		{WorkerId: "ours", WorkspaceId: "ws"}, {WorkerId: "theirs", WorkspaceId: "default"},
	}}
	body := get(t, a, "/ui/queue?name=q&workspace=ws").Body.String()
	if !strings.Contains(body, "ours") || strings.Contains(body, "theirs") {
		t.Errorf("the workers are not those of the workspace:\n%s", body)
	}
	const others, none = "There may be more", "No worker has a session"
	for token, want := range map[string]string{"": none, "more": others} {
		a.by[lessorv1.AdminService_ListWorkers_FullMethodName] = &lessorv1.ListWorkersResponse{
			Workers: []*lessorv1.Worker{{WorkerId: "theirs", WorkspaceId: "default"}}, NextPageToken: token,
		}
		got := get(t, a, "/ui/queue?name=q&workspace=ws").Body.String()
		if strings.Contains(got, none) != (want == none) || strings.Contains(got, others) != (want == others) {
			t.Errorf("with only foreign workers and the token %q, it does not say %q:\n%s", token, want, got)
		}
	}
	a.reply = func(request proto.Message) (proto.Message, error) {
		if ask, ok := request.(*lessorv1.ListWorkersRequest); !ok || ask.GetPageToken() != "" {
			return nil, nil
		}
		return &lessorv1.ListWorkersResponse{
			Workers:       []*lessorv1.Worker{{WorkerId: "theirs", WorkspaceId: "default"}},
			NextPageToken: "more",
		}, nil
	}
	a.by[lessorv1.AdminService_ListWorkers_FullMethodName] = &lessorv1.ListWorkersResponse{Workers: []*lessorv1.Worker{{WorkerId: "ours", WorkspaceId: "ws"}}}
	if got := get(t, a, "/ui/queue?name=q&workspace=ws").Body.String(); !strings.Contains(got, "ours") || strings.Contains(got, others) {
		t.Errorf("behind a page of foreign workers, those of the workspace are not found:\n%s", got)
	}
	at := 0
	for _, state := range []string{"SCHEDULED", "READY", "LEASED", "RUNNING", "CANCELLING", "COMPLETED", "FAILED", "CANCELLED"} {
		next := strings.Index(body[at:], "state="+state+"&amp;")
		if next < 0 {
			t.Fatalf("%s is not linked after the states before it:\n%s", state, body)
		}
		at += next
	}
	if strings.Contains(body, "state=UNSPECIFIED") {
		t.Errorf("a state that no task has is linked:\n%s", body)
	}
}

// Times are shown by how far they are from now.
func TestWhen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for d, want := range map[time.Duration]string{
			0: "now", 999 * time.Millisecond: "now", -999 * time.Millisecond: "now", time.Second: "in 1s", -time.Second: "1s ago",
			3 * time.Minute: "in 3m", 119 * time.Second: "in 1m59s", -5 * time.Hour: "5h ago", -72 * time.Hour: "3d ago",
		} {
			at := timestamppb.New(time.Now().Add(d))
			if got := string(when(at)); !strings.HasSuffix(got, ">"+want+"</time>") || !strings.Contains(got, `title="`+moment(at)+`"`) {
				t.Errorf("%v from now: %s, want %s and the time as the title", d, got, want)
			}
		}
		if got := moment(timestamppb.New(time.Now())); got != "2000-01-01 00:00:00.000 UTC" {
			t.Errorf("now is %s", got)
		}
		if when(nil) != "" || moment(nil) != "" || span(nil) != "" {
			t.Error("what is absent is shown, want nothing")
		}
		if got := span(durationpb.New(90 * time.Second)); got != "1m30s" {
			t.Errorf("90 s is %s, want 1m30s", got)
		}
	})
}

// In what the coordinator explains, the ids of tasks are links, and nothing else is: texts may have
// words of producers in them.
func TestIDsInExplanationsAreLinks(t *testing.T) {
	const id = "t0000200000000001"
	linkTo := `<a class="id" href="/ui/tasks/` + id + `">` + id + `</a>`
	other := lease.TaskID{Space: 1, Seq: 31}.String() // ends in the last letter of ids
	for text, want := range map[string]string{
		"held by " + id + ", worker w":    "held by " + linkTo + ", worker w",
		id + " and " + id:                 linkTo + " and " + linkTo,
		"<b>" + id + `</b> "q"`:           "&lt;b&gt;" + linkTo + "&lt;/b&gt; &#34;q&#34;",
		"x" + id + " " + id + "0 t00":     "x" + id + " " + id + "0 t00",
		"held by " + other:                `held by <a class="id" href="/ui/tasks/` + other + `">` + other + `</a>`,
		"t000020000000000i too":           "t000020000000000i too",
		`<a href="javascript:1">x</a> &t`: "&lt;a href=&#34;javascript:1&#34;&gt;x&lt;/a&gt; &amp;t",
	} {
		if got := string(linked(text)); got != want {
			t.Errorf("%s is %s, want %s", text, got, want)
		}
	}
	a := full()
	a.by[lessorv1.TaskService_ExplainTask_FullMethodName] = &lessorv1.ExplainTaskResponse{
		Summary: "READY: behind " + id, Findings: []*lessorv1.Finding{{}, {Message: "also " + id, Remedy: id + " ends"}},
	}
	if body := get(t, a, "/ui/tasks/"+id).Body.String(); strings.Count(body, linkTo) < 3 {
		t.Errorf("the page has fewer than 3 links to %s:\n%s", id, body)
	}
}

// The form selects tasks as ListTasks does, and the next page has the same filter.
func TestFilter(t *testing.T) {
	a := full()
	w := get(t, a, "/ui/tasks?workspace=ws&queue=q&state=FAILED&state=&type=t&run=r&worker=w&concurrency_key=k&idempotency_key=i&host_node=h&label=a=b=c&page=p"+
		"&end_reason=START_TIMEOUT,resource_gone&error_category=timeout&since=2026-01-01&until=2026-01-02T00:00:00%2B01:00&ended_since=2026-01-03+04:05:06.007+UTC&ended_until=2026-01-04+05:06")
	at := func(days, hours, minutes, seconds, ms int) *timestamppb.Timestamp {
		return timestamppb.New(time.Date(2026, 1, days, hours, minutes, seconds, ms*1e6, time.UTC))
	}
	want := &lessorv1.ListTasksRequest{PageSize: rowsPerPage, PageToken: "p", NewestFirst: true, Filter: &lessorv1.TaskFilter{
		WorkspaceId: "ws", Queue: "q", States: []lessorv1.TaskState{lessorv1.TaskState_TASK_STATE_FAILED}, Type: "t",
		RunId: "r", WorkerId: "w", ConcurrencyKey: "k", IdempotencyKey: "i",
		HostNodeId: "h", Labels: map[string]string{"a": "b=c"},
		Reasons:         []lessorv1.Reason{lessorv1.Reason_REASON_START_TIMEOUT, lessorv1.Reason_REASON_RESOURCE_GONE},
		ErrorCategories: []lessorv1.ErrorCategory{lessorv1.ErrorCategory_ERROR_CATEGORY_TIMEOUT},
		CreatedAfter:    at(1, 0, 0, 0, 0), CreatedBefore: at(1, 23, 0, 0, 0), FinishedAfter: at(3, 4, 5, 6, 7),
		FinishedBefore: at(4, 5, 6, 0, 0),
	}}
	if !proto.Equal(a.asked, want) {
		t.Errorf("it asks for %v, want %v", a.asked, want)
	}
	href := regexp.MustCompile(`<a href="([^"]*)">next page`).FindStringSubmatch(w.Body.String())
	if href == nil {
		t.Fatalf("there is no next page:\n%s", w.Body)
	}
	get(t, a, html.UnescapeString(href[1]))
	if want.PageToken = text("next_page_token"); !proto.Equal(a.asked, want) {
		t.Errorf("the next page is %v, want %v", a.asked, want)
	}
}

// A span is counted from when the first page was asked for: on all pages the filter is the same.
// Its form has what was written. A list may end in the future.
func TestSpansOfAFilter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := full()
		body := get(t, a, "/ui/tasks?ended_since=-1h&ended_until=-10m").Body.String()
		want := proto.Clone(a.asked).(*lessorv1.ListTasksRequest).GetFilter()
		now := time.Now()
		if got := want.GetFinishedAfter().AsTime(); !got.Equal(now.Add(-time.Hour)) || !want.GetFinishedBefore().AsTime().Equal(now.Add(-10*time.Minute)) {
			t.Errorf("-1h to -10m is %v to %v", got, want.GetFinishedBefore().AsTime())
		}
		if !strings.Contains(body, `name="ended_since" value="-1h"`) {
			t.Errorf("the form does not have what was written:\n%s", body)
		}
		time.Sleep(time.Minute)
		get(t, a, html.UnescapeString(regexp.MustCompile(`<a href="([^"]*)">next page`).FindStringSubmatch(body)[1]))
		if got := a.asked.(*lessorv1.ListTasksRequest).GetFilter(); !proto.Equal(got, want) {
			t.Errorf("the next page is one of %v, want one of %v", got, want)
		}
		get(t, a, "/ui/tasks?since=-1h&until=1h&ended_until=2h")
		got := a.asked.(*lessorv1.ListTasksRequest).GetFilter()
		if now = time.Now(); !got.GetCreatedBefore().AsTime().Equal(now.Add(time.Hour)) || !got.GetFinishedBefore().AsTime().Equal(now.Add(2*time.Hour)) {
			t.Errorf("until 1h and 2h from now is %v", got)
		}
	})
}

// A list that cannot be shown says why above its form, which has what was written, also what is no
// filter. What the coordinator refuses has the name that the form has for it.
func TestFormOfARefusedFilter(t *testing.T) {
	const written = "workspace=ws&queue=q&type=t&run=r&worker=w&concurrency_key=k&idempotency_key=i&host_node=h"
	for query, c := range map[string]struct {
		told error // by the coordinator; nil: it is not asked
		code int
		why  string
	}{
		"since=yesterday&state=READY,FAILED": {nil, http.StatusBadRequest, "since: &#34;yesterday&#34; is neither a time"},
		"state=GONE":                         {nil, http.StatusBadRequest, "state: there is no state GONE"},
		"end_reason=X&ended_until=2026-1-1":  {nil, http.StatusBadRequest, "end_reason: no task ends for the reason X"},
		"error_category=,":                   {nil, http.StatusBadRequest, "error_category: the value 1 of &#34;,&#34; is empty"},
		"state=FAILED,":                      {nil, http.StatusBadRequest, "state: the value 2 of &#34;FAILED,&#34; is empty"},
		"state=READY,,LEASED":                {nil, http.StatusBadRequest, "state: the value 2 of &#34;READY,,LEASED&#34; is empty"},
		"error_category=X":                   {nil, http.StatusBadRequest, "error_category: no error has the category X"},
		"order=first&label=x":                {nil, http.StatusBadRequest, "label: write key=value"},
		"order=first":                        {nil, http.StatusBadRequest, "order: is newest or oldest, and not first"},
		"order=oldest&state=FAILED":          {status.Error(codes.ResourceExhausted, "too many calls"), http.StatusTooManyRequests, "<p id=\"why\">too many calls</p>"},
		"label=x":                            {nil, http.StatusBadRequest, "label: write key=value"},
		"ended_since=-1h":                    {status.Error(codes.InvalidArgument, "filter.run_id: has 1 bytes"), http.StatusBadRequest, "<p id=\"why\">run: has 1 bytes</p>"},
		"since=-1h&until=-2h": {
			status.Error(codes.InvalidArgument, "filter.created_before: it must be later than created_after"),
			http.StatusBadRequest, "<p id=\"why\">until: it must be later than since</p>",
		},
		"state=FAILED": {status.Error(codes.ResourceExhausted, "too many calls"), http.StatusTooManyRequests, "<p id=\"why\">too many calls</p>"},
	} {
		a := &answers{refuses: c.told}
		w := get(t, a, "/ui/tasks?"+written+"&"+query)
		body := w.Body.String()
		why, form := strings.Index(body, c.why), strings.Index(body, `<form class="filter"`)
		if w.Code != c.code || why < 0 || form < why || (a.asked != nil) != (c.told != nil) {
			t.Fatalf("%s: status %d, want %d with %q above the form:\n%s", query, w.Code, c.code, c.why, body)
		}
		want, _ := url.ParseQuery(written + "&" + query)
		address, _ := url.Parse(submitted(t, body, "/ui/tasks"))
		got := address.Query()
		for name := range got { // of what is empty
			if got.Get(name) == "" {
				got.Del(name)
			}
		}
		if got.Encode() != want.Encode() {
			t.Errorf("%s: the form has %v, want %v", query, got, want)
		}
	}
}

// The form shows the conditions that are less used if one of them is, so that none selects unseen.
func TestConditionsThatAreInUseAreSeen(t *testing.T) {
	for _, name := range filterParameters {
		value := map[string]string{
			"state": "FAILED", "end_reason": "START_TIMEOUT", "error_category": "TIMEOUT",
			"label": "a=b", "order": "oldest",
		}[name]
		if strings.HasSuffix(name, "since") || strings.HasSuffix(name, "until") {
			value = "2026-01-01"
		}
		if value == "" {
			value = "x"
		}
		body := get(t, full(), "/ui/tasks?"+name+"="+value).Body.String()
		_, details, _ := strings.Cut(body, `<details id="more"`)
		hidden := strings.Contains(details, ` name="`+name+`"`)
		if open := strings.Contains(body, `<details id="more" open>`); open != hidden {
			t.Errorf("%s is within the details: %v, and they are open: %v", name, hidden, open)
		}
	}
}

// A list has the newest tasks first, and links to itself in both orders. Its other pages, its form
// and its other links keep the order; a link to the other order leads to the first page.
func TestOrderOfAList(t *testing.T) {
	for query, c := range map[string]struct {
		newestFirst bool
		links       string
	}{
		"queue=q&page=p":              {true, "*queue=q order=oldest&queue=q"},
		"queue=q&order=newest&page=p": {true, "*queue=q order=oldest&queue=q"},
		"queue=q&order=&page=p":       {true, "*queue=q order=oldest&queue=q"},
		"queue=q&order=oldest&page=p": {false, "queue=q *order=oldest&queue=q"},
	} {
		a := full()
		body := get(t, a, "/ui/tasks?"+query).Body.String()
		leads := func(what, address string) {
			t.Helper()
			get(t, a, html.UnescapeString(address))
			if req := a.asked.(*lessorv1.ListTasksRequest); req.GetNewestFirst() != c.newestFirst || req.GetFilter().GetQueue() != "q" {
				t.Errorf("%s: %s asks for %v, want newest first %v", query, what, req, c.newestFirst)
			}
		}
		leads("the list", "/ui/tasks?"+query)
		leads("the form", submitted(t, body, "/ui/tasks"))
		for _, text := range []string{"next page", "ended in the last hour"} {
			leads(text, regexp.MustCompile(`<a href="([^"]*)"[^>]*>` + text).FindStringSubmatch(body)[1])
		}
		var links []string
		for _, link := range regexp.MustCompile(`<a href="/ui/tasks\?([^"]*)"( aria-current="true")?>(?:newest|oldest) first</a>`).FindAllStringSubmatch(body, -1) {
			mark := ""
			if link[2] != "" {
				mark = "*"
			}
			links = append(links, mark+html.UnescapeString(link[1]))
		}
		if got := strings.Join(links, " "); got != c.links {
			t.Errorf("%s: the links are %q, want %q", query, got, c.links)
		}
	}
}

// A list that may have ended tasks has links to those that ended lately, with the rest of its
// filter.
func TestTasksThatEndedLately(t *testing.T) {
	links := func(query string) (all []string) {
		a := full()
		body := get(t, a, "/ui/tasks?"+query).Body.String()
		for _, link := range regexp.MustCompile(`<a href="([^"]*)"( aria-current="true")?>(?:ended in the last hour|in the last 24 h|all)</a>`).FindAllStringSubmatch(body, -1) {
			mark := ""
			if link[2] != "" {
				mark = "*"
			}
			all = append(all, mark+strings.TrimPrefix(html.UnescapeString(link[1]), "/ui/tasks?"))
		}
		return all
	}
	for query, want := range map[string][]string{
		"queue=q":                     {"ended_since=-1h&queue=q", "ended_since=-24h&queue=q", "*queue=q"},
		"state=READY,FAILED&page=p":   {"ended_since=-1h&state=READY%2CFAILED", "ended_since=-24h&state=READY%2CFAILED", "*state=READY%2CFAILED"},
		"ended_since=-1h":             {"*ended_since=-1h", "ended_since=-24h", ""},
		"ended_until=-1h&state=READY": nil,
		"ended_until=-2h":             {"ended_since=-1h", "ended_since=-24h", ""},
	} {
		if got := links(query); !slices.Equal(got, want) {
			t.Errorf("%s: the links are %q, want %q", query, got, want)
		}
	}
}

// A list says since when a task is where it is: when it ended and how long after its submit, when
// it began to run, or when it is due.
func TestSince(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ago := func(d time.Duration) *timestamppb.Timestamp { return timestamppb.New(time.Now().Add(-d)) }
		for want, task := range map[string]*lessorv1.Task{
			"ended 2m ago after 58m0s": {CreatedAt: ago(time.Hour), FinishedAt: ago(2 * time.Minute), Reason: lessorv1.Reason_REASON_START_TIMEOUT},
			"started 3m ago":           {Lease: &lessorv1.LeaseInfo{GrantedAt: ago(time.Hour), StartedAt: ago(3 * time.Minute)}},
			"granted 1h ago":           {Lease: &lessorv1.LeaseInfo{GrantedAt: ago(time.Hour)}},
			"due in 5m":                {RetryAt: ago(-5 * time.Minute)},
			"":                         {},
		} {
			task.Spec = &lessorv1.TaskSpec{}
			a := &answers{by: map[string]proto.Message{
				lessorv1.TaskService_ListTasks_FullMethodName: &lessorv1.ListTasksResponse{Tasks: []*lessorv1.Task{task}},
			}}
			body := get(t, a, "/ui/tasks").Body.String()
			text := regexp.MustCompile(`<[^>]*>`).ReplaceAllString(strings.ReplaceAll(body, "<td>", "|"), "")
			if !strings.Contains(text, "|"+want+"\n|\n|\n") { // then worker and key, which are empty
				t.Errorf("the row lacks %q:\n%s", want, text)
			}
			if task.GetReason() != 0 && !strings.Contains(text, "START_TIMEOUT\n") {
				t.Errorf("the row does not say why the task ended:\n%s", text)
			}
		}
	})
}

// The list of workers has those of the workspace, or all of them with their workspaces. It goes on
// until it has one. Only the first page can say that there is none: what it does not show may be on
// a page before it.
func TestWorkersOfAWorkspace(t *testing.T) {
	page := func(number string) *lessorv1.ListWorkersResponse {
		switch number {
		case "":
			return &lessorv1.ListWorkersResponse{
				Workers:       []*lessorv1.Worker{{WorkerId: "far", WorkspaceId: "other"}},
				NextPageToken: "1",
			}
		case "1":
			return &lessorv1.ListWorkersResponse{
				Workers:       []*lessorv1.Worker{{WorkerId: "near", WorkspaceId: "ws"}},
				NextPageToken: "2",
			}
		}
		return &lessorv1.ListWorkersResponse{}
	}
	a := &answers{}
	a.reply = func(request proto.Message) (proto.Message, error) {
		return page(request.(*lessorv1.ListWorkersRequest).GetPageToken()), nil
	}
	const theirs, all = `aria-current="true">workspace ws<`, `aria-current="true">all workspaces<`
	for query, c := range map[string]struct {
		calls    int
		has, not []string
	}{
		"workspace=ws": {
			2, []string{
				">near<", "page=2&amp;workspace=ws", theirs,
				`href="/ui/workers?of=all&amp;workspace=ws">all workspaces<`,
			}, []string{">far<", ">other<"},
		},
		"workspace=ws&page=2": {1, []string{"No more workers"}, []string{"No worker", "lessor worker run", "next page"}},
		"workspace=other":     {1, []string{">far<", "page=1&amp;workspace=other"}, []string{">near<"}},
		"workspace=none&page=": {
			3, []string{
				"No worker of the workspace none has a session",
				"--queue mail --workspace=<bdi>none</bdi> -- cat",
			}, []string{"No more", "next page"},
		},
		"workspace=ws&of=all": {
			1,
			[]string{">far<", `<a href="/ui/?workspace=other">other</a>`, "of=all&amp;page=1&amp;workspace=ws", all},
			[]string{">near<"},
		},
		"workspace=ws&of=all&page=2": {1, []string{"No more workers"}, []string{"No worker", "lessor worker run", "next page"}},
		"of=some":                    {0, []string{"of: is all or empty, and not some"}, nil},
	} {
		a.calls = nil
		body := get(t, a, "/ui/workers?"+query).Body.String()
		if len(a.calls) != c.calls {
			t.Errorf("%s: %d calls, want %d", query, len(a.calls), c.calls)
		}
		for _, text := range c.has {
			if !strings.Contains(body, text) {
				t.Errorf("%s: the page lacks %s:\n%s", query, text, body)
			}
		}
		for _, text := range c.not {
			if strings.Contains(body, text) {
				t.Errorf("%s: the page has %s:\n%s", query, text, body)
			}
		}
	}
	a.reply = func(proto.Message) (proto.Message, error) { return &lessorv1.ListWorkersResponse{}, nil }
	if body := get(t, a, "/ui/workers?of=all").Body.String(); !strings.Contains(body, "No worker has a session") || !strings.Contains(body, "--queue mail -- cat") {
		t.Errorf("the page does not say how to start the first worker:\n%s", body)
	}
}

// The page of a worker links to the tasks of its workspace that it holds or held last.
func TestTasksOfAWorker(t *testing.T) {
	a := full()
	href := regexp.MustCompile(`<a href="([^"]*)">those that it held last`).FindStringSubmatch(get(t, a,
		"/ui/worker?name=w").Body.String())
	if href == nil {
		t.Fatal("the page of a worker does not link to its tasks")
	}
	get(t, a, html.UnescapeString(href[1]))
	want := &lessorv1.ListTasksRequest{
		PageSize: rowsPerPage, NewestFirst: true, Filter: &lessorv1.TaskFilter{WorkspaceId: text("workspace_id"), WorkerId: "w"},
	}
	if !proto.Equal(a.asked, want) {
		t.Errorf("it asks for %v, want %v", a.asked, want)
	}
}

// A worker that has no session may hold leases all the same, so the links to it lead to a page, and
// that leads to its tasks.
func TestWorkerWithoutASession(t *testing.T) {
	a := full()
	a.refuses, a.only = status.Error(codes.NotFound, "no worker of this name has an open session"),
		lessorv1.AdminService_GetWorker_FullMethodName
	w := get(t, a, "/ui/worker?name=-w%201&workspace=ws")
	if w.Code != http.StatusOK || !strings.Contains(w.Body.String(), "No worker of this name has an open session.") {
		t.Errorf("status %d, want 200 and that it has no session:\n%s", w.Code, w.Body)
	}
	for text, states := range map[string][]lessorv1.TaskState{"tasks that it holds": words.Held(), "those that it held last": nil} {
		href := regexp.MustCompile(`<a href="([^"]*)">` + text).FindStringSubmatch(w.Body.String())
		if href == nil {
			t.Fatalf("%s: there is no link:\n%s", text, w.Body)
		}
		get(t, a, html.UnescapeString(href[1]))
		want := &lessorv1.TaskFilter{WorkspaceId: "ws", WorkerId: "-w 1", States: states}
		if got := a.asked.(*lessorv1.ListTasksRequest).GetFilter(); !proto.Equal(got, want) {
			t.Errorf("%s: it asks for %v, want %v", text, got, want)
		}
	}
	if got, want := commands(t, a, "/ui/worker?name=-w%201"), "lessor worker kick --requeue -- '-w 1'"; !slices.Equal(got, []string{want}) {
		t.Errorf("it shows %q, want %s: there is no session to drain", got, want)
	}
}

// Of bytes the page shows the beginning, or their size.
func TestContent(t *testing.T) {
	long := strings.Repeat("é", mostShown)
	deep := strings.Repeat("[", mostShown/2) + strings.Repeat("]", mostShown/2)
	for data, want := range map[string]content{
		"":             {Size: "0 B"},
		"text\n":       {Text: "text\n", Size: "5 B"},
		`{"a":[1]}`:    {Text: "{\n  \"a\": [\n    1\n  ]\n}", Size: "9 B"},
		"\xff\x00\x01": {Size: "3 B", Data: true},
		// indented, it would have 33 MB
		deep:             {Text: deep, Size: "8.0 KiB"},
		`[["}",` + "1]]": {Text: "[\n  [\n    \"}\",\n    1\n  ]\n]", Size: "9 B"},
		"x" + long:       {Text: "x" + strings.Repeat("é", mostShown/2-1), Size: "16.0 KiB", Cut: true},
	} {
		if got := contentOf([]byte(data)); got != want {
			t.Errorf("%.20q: got %+.60v, want %+.60v", data, got, want)
		}
	}
}

// A shell reads a quoted word as the word.
func TestQuoted(t *testing.T) {
	for word, want := range map[string]string{"gpu-1": "gpu-1", "": "''", "a b": "'a b'", "it's": `'it'\''s'`, "$(x)": "'$(x)'", "日": "'日'"} {
		if got := quoted(word); got != want {
			t.Errorf("%q: got %s, want %s", word, got, want)
		}
	}
}

// commands returns the commands that a page shows.
func commands(t *testing.T, a *answers, path string) []string {
	t.Helper()
	shown := regexp.MustCompile(`(?s)<pre class="command" id="commands">(.*?)</pre>`).FindStringSubmatch(get(t, a,
		path).Body.String())
	if shown == nil {
		t.Fatalf("%s shows no commands", path)
	}
	return strings.Split(html.UnescapeString(strings.NewReplacer("<bdi>", "", "</bdi>", "").Replace(shown[1])), "\n")
}

// Names that look like flags are not taken for such by the commands that a page shows. A task has
// the commands that it does not refuse.
func TestCommands(t *testing.T) {
	queue := &lessorv1.Queue{
		WorkspaceId: "-w", Name: "-q", MaxInflight: 20,
		RateLimit: &lessorv1.RateLimit{PerSecond: 50.0 / 86400, Burst: 3},
	}
	a := &answers{by: map[string]proto.Message{lessorv1.AdminService_GetQueue_FullMethodName: &lessorv1.GetQueueResponse{Queue: queue}}}
	wantCommands := func(path string, want ...string) {
		t.Helper()
		if got := commands(t, a, path); !slices.Equal(got, want) {
			t.Errorf("%s shows %q, want %q", path, got, want)
		}
	}
	update := "lessor queue update --workspace=-w --max-inflight 20 --rate 50/d --burst 3 -- -q"
	wantCommands("/ui/queue?name=-q&workspace=-w", "lessor queue pause --workspace=-w -- -q", update)
	queue.Paused = true
	wantCommands("/ui/queue?name=-q&workspace=-w", "lessor queue resume --workspace=-w -- -q", update)
	wantCommands("/ui/run?id=-r&workspace=-w",
		"lessor task count --workspace=-w --run-id=-r", "lessor task watch --workspace=-w --run-id=-r")
	a.by[lessorv1.AdminService_GetWorker_FullMethodName] = &lessorv1.GetWorkerResponse{Workers: []*lessorv1.Worker{{}}}
	wantCommands("/ui/worker?name=-w%201", "lessor worker drain -- '-w 1'", "lessor worker kick -- '-w 1'")
	wantCommands("/ui/worker?name=w", "lessor worker drain w", "lessor worker kick w")
	wantCommands("/ui/", "lessor submit --queue mail --type send --payload hello")
	wantCommands("/ui/?workspace=-w", "lessor submit --queue mail --type send --payload hello --workspace=-w")

	const (
		get, output, retry   = "lessor task get t1 --json", "lessor task get t1 --output", "lessor task retry t1"
		watch, cancel, adopt = "lessor task watch t1", "lessor task cancel t1", "lessor task adopt t1"
	)
	task := &lessorv1.Task{TaskId: "t1", Spec: &lessorv1.TaskSpec{}}
	a.by[lessorv1.TaskService_GetTask_FullMethodName] = &lessorv1.GetTaskResponse{Task: task}
	// kept, but whether it can be adopted only the coordinator knows: FAILED may be an outcome or
	// not
	task.Discarded = []*lessorv1.DiscardedResult{{Attempt: 1}}
	for _, findings := range [][]*lessorv1.Finding{nil, {{Code: lessorv1.FindingCode_FINDING_CODE_LATE_RESULT}}} {
		a.by[lessorv1.TaskService_ExplainTask_FullMethodName] = &lessorv1.ExplainTaskResponse{Findings: findings}
		adopted := []string{adopt, get}
		if findings == nil {
			adopted = []string{get}
		}
		for state, want := range map[lessorv1.TaskState][]string{
			lessorv1.TaskState_TASK_STATE_READY:     append([]string{watch, cancel}, adopted...),
			lessorv1.TaskState_TASK_STATE_FAILED:    append([]string{retry}, adopted...),
			lessorv1.TaskState_TASK_STATE_CANCELLED: append([]string{retry}, adopted...),
		} {
			task.State = state
			wantCommands("/ui/tasks/t1", want...)
		}
	}
	a.by[lessorv1.TaskService_ExplainTask_FullMethodName] = &lessorv1.ExplainTaskResponse{}
	task.State = lessorv1.TaskState_TASK_STATE_COMPLETED
	wantCommands("/ui/tasks/t1", output, get)
	task.Artifacts = []*lessorv1.Artifact{{ResourceId: "r"}} // "task get --output" would fail
	wantCommands("/ui/tasks/t1", get)
}

// No character of a text of somebody else turns a page around or is hidden, and a command with such
// a name is exact.
func TestNoTextRewritesThePage(t *testing.T) {
	a := full()
	const name = "a\u202e\x1b\u200b'\\"
	a.by[lessorv1.AdminService_GetQueue_FullMethodName] = &lessorv1.GetQueueResponse{Queue: &lessorv1.Queue{Name: name}}
	body := get(t, a, "/ui/queue?name=q").Body.String()
	if strings.ContainsAny(body, "\u202e\x1b\u200b") || !strings.Contains(body, `Queue a\u202e\x1b\u200b`) {
		t.Errorf("the page has what turns it around, or hides:\n%s", body)
	}
	if got, want := quoted(name), `$'a\342\200\256\033\342\200\213\'\\'`; got != want {
		t.Errorf("the command has %s, want %s", got, want)
	}
}

// The leased tasks of a queue are those of three states, which the form keeps and the title says.
func TestLeasedTasksOfAQueue(t *testing.T) {
	a := full()
	a.by[lessorv1.AdminService_GetQueue_FullMethodName] = &lessorv1.GetQueueResponse{Queue: &lessorv1.Queue{
		Name:        "q",
		WorkspaceId: "default", Leased: 41,
	}}
	href := regexp.MustCompile(`<a href="([^"]*)">41</a>`).FindStringSubmatch(get(t, a, "/ui/queue?name=q").Body.String())
	if href == nil {
		t.Fatal("the leased tasks are not linked")
	}
	body := get(t, a, html.UnescapeString(href[1])).Body.String()
	for _, part := range []string{`<option value="LEASED,RUNNING,CANCELLING" selected>`, "<title>Tasks: LEASED, RUNNING, CANCELLING, queue q – Lessor"} {
		if !strings.Contains(body, part) {
			t.Errorf("the list lacks %s:\n%s", part, body)
		}
	}
	if got := a.asked.(*lessorv1.ListTasksRequest).GetFilter().GetStates(); len(got) != 3 {
		t.Errorf("it asks for %v, want three states", got)
	}
}

// Every page says of which coordinator it is, and to whom it is shown: of several open ones, a
// reader must not take one for another. One that credentials are not required for has no reader.
func TestWhosePageItIs(t *testing.T) {
	reader := Reader{
		Tenant: "acme<", Subject: "alice&", Role: "viewer",
		Until: time.Date(2026, 12, 1, 10, 30, 0, 0, time.FixedZone("", 3600)),
	}
	for want, who := range map[string]func(context.Context) Reader{
		`<small class="whose">at <bdi>h&lt;:1</bdi></small>`: nil,
		`<small class="whose">at <bdi>h&lt;:1</bdi>, tenant <bdi>acme&lt;</bdi>, as <bdi>alice&amp;</bdi> (viewer), until 2026-12-01 09:30 UTC</small>`: func(context.Context) Reader { return reader },
		`<small class="whose">at <bdi>h&lt;:1</bdi>, tenant <bdi>t</bdi>, as <bdi>s</bdi> (operator)</small>`: func(context.Context) Reader {
			return Reader{Tenant: "t", Subject: "s", Role: "operator"}
		},
	} {
		mux := http.NewServeMux()
		Register(mux, Config{
			Calls: full(), Admit: func(page http.Handler, _ Refuse) http.Handler { return page },
			Reader: who, Logger: slog.New(slog.DiscardHandler),
		})
		for _, path := range all {
			w, r := httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil)
			r.Host = "h<:1"
			mux.ServeHTTP(w, r)
			if body := w.Body.String(); !strings.Contains(body, want) || !strings.Contains(body, " – Lessor at h&lt;:1</title>") {
				t.Errorf("%s lacks %s, or the host in its title:\n%s", path, want, body)
			}
		}
	}
}

// A reader who is not admitted gets a page that says why, and for a wrong role how to show another
// credential. It does not ask again by itself.
func TestWhoIsNotAdmitted(t *testing.T) {
	for code, helps := range map[int]bool{http.StatusForbidden: true, http.StatusUnauthorized: false, http.StatusTooManyRequests: false} {
		mux := http.NewServeMux()
		Register(mux, Config{Calls: full(), Logger: slog.New(slog.DiscardHandler), Admit: func(_ http.Handler, refuse Refuse) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { refuse(w, r, code, "because <b>") })
		}})
		for _, path := range all {
			w := httptest.NewRecorder()
			mux.ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), http.MethodGet, path, nil))
			body := w.Body.String()
			if w.Code != code || !strings.Contains(body, `<p id="why">because &lt;b&gt;</p>`) || strings.Contains(body, "data-live") ||
				strings.Contains(body, "close all its windows") != helps || w.Header().Get("Content-Security-Policy") == "" {
				t.Errorf("%s, refused with %d: status %d, want a page that says why, and what to do: %v:\n%s",
					path, code, w.Code, helps, body)
			}
		}
	}
}

// From a task, the links of the frame lead to its workspace.
func TestWorkspaceOfATask(t *testing.T) {
	a := &answers{by: map[string]proto.Message{
		lessorv1.TaskService_GetTask_FullMethodName: &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Spec: &lessorv1.TaskSpec{WorkspaceId: "other"}}},
	}}
	body := get(t, a, "/ui/tasks/t1").Body.String()
	for _, part := range []string{`href="/ui/?workspace=other"`, `href="/ui/tasks?workspace=other"`, `value="other"`} {
		if !strings.Contains(body, part) {
			t.Errorf("the page of a task in another workspace has no %s:\n%s", part, body)
		}
	}
}

// Every link of a page keeps the workspace; a task knows its own.
func TestLinksKeepTheWorkspace(t *testing.T) {
	a := full() // whose workspace is this one
	workspace := text("workspace_id")
	for _, path := range all {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		body := get(t, a, path+separator+"workspace="+url.QueryEscape(workspace)).Body.String()
		for _, link := range regexp.MustCompile(`<a [^>]*href="(/ui/[^"]*)"`).FindAllStringSubmatch(body, -1) {
			to, err := url.Parse(html.UnescapeString(link[1]))
			if err != nil || to.Query().Get("workspace") != workspace && !strings.HasPrefix(to.Path, "/ui/tasks/") {
				t.Errorf("%s: the link to %s forgets the workspace (%v)", path, to, err)
			}
		}
	}
}

// Progress is shown if the worker has reported some, with its numbers. It has a bar while its
// attempt works. That of another attempt says of which it is, and so does the output.
func TestProgress(t *testing.T) {
	task := &lessorv1.Task{Spec: &lessorv1.TaskSpec{}, Progress: &lessorv1.Progress{}}
	a := &answers{by: map[string]proto.Message{lessorv1.TaskService_GetTask_FullMethodName: &lessorv1.GetTaskResponse{Task: task}}}
	if body := get(t, a, "/ui/tasks/t1").Body.String(); strings.Contains(body, " %") {
		t.Errorf("a task without progress shows some:\n%s", body)
	}
	task.Attempt, task.Progress = 2, &lessorv1.Progress{
		Attempt: 2, Fraction: 0.25, Stage: "fit",
		Metrics: map[string]float64{"loss": 45000},
	}
	task.Feedback = []*lessorv1.FeedbackChunk{{Body: &lessorv1.FeedbackChunk_Text{Text: "line"}}}
	const running, completed, ready = lessorv1.TaskState_TASK_STATE_RUNNING, lessorv1.TaskState_TASK_STATE_COMPLETED,
		lessorv1.TaskState_TASK_STATE_READY
	for _, c := range []struct {
		state lessorv1.TaskState
		lease *lessorv1.LeaseInfo
		bar   bool
		of    string
	}{
		{running, &lessorv1.LeaseInfo{Attempt: 2}, true, ""},
		{running, &lessorv1.LeaseInfo{Attempt: 3}, false, " <small>of attempt 2</small>"},
		{ready, nil, false, " <small>of attempt 2</small>"},
		{completed, nil, false, ""},
	} {
		task.State, task.Lease = c.state, c.lease
		body := get(t, a, "/ui/tasks/t1").Body.String()
		if strings.Contains(body, `<progress max="1" value="0.25" aria-label="progress">`) != c.bar || !strings.Contains(body, "25 % fit  loss=45000"+c.of+"</p>") ||
			!strings.Contains(body, "<h2>What it prints"+c.of+"</h2>") {
			t.Errorf("%v, held as %v: want a bar %v, and %q beside progress and output:\n%s", c.state, c.lease, c.bar, c.of, body)
		}
	}
}

// The gauges of a task and of a worker keep their digits.
func TestGauges(t *testing.T) {
	a := full()
	gauges := map[string]float64{"ms": 45000, "bytes": 1 << 31}
	a.by[lessorv1.TaskService_GetTask_FullMethodName] = &lessorv1.GetTaskResponse{Task: &lessorv1.Task{Spec: &lessorv1.TaskSpec{}, Metrics: gauges}}
	a.by[lessorv1.AdminService_GetWorker_FullMethodName] = &lessorv1.GetWorkerResponse{Workers: []*lessorv1.Worker{{Metrics: gauges}}}
	for _, path := range []string{"/ui/tasks/t1", "/ui/worker?name=w"} {
		body := get(t, a, path).Body.String()
		for _, shown := range []string{"<td>ms 45000</td>", "<td>bytes 2147483648</td>"} {
			if !strings.Contains(body, shown) {
				t.Errorf("%s lacks %s:\n%s", path, shown, body)
			}
		}
	}
}

// What a task prints is shown as it came, even if it looks like JSON, unless it is not text.
func TestPrinted(t *testing.T) {
	for want, c := range map[string]*lessorv1.FeedbackChunk{
		"line\n":                    {Body: &lessorv1.FeedbackChunk_Text{Text: "line\n"}},
		"[1,\n2]\n":                 {Body: &lessorv1.FeedbackChunk_Data{Data: []byte("[1,\n2]\n")}},
		"(2 B that are not text)\n": {Body: &lessorv1.FeedbackChunk_Data{Data: []byte("\xff\x00")}},
		strings.Repeat("x", 60<<10): {Body: &lessorv1.FeedbackChunk_Data{Data: []byte(strings.Repeat("x", 60<<10))}},
	} {
		if got := printed(c); got != want {
			t.Errorf("got %.40q, want %.40q", got, want)
		}
	}
}

// Every page has a box that leads to the task whose id is written into it, whatever that is; the
// path of the task is asked for by itself.
func TestBoxForATask(t *testing.T) {
	for id, want := range map[string]string{
		"t0000200000000001": "/ui/tasks/t0000200000000001", " t1\t": "/ui/tasks/t1", "": "/ui/tasks", " ": "/ui/tasks", "..": "/ui/tasks",
		"../x?y#z": "/ui/tasks/..%2Fx%3Fy%23z", "//evil.example": "/ui/tasks/%2F%2Fevil.example", "a\r\nb": "/ui/tasks/a%0D%0Ab",
	} {
		a := &answers{}
		w := get(t, a, "/ui/task?id="+url.QueryEscape(id))
		if w.Code != http.StatusSeeOther || w.Header().Get("Location") != want || a.asked != nil {
			t.Errorf("%q: status %d to %q, want 303 to %q and no call", id, w.Code, w.Header().Get("Location"), want)
		}
		if id = strings.TrimSpace(id); strings.Trim(id, ".") == "" {
			continue
		}
		get(t, a, w.Header().Get("Location"))
		if got := a.asked.(*lessorv1.ExplainTaskRequest).GetTaskId(); got != id {
			t.Errorf("%q leads to the task %q", id, got)
		}
	}
	for _, path := range append([]string{"/ui/nothing"}, all...) {
		if body := get(t, full(), path).Body.String(); submitted(t, body, "/ui/task") != "/ui/task?id=" {
			t.Errorf("%s has no box for a task", path)
		}
	}
}

// Links hold any name.
func TestLink(t *testing.T) {
	if got, want := link("/ui/tasks", "queue", "a&b=c/ d", "state", ""), "/ui/tasks?queue=a%26b%3Dc%2F+d"; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if got := link("/ui/tasks", "queue", ""); got != "/ui/tasks" {
		t.Errorf("got %s, want no query", got)
	}
}

// The files of the page need no credential: they say nothing of anybody.
func TestFiles(t *testing.T) {
	for path, kind := range map[string]string{"/ui/style.css": "text/css", "/ui/page.js": "text/javascript", "/ui/icon.svg": "image/svg+xml"} {
		if w := get(t, &answers{}, path); w.Code != http.StatusOK || !strings.HasPrefix(w.Header().Get("Content-Type"), kind) {
			t.Errorf("%s: status %d, type %s; want 200, %s", path, w.Code, w.Header().Get("Content-Type"), kind)
		}
	}
	for _, path := range []string{"/", "/ui"} {
		if w := get(t, &answers{}, path); w.Code != http.StatusFound || w.Header().Get("Location") != "/ui/" {
			t.Errorf("%s: status %d to %q, want 302 to /ui/", path, w.Code, w.Header().Get("Location"))
		}
	}
}

// That a page is no longer up to date is seen wherever its reader has scrolled to: the line sticks,
// and is not in main, which is made anew.
func TestStaleLineSticks(t *testing.T) {
	style := get(t, full(), "/ui/style.css").Body.String()
	if !regexp.MustCompile(`(?m)^\.stale \{[^}]*position: sticky; top: 0;`).MatchString(style) {
		t.Error("the line is not sticky")
	}
	for _, path := range all {
		before, _, _ := strings.Cut(get(t, full(), path).Body.String(), "<main")
		if !strings.Contains(before, `<p class="stale"`) {
			t.Errorf("%s: the line is not before main", path)
		}
	}
}

// A table of many columns moves sideways in a box of its own, so that the page stays as wide as a
// phone. The box has an id, by which page.js knows how far it was moved, and no id is there twice.
func TestWideTablesMoveByThemselves(t *testing.T) {
	if style := get(t, full(), "/ui/style.css").Body.String(); !strings.Contains(style, ".scroll { overflow-x: auto; }") {
		t.Error("the box does not move its table")
	}
	a := full()
	failed := &lessorv1.Task{Spec: &lessorv1.TaskSpec{}, State: lessorv1.TaskState_TASK_STATE_FAILED}
	a.by[lessorv1.TaskService_ListTasks_FullMethodName] = &lessorv1.ListTasksResponse{Tasks: []*lessorv1.Task{failed}}
	for _, path := range all {
		body := get(t, a, path).Body.String()
		narrow := strings.Count(body, `<table class="details">`)
		boxes := regexp.MustCompile(`<div class="scroll" id="[a-z]+"><table`).FindAllString(body, -1)
		if tables := strings.Count(body, "<table"); tables != narrow+len(boxes) || tables == 0 {
			t.Errorf("%s has %d tables, %d of them narrow, and %d boxes", path, tables, narrow, len(boxes))
		}
		seen := map[string]bool{}
		for _, id := range regexp.MustCompile(` id="[^"]*"`).FindAllString(body, -1) {
			if seen[id] {
				t.Errorf("%s has%s twice", path, id)
			}
			seen[id] = true
		}
	}
}

// page.js keeps the page up to date, and says when it cannot.
func TestPageScript(t *testing.T) {
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("needs node")
	}
	script, err := os.ReadFile("testdata/page.test.js")
	if err != nil {
		t.Fatal(err)
	}
	run := exec.CommandContext(t.Context(), node, "--eval", string(script))
	run.Stdin = strings.NewReader(get(t, &answers{}, "/ui/page.js").Body.String())
	if said, err := run.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, said)
	}
}
