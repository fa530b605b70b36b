package coordinator

import (
	"os"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// accessRules answers from docs/security.md who may make which call. The tests of package gate check that the document agrees with the code.
type accessRules struct{ text string }

func readAccessRules(t *testing.T) accessRules {
	t.Helper()
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	return accessRules{string(text)}
}

// needsNoCredential reports whether a call needs no credential.
func (accessRules) needsNoCredential(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/")
}

// allows reports whether the document lets a role make a call.
func (b accessRules) allows(role auth.Role, method string) bool {
	_, row, _ := strings.Cut(b.text, "\n| "+role.String()+" | ")
	row, _, _ = strings.Cut(row, " |\n")
	return role == auth.Operator || path.Base(method) == "ServerReflectionInfo" || strings.Contains(row, "`"+path.Base(method)+"`")
}

// routeRule says who may use a route.
type routeRule struct {
	call     string // callers that may make this call may use the route; empty: see the other fields
	holder   bool   // only the holder of the task token may
	everyone bool   // no credential is needed
}

// routes returns the rules of all routes.
func (b accessRules) routes() map[string]routeRule {
	all := map[string]routeRule{}
	for line := range strings.Lines(b.text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		route, ok := strings.CutPrefix(cells[0], "| `")
		if !ok || len(cells) != 2 || !strings.Contains(route, " /") {
			continue
		}
		route, who := strings.Trim(route, "`"), strings.TrimSuffix(cells[1], " |")
		rule := routeRule{holder: who == "the task token", everyone: who == "everyone"}
		if !rule.holder && !rule.everyone {
			rule.call = strings.Trim(who, "`")
		}
		all[route] = rule
	}
	return all
}

// may reports whether a role may use a route.
func (b accessRules) may(role auth.Role, rule routeRule) bool {
	return rule.call != "" && b.allows(role, rule.call)
}

// audited returns the calls that leave an entry in the audit, sorted.
func (b accessRules) audited() (names []string) {
	_, list, _ := strings.Cut(b.text, "These calls leave one")
	list, _, _ = strings.Cut(list, "\n\nA call by a filter")
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(list, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}
