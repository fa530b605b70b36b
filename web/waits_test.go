package web

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// queueOf returns a coordinator with a queue. It explains tasks with the finding of their id.
func queueOf(q *lessorv1.Queue, findings map[string]*lessorv1.Finding) *answers {
	a := &answers{by: map[string]proto.Message{lessorv1.AdminService_GetQueue_FullMethodName: &lessorv1.GetQueueResponse{Queue: q}}}
	a.reply = func(request proto.Message) (proto.Message, error) {
		explain, ok := request.(*lessorv1.ExplainTaskRequest)
		if !ok {
			return nil, nil
		}
		f := findings[explain.GetTaskId()]
		if f == nil {
			return nil, status.Error(codes.NotFound, "no such task")
		}
		return &lessorv1.ExplainTaskResponse{
			TaskId: explain.GetTaskId(), Summary: "READY: " + f.GetMessage(),
			Findings: []*lessorv1.Finding{f},
		}, nil
	}
	return a
}

// The page of a queue says why it waits, in the words of the coordinator: about its oldest READY
// task, and about the one that has kept others back the longest.
func TestWhyAQueueWaits(t *testing.T) {
	paused := &lessorv1.Finding{
		Code: lessorv1.FindingCode_FINDING_CODE_QUEUE_PAUSED, Message: "queue <q> is paused", Since: timestamppb.Now(),
		Remedy: "the queue is resumed",
	}
	held := &lessorv1.Finding{Code: lessorv1.FindingCode_FINDING_CODE_LEASED, Message: "worker w holds it"}
	findings := map[string]*lessorv1.Finding{"paused": paused, "holder": held}
	for name, c := range map[string]struct {
		queue *lessorv1.Queue
		want  []string // that the page shows
	}{
		"an empty one":   {queue: &lessorv1.Queue{}},
		"the oldest":     {queue: &lessorv1.Queue{Ready: 2, OldestReadyTaskId: "paused"}, want: []string{"paused"}},
		"gone meanwhile": {queue: &lessorv1.Queue{Ready: 2, OldestReadyTaskId: "gone"}},
		"all blocked":    {queue: &lessorv1.Queue{Ready: 1, Blocked: 1, OldestBlockerTaskId: "holder"}, want: []string{"holder"}},
		"one of each": {
			queue: &lessorv1.Queue{
				Ready: 4, Blocked: 1, OldestReadyTaskId: "paused", OldestBlockerTaskId: "holder",
				OldestBlocker: durationpb.New(3 * time.Hour),
			},
			want: []string{"paused", "holder"},
		},
	} {
		a := queueOf(c.queue, findings)
		w := get(t, a, "/ui/queue?name=q")
		body := w.Body.String()
		if w.Code != http.StatusOK || strings.Count(body, `class="explain"`) != len(c.want) {
			t.Errorf("%s: status %d, it shows:\n%s", name, w.Code, body)
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
		const oldestReady = `<a href="/ui/tasks?order=oldest&amp;state=READY">`
		if unknown := c.queue.Ready > 0 && c.want == nil; strings.Contains(body, "is not known") != unknown || strings.Contains(body, oldestReady) != unknown {
			t.Errorf("%s: the page says that it is not known why the queue waits: %v, want %v:\n%s",
				name, !unknown, unknown, body)
		}
		if c.queue.OldestBlocker != nil && !strings.Contains(body, "the longest, for 3h") {
			t.Errorf("%s: the page does not say for how long others are kept back:\n%s", name, body)
		}
	}

	a := queueOf(&lessorv1.Queue{Name: "q", Scheduled: 3}, nil)
	if body := get(t, a, "/ui/queue?name=q").Body.String(); !strings.Contains(body, "No task is READY.") || !strings.Contains(body, `state=SCHEDULED">SCHEDULED</a> wait`) {
		t.Errorf("the page does not say that all tasks wait for their time:\n%s", body)
	}
	a.by[lessorv1.AdminService_GetQueue_FullMethodName] = &lessorv1.GetQueueResponse{Queue: &lessorv1.Queue{
		Ready:             1,
		OldestReadyTaskId: "t",
	}}
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

// The overview links the age of the oldest READY task of a queue, and that of its oldest blocker,
// to that task.
func TestOldestTasksAreLinked(t *testing.T) {
	a := full()
	queue := a.by[lessorv1.AdminService_ListQueues_FullMethodName].(*lessorv1.ListQueuesResponse).GetQueues()[0]
	queue.OldestReadyAtLeast = false
	body := get(t, a, "/ui/").Body.String()
	for _, field := range []string{"oldest_ready_task_id", "oldest_blocker_task_id"} {
		if want := `<a href="/ui/tasks/%3cb%20id=%22` + field + `%22%3e%27&amp;">7s</a>`; !strings.Contains(body, want) {
			t.Errorf("the overview lacks %s:\n%s", want, body)
		}
	}
}

// Where another task may have been READY for longer than the one that is shown, the pages say so.
func TestAgeOfTheOldestTaskMayBeTooLow(t *testing.T) {
	for path, shown := range map[string]string{"/ui/": `">≥3h</a>`, "/ui/queue?name=q": "READY for ≥3h"} {
		for _, atLeast := range []bool{true, false} {
			queue := &lessorv1.Queue{
				Name: "q", Ready: 1, OldestReady: durationpb.New(3 * time.Hour),
				OldestReadyTaskId: "t", OldestReadyAtLeast: atLeast,
			}
			a := queueOf(queue, map[string]*lessorv1.Finding{"t": {}})
			a.by[lessorv1.AdminService_ListQueues_FullMethodName] = &lessorv1.ListQueuesResponse{Queues: []*lessorv1.Queue{queue}}
			body := get(t, a, path).Body.String()
			if strings.Contains(body, shown) != atLeast || strings.Contains(body, "may have waited for longer") != atLeast {
				t.Errorf("oldest_ready_at_least is %v, and %s has:\n%s", atLeast, path, body)
			}
			if path != "/ui/" && strings.Contains(body, "READY the longest of those looked at: ") != atLeast {
				t.Errorf("oldest_ready_at_least is %v, and the page heads its task with:\n%s", atLeast, body)
			}
		}
	}
}

// The page of a queue says since when it is paused.
func TestSinceWhenAQueueIsPaused(t *testing.T) {
	at := timestamppb.New(time.Now().Add(-3 * time.Hour))
	a := queueOf(&lessorv1.Queue{Paused: true, PausedAt: at}, nil)
	if body := get(t, a, "/ui/queue?name=q").Body.String(); !strings.Contains(body, "since "+moment(at)+", ") {
		t.Errorf("the page does not say since when the queue is paused:\n%s", body)
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
