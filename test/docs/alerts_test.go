package docs_test

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

const alertsFile = "../../docs/metrics/alerts.yaml"

// alertRule is a rule of the file. Keys that Prometheus does not have are errors.
type alertRule struct {
	Alert, Expr, For    string
	Labels, Annotations map[string]string
}

func readAlerts(t *testing.T) []alertRule {
	t.Helper()
	text, err := os.ReadFile(alertsFile)
	if err != nil {
		t.Fatal(err)
	}
	var file struct {
		Groups []struct {
			Name  string
			Rules []alertRule
		}
	}
	read := yaml.NewDecoder(bytes.NewReader(text))
	read.KnownFields(true)
	if err := read.Decode(&file); err != nil {
		t.Fatal(err)
	}
	if err := read.Decode(&file); !errors.Is(err, io.EOF) {
		t.Fatalf("after the first document: %v, want the end of the file", err)
	}
	var rules []alertRule
	for _, group := range file.Groups {
		rules = append(rules, group.Rules...)
	}
	return rules
}

// Each alert rule has a severity, a summary, and a section of the documents that exists. Its page
// or the runbooks name the alert, and they name no other.
func TestAlertsLeadToDocuments(t *testing.T) {
	pages := ""
	for _, name := range []string{"metrics.md", "runbooks.md"} {
		text, err := os.ReadFile(filepath.Join("../../docs", name))
		if err != nil {
			t.Fatal(err)
		}
		pages += string(text)
	}
	told := namesIn(pages, regexp.MustCompile(`\b(Lessor[A-Z]\w+)`))
	rules := map[string]bool{}
	for _, rule := range readAlerts(t) {
		if rules[rule.Alert] {
			t.Errorf("there are two rules %s", rule.Alert)
		}
		rules[rule.Alert] = true
		if severity := rule.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: the severity is %q, want critical or warning", rule.Alert, severity)
		}
		if rule.Expr == "" || rule.Annotations["summary"] == "" {
			t.Errorf("%s has no expression or no summary", rule.Alert)
		}
		page, section, _ := strings.Cut(rule.Annotations["runbook_url"], "#")
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil || !sections(string(text))[section] {
			t.Errorf("%s: runbook_url is %q, which is no section of a document (%v)",
				rule.Alert, rule.Annotations["runbook_url"], err)
		}
	}
	if len(rules) < 10 || !maps.Equal(rules, told) {
		t.Errorf("the rules are %v,\nmetrics.md and runbooks.md name %v",
			slices.Sorted(maps.Keys(rules)), slices.Sorted(maps.Keys(told)))
	}
}

// sections returns the anchors of the headings of a page.
func sections(page string) map[string]bool {
	found := map[string]bool{}
	for heading := range namesIn(page, regexp.MustCompile(`(?m)^#+ (.+)$`)) {
		anchor := regexp.MustCompile(`[^a-z0-9 _-]`).ReplaceAllString(strings.ToLower(heading), "")
		found[strings.ReplaceAll(anchor, " ", "-")] = true
	}
	return found
}

// The rules are valid for Prometheus, and the series of testdata/alerts*_test.yaml raise the alerts
// that these files say.
func TestAlertsFire(t *testing.T) {
	promtool, err := exec.LookPath("promtool")
	if err != nil {
		t.Skip("needs promtool")
	}
	test := exec.CommandContext(t.Context(), promtool, "test", "rules", "testdata/alerts_test.yaml",
		"testdata/alerts_minutes_test.yaml")
	if out, err := test.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
