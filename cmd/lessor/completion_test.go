package main

import (
	"slices"
	"strings"
	"testing"
)

// A line is completed with commands, flags, or the values of a flag. Without such values, and where
// another program's words are, the shell completes names of files.
func TestCompleteLine(t *testing.T) {
	parser, err := newParser(&cli{}, streams{})
	if err != nil {
		t.Fatal(err)
	}
	for line, want := range map[string]string{
		"lessor ta":                           "task",
		"lessor task re":                      "retry",
		"lessor --json task li":               "list",
		"lessor --config re task":             "task",
		"lessor task list --st":               "--state",
		"lessor task list --limit 5 --concur": "--concurrency-key",
		"lessor task list --limit=5 --concur": "--concurrency-key",
		"lessor task list --js":               "--json",
		"lessor task list --state CANC":       "CANCELLING CANCELLED",
		"lessor task list --state=RE":         "READY",
		"lessor task list --state READY,RU":   "READY,RUNNING",
		"lessor task list --state=FAILED,CA":  "FAILED,CANCELLING FAILED,CANCELLED",
		"lessor task list --state READY,no,":  "READY,no,SCHEDULED READY,no,READY READY,no,LEASED READY,no,RUNNING READY,no,CANCELLING READY,no,COMPLETED READY,no,FAILED READY,no,CANCELLED",
		"lessor task list --queue a,b":        "",
		"lessor serve --log-level ":           "debug info warn error",
		"lessor run -j 4 --keep":              "--keep-order",
		"lessor worker run -j 2 --single":     "--single-flight",
		"lessor task list --queue ":           "",
		"lessor task list --queue=re":         "",
		"lessor --no-such=ta":                 "",
		"lessor task get re":                  "",
		"lessor run -- task --":               "",
		"lessor run -k task --":               "",
		"lessor worker run --queue q task --": "",
		"  ":                                  "",
	} {
		var out strings.Builder
		if err := completeLine(&out, parser.Model.Node, line, ""); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(strings.Fields(out.String()), " "); got != want {
			t.Errorf("%q is completed with %q, want %q", line, got, want)
		}
	}
	for _, line := range []string{"lessor", "lessor "} {
		var out strings.Builder
		if err := completeLine(&out, parser.Model.Node, line, ""); err != nil {
			t.Fatal(err)
		}
		if got := strings.Fields(out.String()); !slices.Contains(got, "task") || len(got) != len(parser.Model.Children) {
			t.Errorf("%q is completed with %q, want all commands", line, got)
		}
	}
}
