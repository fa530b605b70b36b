package wiretest

import (
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// AccessRules answers from docs/security.md who may make which call. The tests of package gate
// check that the document agrees with the code.
type AccessRules struct{ text string }

// ReadAccessRules reads the document.
func ReadAccessRules(t *testing.T) AccessRules {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(repository(), "docs/security.md"))
	if err != nil {
		t.Fatal(err)
	}
	return AccessRules{string(text)}
}

// NeedsNoCredential reports whether a call needs no credential.
func (AccessRules) NeedsNoCredential(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/")
}

// Allows reports whether the document lets a role make a call.
func (b AccessRules) Allows(role auth.Role, method string) bool {
	_, row, _ := strings.Cut(b.text, "\n| "+role.String()+" | ")
	row, _, _ = strings.Cut(row, " |\n")
	return role == auth.Operator || path.Base(method) == "ServerReflectionInfo" ||
		strings.Contains(row, "`"+path.Base(method)+"`")
}

// RouteRule says who may use a route.
type RouteRule struct {
	call     string // callers that may make this call may use the route; empty: see the other fields
	Holder   bool   // only the holder of the task token may
	Everyone bool   // no credential is needed
}

// Routes returns the rules of all routes.
func (b AccessRules) Routes() map[string]RouteRule {
	all := map[string]RouteRule{}
	for line := range strings.Lines(b.text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		route, ok := strings.CutPrefix(cells[0], "| `")
		if !ok || len(cells) != 2 || !strings.Contains(route, " /") {
			continue
		}
		route, who := strings.Trim(route, "`"), strings.TrimSuffix(cells[1], " |")
		rule := RouteRule{Holder: who == "the task token", Everyone: who == "everyone"}
		if !rule.Holder && !rule.Everyone {
			rule.call = strings.Trim(who, "`")
		}
		all[route] = rule
	}
	return all
}

// May reports whether a role may use a route.
func (b AccessRules) May(role auth.Role, rule RouteRule) bool {
	return rule.call != "" && b.Allows(role, rule.call)
}

// Audited returns the calls that leave an entry in the audit, sorted.
func (b AccessRules) Audited() (names []string) {
	_, list, _ := strings.Cut(b.text, "These calls leave one")
	list, _, _ = strings.Cut(list, "\n\nA call by a filter")
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(list, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}

// repository returns the directory of go.mod: a test runs in the directory of its package.
func repository() string {
	dir := "."
	for range 10 {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		dir = filepath.Join(dir, "..")
	}
	return dir
}
