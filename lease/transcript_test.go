package lease_test

import (
	"flag"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write the results of the transcripts to testdata instead of comparing them")

// TestTranscripts replays testdata/*.txt. In a transcript, a line that begins with "> " is a
// command (see narrator.run), and the lines after it are its result. A line that begins with "# "
// is a comment. A heading, "## ", begins with the rules that its section shows; each section is a
// subtest and starts without tasks. After a change of the rules, run with -update and review the
// difference of the files.
func TestTranscripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no transcripts: %v", err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) { checkTranscript(t, file) })
	}
}

func checkTranscript(t *testing.T, file string) {
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	got, after := "", 0
	for _, section := range sections(string(text)) {
		heading, _, _ := strings.Cut(strings.TrimPrefix(section, "## "), "\n")
		now := section
		t.Run(heading, func(t *testing.T) {
			t.Attr("rules", leadingRules(heading))
			now = replay(t, section)
			if !*update {
				reportFirstDifference(t, now, section, after)
			}
		})
		got += now
		after += strings.Count(section, "\n")
	}
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sections splits a transcript before each heading. The text before the first heading is a section,
// too.
func sections(transcript string) []string {
	var all []string
	for line := range strings.Lines(transcript) {
		if strings.HasPrefix(line, "## ") || len(all) == 0 {
			all = append(all, "")
		}
		all[len(all)-1] += line
	}
	return all
}

// leadingRules returns the rules at the beginning of a heading, such as "T7 A3" of "T7 A3 A cancel
// ...".
func leadingRules(heading string) string {
	return strings.TrimSpace(regexp.MustCompile(`^([A-Z]\d+ )*`).FindString(heading))
}

// replay runs the commands of a section and returns the section with the results that they give
// now.
func replay(t *testing.T, section string) string {
	var out strings.Builder
	n := newNarrator(t)
	for line := range strings.Lines(section) {
		command, isCommand := strings.CutPrefix(line, "> ")
		switch {
		case isCommand:
			out.WriteString(line)
			out.WriteString(n.run(strings.TrimSpace(command)))
		case line == "\n", strings.HasPrefix(line, "#"):
			out.WriteString(line)
		}
	}
	return out.String()
}

// reportFirstDifference fails at the first line in which got differs from want. Want begins in its
// file after the given line, so that the message has the line of the file.
func reportFirstDifference(t *testing.T, got, want string, after int) {
	t.Helper()
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			t.Fatalf("line %d:\n got: %s\nwant: %s", after+i+1, g[i], w[i])
		}
	}
	if len(g) != len(w) {
		t.Fatalf("the section has %d lines now, want %d", len(g), len(w))
	}
}
