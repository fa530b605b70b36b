package gate

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
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
