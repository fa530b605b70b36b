package docs_test

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Each metric of the code has a row in docs/metrics.md, and each row is of a metric. The page, the
// alert rules and the dashboard use only such metrics.
func TestMetricsPageMatchesTheCode(t *testing.T) {
	page, err := os.ReadFile("../../docs/metrics.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := namesIn(string(page), regexp.MustCompile("(?m)^\\| `(lessor_[a-z_]+)`"))
	var files []string
	for _, dir := range []string{
		"coordinator", "coordinator/gate", "coordinator/preauth", "coordinator/session", "coordinator/recvlimit", "cmd/lessor", "worker/workermetrics",
	} {
		found, err := filepath.Glob(filepath.Join("../..", dir, "*.go"))
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	code := map[string]bool{}
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		maps.Copy(code, namesIn(string(text), regexp.MustCompile(`"(lessor_[a-z_]+)"`)))
	}
	if len(code) < 10 || !maps.Equal(rows, code) {
		t.Errorf("docs/metrics.md has %v,\nthe code %v", slices.Sorted(maps.Keys(rows)), slices.Sorted(maps.Keys(code)))
	}
	dashboard, err := os.ReadFile("../../docs/metrics/grafana.json")
	if err != nil || !json.Valid(dashboard) {
		t.Fatalf("the dashboard cannot be read: %v", err)
	}
	alerts := ""
	for _, rule := range readAlerts(t) {
		alerts += rule.Expr + "\n"
	}
	for name := range namesIn(string(page)+alerts+string(dashboard), regexp.MustCompile(`\b(lessor_[a-z_]+)`)) {
		if !code[strings.TrimSuffix(name, "_bucket")] {
			t.Errorf("the page, an alert rule or the dashboard is about %s, which is no metric of the code", name)
		}
	}
}

func namesIn(text string, name *regexp.Regexp) map[string]bool {
	found := map[string]bool{}
	for _, m := range name.FindAllStringSubmatch(text, -1) {
		found[m[1]] = true
	}
	return found
}
