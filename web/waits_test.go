package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queueOf returns a coordinator with a queue and its READY tasks, each as its id and its concurrency key. It explains them with the finding of their id.
func queueOf(q *lessorv1.Queue, findings map[string]*lessorv1.Finding, ready ...[2]string) *answers {
	a := &answers{by: map[string]proto.Message{lessorv1.AdminService_GetQueue_FullMethodName: &lessorv1.GetQueueResponse{Queue: q}}}
	list := &lessorv1.ListTasksResponse{}
	for _, t := range ready {
		list.Tasks = append(list.Tasks, &lessorv1.Task{TaskId: t[0], Spec: &lessorv1.TaskSpec{ConcurrencyKey: t[1]}})
	}
	a.by[lessorv1.TaskService_ListTasks_FullMethodName] = list
	a.reply = func(request proto.Message) (proto.Message, error) {
		explain, ok := request.(*lessorv1.ExplainTaskRequest)
		if !ok {
			return nil, nil
		}
		f := findings[explain.GetTaskId()]
		if f == nil {
			return nil, status.Error(codes.NotFound, "no such task")
		}
		return &lessorv1.ExplainTaskResponse{TaskId: explain.GetTaskId(), Summary: "READY: " + f.GetMessage(), Findings: []*lessorv1.Finding{f}}, nil
	}
	return a
}

// explained returns the tasks that a coordinator was asked to explain.
func (a *answers) explained() (ids []string) {
	for _, call := range a.calls {
		if x, ok := call.(*lessorv1.ExplainTaskRequest); ok {
			ids = append(ids, x.GetTaskId())
		}
	}
	return ids
}

