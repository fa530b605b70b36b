package web

import (
	"html"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// submitted returns the address to which a browser sends a form of a page as it is: a box has one
// line.
func submitted(t *testing.T, page, action string) string {
	t.Helper()
	form := regexp.MustCompile(`(?s)<form[^>]* action="` + action + `">.*?</form>`).FindString(page)
	if form == "" {
		t.Fatalf("there is no form for %s:\n%s", action, page)
	}
	attribute := func(element, name string) string {
		found := regexp.MustCompile(`(?s) ` + name + `="([^"]*)"`).FindStringSubmatch(element)
		if found == nil {
			return ""
		}
		return strings.NewReplacer("\r", "", "\n", "").Replace(html.UnescapeString(found[1]))
	}
	query := url.Values{}
	for _, box := range regexp.MustCompile(`(?s)<input [^>]*>`).FindAllString(form, -1) {
		query.Set(attribute(box, "name"), attribute(box, "value"))
	}
	for _, choice := range regexp.MustCompile(`(?s)<select .*?</select>`).FindAllString(form, -1) {
		query.Set(attribute(choice, "name"), attribute(regexp.MustCompile(`<option [^>]*selected>`).FindString(choice), "value"))
	}
	return action + "?" + query.Encode()
}

// odd has what a page shows as numbers, and what the box of a form drops.
const odd = "a\u202e\x1b\u200b\n\x00\u0085b?&%\"'<i>=日"

// A form that is sent as it is selects the same again, whatever names it has. What its reader
// changes is as it was written.
func TestFormsKeepNames(t *testing.T) {
	a := full()
	query := url.Values{}
	for _, name := range filterParameters {
		query.Set(name, odd)
	}
	for name, value := range map[string]string{
		"workspace": odd, "state": "FAILED,CANCELLED", "end_reason": "START_TIMEOUT", "error_category": "TIMEOUT,USER_CODE", "label": odd + "=" + odd,
		"since": "2026-11-01", "until": "2026-11-02 03:04:05.678 UTC", "ended_since": "2026-11-03T04:05:06+02:00", "ended_until": " 2026-11-04 05:06 ",
		"order": "oldest",
	} {
		query.Set(name, value)
	}
	query.Del("page")
	body := get(t, a, "/ui/tasks?"+query.Encode()).Body.String()
	want := proto.Clone(a.asked)
	if got := want.(*lessorv1.ListTasksRequest).GetFilter(); got.GetQueue() != odd || len(got.GetLabels()) != 1 {
		t.Fatalf("the first page asks for %v", got)
	}
	again := submitted(t, body, "/ui/tasks")
	body = get(t, a, again).Body.String()
	if !proto.Equal(a.asked, want) {
		t.Errorf("the form selects %v, want %v", a.asked, want)
	}
	if next := submitted(t, body, "/ui/tasks"); next != again {
		t.Errorf("the form of the answer is %s, want that of the first, %s", next, again)
	}

	changed, _ := url.Parse(again)
	values := changed.Query()
	values.Set("queue", "a?")
	get(t, a, "/ui/tasks?"+values.Encode())
	filter := want.(*lessorv1.ListTasksRequest).Filter
	filter.Queue = "a?"
	if !proto.Equal(a.asked, want) {
		t.Errorf("with another queue, the form selects %v, want %v", a.asked, want)
	}

	body = get(t, a, "/ui/?workspace="+url.QueryEscape(odd)).Body.String()
	get(t, a, submitted(t, body, "/ui/"))
	if got := a.asked.(*lessorv1.ListQueuesRequest).GetWorkspaceId(); got != odd {
		t.Errorf("the form of the frame asks for the workspace %q, want %q", got, odd)
	}
}

// A parameter that a page does not heed is refused with those that it takes, on every page, and so
// is one that is there twice.
func TestParametersThatNoPageHeeds(t *testing.T) {
	for _, path := range all {
		separator := "?"
		if strings.Contains(path, "?") {
			separator = "&"
		}
		for query, why := range map[string]string{
			"states=FAILED":           "states: this page takes no such parameter, but workspace",
			"workspace=a&workspace=b": "workspace: is there more than once",
			"unchanged=states%3Dx":    "states: this page takes no such parameter", "unchanged=%25zz": "unchanged: ",
			"unchanged=workspace%3D%25ff": "workspace: must be UTF-8",
		} {
			a := &answers{}
			w := get(t, a, path+separator+query)
			if w.Code != http.StatusBadRequest || !strings.Contains(w.Body.String(), why) || a.asked != nil {
				t.Errorf("%s with %s: status %d, want 400 with %q and no call:\n%s", path, query, w.Code, why, w.Body)
			}
		}
		if w := get(t, full(), path+separator+"workspace=ws"); w.Code != http.StatusOK {
			t.Errorf("%s of a workspace: status %d, want 200", path, w.Code)
		}
	}
}

// No form lets the browser fill in what was written into it on another visit: who goes back would
// read the conditions of another list.
func TestBoxesShowWhatTheListShows(t *testing.T) {
	for _, path := range append([]string{"/ui/tasks?state=GONE"}, all...) {
		forms := regexp.MustCompile(`<form[^>]*>`).FindAllString(get(t, full(), path).Body.String(), -1)
		for _, form := range forms {
			if !strings.Contains(form, ` autocomplete="off"`) {
				t.Errorf("%s: a browser may fill in %s", path, form)
			}
		}
		if len(forms) < 2 {
			t.Errorf("%s has the forms %q, want at least two", path, forms)
		}
	}
}
