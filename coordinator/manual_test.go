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

// rulebook reads docs/security.md: who may do what. That it agrees with package gate is tested there.
type rulebook struct{ text string }

func readRules(t *testing.T) rulebook {
	t.Helper()
	text, err := os.ReadFile("../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	return rulebook{string(text)}
}

// needsNone reports whether a call needs no credential.
func (rulebook) needsNone(method string) bool {
	return strings.HasPrefix(method, "/grpc.health.v1.Health/")
}

// allows reports whether the document lets a role make a call.
func (b rulebook) allows(role auth.Role, method string) bool {
	_, row, _ := strings.Cut(b.text, "\n| "+role.String()+" | ")
	row, _, _ = strings.Cut(row, " |\n")
	return role == auth.Operator || path.Base(method) == "ServerReflectionInfo" || strings.Contains(row, "`"+path.Base(method)+"`")
}

// ruleOf says who may use a route.
type ruleOf struct {
	call     string // whoever may make this call; empty: see the others
	holder   bool
	everyone bool
}

// routes returns the rules of all routes.
func (b rulebook) routes() map[string]ruleOf {
	all := map[string]ruleOf{}
	for line := range strings.Lines(b.text) {
		cells := strings.Split(strings.TrimSpace(line), " | ")
		route, ok := strings.CutPrefix(cells[0], "| `")
		if !ok || len(cells) != 2 || !strings.Contains(route, " /") {
			continue
		}
		route, who := strings.Trim(route, "`"), strings.TrimSuffix(cells[1], " |")
		rule := ruleOf{holder: who == "the task token", everyone: who == "everyone"}
		if !rule.holder && !rule.everyone {
			rule.call = strings.Trim(who, "`")
		}
		all[route] = rule
	}
	return all
}

// may reports whether a role may use a route.
func (b rulebook) may(role auth.Role, rule ruleOf) bool {
	return rule.call != "" && b.allows(role, rule.call)
}

// audited returns the calls that leave an entry in the audit, sorted.
func (b rulebook) audited() (names []string) {
	_, list, _ := strings.Cut(b.text, "These calls leave one")
	list, _, _ = strings.Cut(list, "\n\nA call by a filter")
	for _, m := range regexp.MustCompile("`([A-Z][A-Za-z]+)`").FindAllStringSubmatch(list, -1) {
		names = append(names, m[1])
	}
	slices.Sort(names)
	return names
}