// The page of a queue says why it waits, in the words of the coordinator: about its oldest READY task, and about one that its concurrency key keeps back.
func TestWhyAQueueWaits(t *testing.T) {
	paused := &lessorv1.Finding{
		Code: lessorv1.FindingCode_FINDING_CODE_QUEUE_PAUSED, Message: "queue <q> is paused", Since: timestamppb.Now(), Remedy: "the queue is resumed",
	}
	blocked := &lessorv1.Finding{Code: lessorv1.FindingCode_FINDING_CODE_CONCURRENCY_KEY, Message: "its key has no room"}
	inLine := &lessorv1.Finding{Code: lessorv1.FindingCode_FINDING_CODE_IN_LINE, Message: "tasks before it"}
	findings := map[string]*lessorv1.Finding{"paused": paused, "blocked": blocked, "room1": inLine, "room2": inLine, "room3": inLine}
	for name, c := range map[string]struct {
		queue *lessorv1.Queue
		ready [][2]string
		want  []string // that the page shows
		asks  []string // of which tasks
	}{
		"an empty one":     {queue: &lessorv1.Queue{}},
		"the oldest":       {queue: &lessorv1.Queue{Ready: 2, OldestReadyTaskId: "paused"}, want: []string{"paused"}, asks: []string{"paused"}},
		"gone meanwhile":   {queue: &lessorv1.Queue{Ready: 2, OldestReadyTaskId: "gone"}, asks: []string{"gone"}},
		"all blocked":      {queue: &lessorv1.Queue{Ready: 1, Blocked: 1}, ready: [][2]string{{"blocked", "k"}}, want: []string{"blocked"}, asks: []string{"blocked"}},
		"the oldest is so": {queue: &lessorv1.Queue{Ready: 2, Blocked: 1, OldestReadyTaskId: "blocked"}, want: []string{"blocked"}, asks: []string{"blocked"}},
		"one of each": {
			queue: &lessorv1.Queue{Ready: 4, Blocked: 1, OldestReadyTaskId: "paused"},
			ready: [][2]string{{"paused", ""}, {"room1", "k1"}, {"room1 again", "k1"}, {"blocked", "k2"}},
			want:  []string{"paused", "blocked"}, asks: []string{"paused", "room1", "blocked"},
		},
		"too far behind": {
			queue: &lessorv1.Queue{Ready: 4, Blocked: 1},
			ready: [][2]string{{"room1", "k1"}, {"room2", "k2"}, {"room3", "k3"}, {"blocked", "k4"}},
			asks:  []string{"room1", "room2", "room3"},
		},
	} {
		a := queueOf(c.queue, findings, c.ready...)
		w := get(t, a, "/ui/queue?name=q")
		body := w.Body.String()
		if got := a.explained(); w.Code != http.StatusOK || !slices.Equal(got, c.asks) || strings.Count(body, `class="explain"`) != len(c.want) {
			t.Errorf("%s: status %d, it asks why %q wait, want %q, and shows:\n%s", name, w.Code, got, c.asks, body)
		}
		for _, id := range c.want {
			for _, part := range []string{`href="/ui/tasks/` + id + `"`, "READY: " + strings.NewReplacer("<", "&lt;", ">", "&gt;").Replace(findings[id].GetMessage())} {
				if !strings.Contains(body, part) {
					t.Errorf("%s: the page lacks %s:\n%s", name, part, body)
				}
			}
		}
		if slices.Contains(c.want, "paused") && (!strings.Contains(body, "Since "+moment(paused.GetSince())) || !strings.Contains(body, "Changes when the queue is resumed.")) {
			t.Errorf("%s: the page does not say since when, and what changes it:\n%s", name, body)
		}
	}

	a := queueOf(&lessorv1.Queue{Name: "q", Scheduled: 3}, nil)
	if body := get(t, a, "/ui/queue?name=q").Body.String(); !strings.Contains(body, "No task is READY.") || !strings.Contains(body, `state=SCHEDULED">SCHEDULED</a> wait`) {
		t.Errorf("the page does not say that all tasks wait for their time:\n%s", body)
	}
	a.by[lessorv1.AdminService_GetQueue_FullMethodName] = &lessorv1.GetQueueResponse{Queue: &lessorv1.Queue{Ready: 1, OldestReadyTaskId: "t"}}
	a.reply = func(request proto.Message) (proto.Message, error) {
		if _, ok := request.(*lessorv1.ExplainTaskRequest); ok {
			return nil, status.Error(codes.Unavailable, "it stops")
		}
		return nil, nil
	}
	if w := get(t, a, "/ui/queue?name=q"); w.Code != http.StatusServiceUnavailable || !strings.Contains(w.Body.String(), "it stops") {
		t.Errorf("a coordinator that stops: status %d, want 503:\n%s", w.Code, w.Body)
	}
}

// The overview links the age of the oldest READY task of a queue to that task.
func TestOldestTaskIsLinked(t *testing.T) {
	body := get(t, full(), "/ui/").Body.String()
	if want := `<a href="/ui/tasks/%3cb%20id=%22oldest_ready_task_id%22%3e%27&amp;">7s</a>`; !strings.Contains(body, want) {
		t.Errorf("the overview lacks %s:\n%s", want, body)
	}
}

// The page of a queue says of each session which types it takes.
func TestTypesOfSessions(t *testing.T) {
	a := full()
	for want, w := range map[string]*lessorv1.Worker{
		"<td>resize, crop</td>":       {Capabilities: &lessorv1.Capabilities{Types: []string{"resize", "crop"}}},
		"<td><small>all</small></td>": {Capabilities: &lessorv1.Capabilities{}},
	} {
		w.WorkspaceId = "default"
		a.by[lessorv1.AdminService_ListWorkers_FullMethodName] = &lessorv1.ListWorkersResponse{Workers: []*lessorv1.Worker{w}}
		for _, path := range []string{"/ui/queue?name=q", "/ui/workers"} {
			if body := get(t, a, path).Body.String(); !strings.Contains(body, want) {
				t.Errorf("%s lacks %s:\n%s", path, want, body)
			}
		}
	}
}
