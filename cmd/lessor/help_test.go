package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// eachHelp calls visit with the text below the flags of each command.
func eachHelp(t *testing.T, visit func(command, text string)) {
	t.Helper()
	eachNode(t, func(node *kong.Node) {
		if node.Type == kong.CommandNode {
			visit(node.Path(), node.Detail)
		}
	})
}

// The shell and the parser accept each example of --help.
func TestExamplesOfTheHelp(t *testing.T) {
	bin := fakeLessor(t)
	var examples int
	eachHelp(t, func(command, text string) {
		_, below, _ := strings.Cut(text, "\nExample")
		for line := range strings.Lines(below) {
			line = strings.TrimSpace(line)
			if !isExample.MatchString(line) {
				continue
			}
			examples++
			for _, args := range wordsOf(t, bin, line) {
				// sets what would be missing
				if err := parseError(t, args); err != "" && !strings.HasPrefix(line, "LESSOR_DATA=") {
					t.Errorf("%s --help: %s: %s", command, line, err)
				}
			}
		}
	})
	if examples < 50 {
		t.Errorf("%d examples, want those of all commands", examples)
	}
}

// fakeLessor returns a directory with a lessor that only writes down its arguments.
func fakeLessor(t *testing.T) (bin string) {
	t.Helper()
	bin = t.TempDir()
	const fake = "#!/bin/sh\nfor word; do printf '%s\\0' \"$word\"; done >> \"$WORDS\"\nprintf '\\1' >> \"$WORDS\"\n"
	if err := os.WriteFile(filepath.Join(bin, "lessor"), []byte(fake), 0o755); err != nil { //nolint:gosec // it must be executable
		t.Fatal(err)
	}
	return bin
}

// isExample matches a line that runs lessor, and not one of a YAML file.
var isExample = regexp.MustCompile(`^[^:]*\blessor `)

// wordsOf returns what a shell gives to each lessor of a line. It finds no other program.
func wordsOf(t *testing.T, bin, line string) (commands [][]string) {
	t.Helper()
	dir := t.TempDir()
	words := filepath.Join(dir, "words")
	cmd := exec.Command("/bin/sh", "-c", line)
	cmd.Dir, cmd.Env = dir, []string{"PATH=" + bin, "WORDS=" + words}
	_ = cmd.Run() // a program is missing
	said, err := os.ReadFile(words)
	if err != nil {
		t.Fatalf("%s: the shell runs no lessor: %v", line, err)
	}
	for command := range strings.SplitSeq(strings.TrimSuffix(string(said), "\x01"), "\x01") {
		commands = append(commands, strings.Split(strings.TrimSuffix(command, "\x00"), "\x00"))
	}
	return commands
}

// One example has another head than several.
func TestHeadsOfExamples(t *testing.T) {
	eachHelp(t, func(command, text string) {
		_, examples, found := strings.Cut(text, "\nExample")
		if !found {
			return
		}
		several := strings.HasPrefix(examples, "s:")
		if n := strings.Count(examples, "\n  "); !strings.Contains(examples, "- id:") && several != (n > 1) {
			t.Errorf("%s --help has %d examples; the head says several: %t", command, n, several)
		}
	})
}
