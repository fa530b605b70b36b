package web

import (
	"fmt"
	"html"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// far returns a coordinator whose lists have their only task on the page of this number, and last
// as many. Each call takes a while.
func far(on, pages int, each time.Duration) *answers {
	a := &answers{}
	a.reply = func(request proto.Message) (proto.Message, error) {
		list, ok := request.(*lessorv1.ListTasksRequest)
		if !ok {
			return nil, nil
		}
		time.Sleep(each)
		number, answer := 0, &lessorv1.ListTasksResponse{}
		if token := list.GetPageToken(); token != "" {
			number, _ = strconv.Atoi(token)
		}
		if number == on {
			answer.Tasks = []*lessorv1.Task{{TaskId: "found", Spec: &lessorv1.TaskSpec{}}}
		}
		if number+1 < pages {
			answer.NextPageToken = fmt.Sprint(number + 1)
		}
		return answer, nil
	}
	return a
}

// A list goes on until it has a task, for a bounded number of calls and a bounded time. Then it
// says so, and its next page goes on from there. One that needs many calls is asked for less often.
func TestListSearches(t *testing.T) {
	const none, onwards = "No task matches.", "the search goes on with the next page"
	for name, c := range map[string]struct {
		on, pages int
		each      time.Duration
		calls     int
		next      string // token of the next page
		says      string
	}{
		"found at once":             {0, 100, time.Millisecond, 1, "1", ""},
		"found later":               {2, 100, time.Millisecond, 3, "3", ""},
		"found on the last page":    {9, 10, time.Millisecond, 10, "", ""},
		"not there":                 {100, 5, time.Millisecond, 5, "", none},
		"too far for so many calls": {100, 1000, time.Millisecond, mostCalls, fmt.Sprint(mostCalls), onwards},
		"too far for the time":      {100, 1000, 400 * time.Millisecond, 3, "3", onwards},
		"found within the time":     {2, 1000, 400 * time.Millisecond, 3, "3", ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			a := far(c.on, c.pages, c.each)
			body := get(t, a, "/ui/tasks?queue=q").Body.String()
			if len(a.calls) != c.calls {
				t.Errorf("%s: %d calls, want %d", name, len(a.calls), c.calls)
			}
			for _, call := range a.calls {
				if !call.(*lessorv1.ListTasksRequest).GetNewestFirst() {
					t.Errorf("%s: %v is in another order", name, call)
				}
			}
			next := ""
			if link := regexp.MustCompile(`<a href="([^"]*)">next page`).FindStringSubmatch(body); link != nil {
				next = html.UnescapeString(link[1])
			}
			want := ""
			if c.next != "" {
				want = "/ui/tasks?page=" + c.next + "&queue=q"
			}
			if next != want || strings.Contains(body, ">found<") != (c.says == "") {
				t.Errorf("%s: the next page is %s, want %s:\n%s", name, next, want, body)
			}
			for _, text := range []string{none, onwards} {
				if strings.Contains(body, text) != (text == c.says) {
					t.Errorf("%s: the page says %q, want %q:\n%s", name, text, c.says, body)
				}
			}
			if live := fmt.Sprintf(`<main data-live="%d">`, max(oftenest, c.calls)); !strings.Contains(body, live) {
				t.Errorf("%s: the page lacks %s:\n%s", name, live, body)
			}
		})
	}
}

// A search that a quota ends shows how far it has come. Without any answer there is nothing to
// show.
func TestSearchThatAQuotaEnds(t *testing.T) {
	for refused, want := range map[int]int{0: http.StatusTooManyRequests, 1: http.StatusOK, 4: http.StatusOK} {
		a := far(100, 1000, 0)
		list := a.reply
		a.reply = func(request proto.Message) (proto.Message, error) {
			if len(a.calls) > refused {
				return nil, status.Error(codes.ResourceExhausted, "too many calls")
			}
			return list(request)
		}
		w := get(t, a, "/ui/tasks")
		if w.Code != want || strings.Contains(w.Body.String(), fmt.Sprintf(`href="/ui/tasks?page=%d"`, refused)) != (want == http.StatusOK) {
			t.Errorf("refused after %d calls: status %d, want %d and, if it is shown, a link to what is left:\n%s",
				refused, w.Code, want, w.Body)
		}
	}
}
