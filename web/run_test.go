package web

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// listing returns a coordinator whose lists have so many pages of these tasks; each call takes a
// while.
func listing(pages int, each time.Duration, tasks ...*lessorv1.Task) *answers {
	a := &answers{}
	a.reply = func(request proto.Message) (proto.Message, error) {
		time.Sleep(each)
		number := 0
		if token := request.(*lessorv1.ListTasksRequest).GetPageToken(); token != "" {
			number, _ = strconv.Atoi(token)
		}
		answer := &lessorv1.ListTasksResponse{Tasks: tasks}
		if number+1 < pages {
			answer.NextPageToken = fmt.Sprint(number + 1)
		}
		return answer, nil
	}
	return a
}

// textOf returns what of a page is between its tags.
func textOf(page string) string {
	return strings.Join(strings.Fields(html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(page, " "))), " ")
}

// The page of a run says how many of its tasks are in each state, whether all have ended, and which
// failed and why. Each number leads to those tasks.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		task := func(id string, state lessorv1.TaskState, began, ended time.Duration) *lessorv1.Task {
			made := &lessorv1.Task{
				TaskId: id, State: state, Spec: &lessorv1.TaskSpec{},
				CreatedAt: timestamppb.New(now.Add(-began)),
			}
			if ended > 0 {
				made.FinishedAt = timestamppb.New(now.Add(-ended))
			}
			return made
		}
		failed := task("t1", lessorv1.TaskState_TASK_STATE_FAILED, 3*time.Hour, time.Hour)
		failed.Error = &lessorv1.TaskError{Message: "no such file <x>"}
		tasks := []*lessorv1.Task{
			failed, task("t2", lessorv1.TaskState_TASK_STATE_COMPLETED, 2*time.Hour, 90*time.Minute),
			task("t3", lessorv1.TaskState_TASK_STATE_RUNNING, time.Hour, 0),
		}
		show := func(a *answers) (body, text string) {
			body = get(t, a, "/ui/run?workspace=ws&id=r").Body.String()
			return body, textOf(body)
		}
		want := func(text string, parts ...string) {
			t.Helper()
			for _, part := range parts {
				if !strings.Contains(text, part) {
					t.Errorf("the page lacks %q: %s", part, text)
				}
			}
		}
		a := listing(2, 0, tasks...)
		body, text := show(a)
		want(text, "Run r 4 of 6 tasks have ended", "READY 0", "RUNNING 2", "COMPLETED 2", "FAILED 2", "tasks 6",
			"first submitted 3h ago", "last ended 1h ago after 2h0m0s",
			"Failed tasks task", "no such file <x>", "task retry --workspace= ws --run-id= r --state FAILED", "task cancel ")
		want(body, `href="/ui/tasks?run=r&amp;state=FAILED&amp;workspace=ws"`,
			`href="/ui/tasks?run=r&amp;workspace=ws"`, `max="6" value="4"></progress>`, `href="/ui/tasks/t1"`)
		if strings.Contains(text, "t2") || strings.Contains(text, "t3") {
			t.Errorf("the page lists tasks that did not fail: %s", text)
		}
		filter := &lessorv1.TaskFilter{WorkspaceId: "ws", RunId: "r"}
		if first := a.calls[0].(*lessorv1.ListTasksRequest); len(a.calls) != 2 || !proto.Equal(first.GetFilter(), filter) {
			t.Errorf("it asks %v, want for two pages of %v", a.calls, filter)
		}

		other := slices.Clone(tasks)
		slices.Reverse(other)
		_, text = show(listing(1, 0, other...))
		want(text, "first submitted 3h ago", "last ended 1h ago after 2h0m0s") // in whatever order they are read
		_, text = show(listing(1, 0, tasks[:2]...))
		want(text, "Run r all tasks have ended")
		if strings.Contains(text, "task cancel") {
			t.Errorf("a run that has ended can be cancelled: %s", text)
		}
		_, text = show(listing(1, 0))
		want(text, "No task of the workspace ws has this run.")

		// Of a large run, the first tasks are counted, and the page says so at each number. That
		// none of them failed says nothing of the others.
		for calls, large := range map[int]*answers{mostCalls: listing(1000, 0, tasks...), 4: listing(1000, 300*time.Millisecond, tasks...)} {
			body, text = show(large)
			want(text, fmt.Sprintf("Run r its first %d tasks", 3*calls), "The run has more tasks than are counted here",
				fmt.Sprintf("FAILED %d so far", calls), "READY 0 so far",
				fmt.Sprintf("tasks %d so far", 3*calls), "last ended 1h ago after 2h0m0s so far")
			if len(large.calls) != calls || strings.Contains(body, "<progress") {
				t.Errorf("%d calls, want %d, and no share of a number that is not known: %s", len(large.calls), calls, text)
			}
		}
		body, text = show(listing(1000, 0, tasks[1:]...))
		want(text, "FAILED 0 so far", "Failed tasks Tasks that are not counted here may have failed, too",
			"task retry --workspace= ws --run-id= r --state FAILED")
		want(body, `<a href="/ui/tasks?run=r&amp;state=FAILED&amp;workspace=ws">0</a>`,
			`<a href="/ui/tasks?run=r&amp;state=FAILED&amp;workspace=ws">search all</a>`)
		body, text = show(listing(1000, 0))
		want(text, "No task of this run was found so far")
		want(body, `<a href="/ui/tasks?run=r&amp;workspace=ws">search on</a>`)
		if _, text = show(listing(1, 0, tasks...)); strings.Contains(text, "so far") {
			t.Errorf("a run that was counted whole: %s", text)
		}

		a = listing(1000, 0, tasks...)
		list := a.reply
		a.reply = func(request proto.Message) (proto.Message, error) {
			if len(a.calls) > 2 {
				return nil, status.Error(codes.ResourceExhausted, "too many calls")
			}
			return list(request)
		}
		_, text = show(a)
		want(text, "Run r its first 6 tasks")
		many := make([]*lessorv1.Task, rowsPerPage+1)
		for i := range many {
			many[i] = failed
		}
		body, text = show(listing(1, 0, many...))
		want(text, fmt.Sprintf("Failed tasks the first %d of %d", rowsPerPage, rowsPerPage+1))
		if n := strings.Count(body, `href="/ui/tasks/t1"`); n != rowsPerPage {
			t.Errorf("it lists %d failed tasks, want %d", n, rowsPerPage)
		}
	})
	if w := get(t, full(), "/ui/run"); w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), "id: ") {
		t.Errorf("without a run: status %d, want 400:\n%s", w.Code, w.Body)
	}
}

// A task, and a list that is filtered by a run, lead to the run.
func TestRunIsLinked(t *testing.T) {
	a := full()
	spec := a.by[lessorv1.TaskService_GetTask_FullMethodName].(*lessorv1.GetTaskResponse).Task.Spec
	spec.WorkspaceId, spec.RunId = "ws", "r 1"
	for _, path := range []string{"/ui/tasks/t1", "/ui/tasks?workspace=ws&run=r+1"} {
		if body := html.UnescapeString(get(t, a, path).Body.String()); !strings.Contains(body, `<a href="/ui/run?id=r+1&workspace=ws">r 1</a>`) {
			t.Errorf("%s does not link the run:\n%s", path, body)
		}
	}
}
