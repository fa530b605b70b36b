package lease_test

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the results of the transcripts to testdata instead of comparing them")

// TestTranscripts replays testdata/*.txt. In a transcript a line that begins with "> " is a command (see narrator.commands), what follows it
// is its result, "# " is a comment, and a heading "## " names the rule that is shown and begins with an empty world. After a
// change of the rules, run with -update and review the difference as prose.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			got := replay(t, string(want))
			if *update {
				if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
				return
			}
			reportFirstDifference(t, got, string(want))
		})
	}
}

// replay runs the commands of a transcript and returns it with the results that they have now.
func replay(t *testing.T, transcript string) string {
	var out strings.Builder
	n := newNarrator(t)
	for line := range strings.Lines(transcript) {
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case strings.HasPrefix(line, "## "):
			n = newNarrator(t)
			out.WriteString(line)
		case isCommand:
			out.WriteString(line)
			out.WriteString(n.run(strings.TrimSpace(command)))
		case line == "\n", strings.HasPrefix(line, "# "):
			out.WriteString(line)
		}
	}
	return out.String()
}

func reportFirstDifference(t *testing.T, got, want string) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	rule := ""
	for i := range min(len(g), len(w)) {
		if strings.HasPrefix(w[i], "## ") {
			rule = w[i]
		}
		if g[i] != w[i] {
			t.Fatalf("line %d, under %q:\n got: %s\nwant: %s", i+1, rule, g[i], w[i])
		}
	}
	if len(g) != len(w) {
		t.Fatalf("%d lines became %d", len(w), len(g))
	}
}
