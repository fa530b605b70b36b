package gate

import (
	"maps"
	"os"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/httpapi"
)

// X2, H1: every HTTP route has one rule, and every rule is for a route. Callbacks are only for the
// holder of the task token.
func TestEveryRouteHasARule(t *testing.T) {
	t.Attr("rules", "X2 H1")
	if routes, ruled := httpapi.Routes(), slices.Sorted(maps.Keys(routeAccess)); !slices.Equal(routes, ruled) {
		t.Errorf("routes %q\nrules %q", routes, ruled)
	}
	for route, rule := range routeAccess {
		if strings.HasSuffix(route, "started") || strings.HasSuffix(route, "heartbeat") || strings.HasSuffix(route, "completed") {
			if !rule.holder || rule.call != "" || rule.everyone {
				t.Errorf("%s has the rule %+v, want one only for the holder of the task token", route, rule)
			}
		} else if rule.holder || (access[rule.call] == auth.Nobody) != rule.everyone {
			t.Errorf("%s has the rule %+v, want one for the callers of a call, or for everyone", route, rule)
		}
	}
}

// X2: docs/security.md shows these rules.
func TestTheManualShowsTheRoutes(t *testing.T) {
	t.Attr("rules", "X2")
	manual, err := os.ReadFile("../../docs/security.md")
	if err != nil {
		t.Fatal(err)
	}
	for route, rule := range routeAccess {
		who := "`" + path.Base(rule.call) + "`"
		if rule.holder {
			who = "the task token"
		} else if rule.everyone {
			who = "everyone"
		}
		if row := "| `" + route + "` | " + who + " |\n"; !strings.Contains(string(manual), row) {
			t.Errorf("docs/security.md lacks the row %q", row)
		}
	}
}
