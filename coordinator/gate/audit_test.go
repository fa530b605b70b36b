package gate

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// X4: docs/security.md names the audited calls.
func TestTheManualShowsWhatIsAudited(t *testing.T) {
	t.Attr("rules", "X4")
	manual, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(manual), "These calls leave one")
	list, _, _ = strings.Cut(list, "\n\nA call by a filter")
	var shown, known []string
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(list, -1) {
		shown = append(shown, m[1])
	}
	for method := range audited {
		known = append(known, path.Base(method))
	}
	slices.Sort(shown)
	slices.Sort(known)
	if !slices.Equal(shown, known) {
		t.Errorf("docs/security.md names %q, audited are %q", shown, known)
	}
}

// X4: what an entry keeps of a request is UTF-8, even if the request is not. Otherwise the audit could not be read.
func TestEntriesAreUTF8(t *testing.T) {
	t.Attr("rules", "X4")
	req := &lessorv1.CancelTaskRequest{TaskId: "t\xff", Reason: "r\xff", RequestId: strings.Repeat("\xffc", maxAuditID)}
	a := newEntry(t.Context(), Identity{}, lessorv1.TaskService_CancelTask_FullMethodName, req)
	for what, text := range map[string]string{"object": a.Object, "detail": a.Detail, "corr": a.Corr} {
		if !utf8.ValidString(text) || len(text) > maxAuditDetail {
			t.Errorf("the %s is %q, want at most %d bytes of UTF-8", what, text, maxAuditDetail)
		}
	}
	if want := "t\ufffd"; a.Object != want {
		t.Errorf("the object is %q, want %q", a.Object, want)
	}
}
