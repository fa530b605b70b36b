package main

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/execworker"
)

// eachFlagOf calls visit for each flag of each command.
func eachFlagOf(t *testing.T, visit func(command string, flag *kong.Flag)) {
	t.Helper()
	parser, err := newParser(&cli{}, streams{})
	if err != nil {
		t.Fatal(err)
	}
	err = kong.Visit(parser.Model.Node, func(n kong.Visitable, next kong.Next) error {
		if node, ok := n.(*kong.Node); ok {
			for _, flag := range node.Flags {
				visit(node.Path(), flag)
			}
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestManualNamesEveryCommandAndFlag(t *testing.T) {
	manual := readDoc(t, "cli.md")
	eachFlagOf(t, func(command string, flag *kong.Flag) {
		if !strings.Contains(manual, command) {
			t.Errorf("docs/cli.md does not mention %q", command)
		}
		shared := flag.Name == "help" || flag.Tag.Has("shared")
		if named := regexp.MustCompile(`--` + flag.Name + `(?:[^-\w]|$)`); !shared && !named.MatchString(manual) {
			t.Errorf("docs/cli.md does not mention --%s of %s", flag.Name, command)
		}
	})
}

// The shell and the parser accept each command of the pages that people copy from when they are in a hurry.
func TestCommandsOfThePages(t *testing.T) {
	bin := fakeLessor(t)
	for page, least := range map[string]int{"runbooks.md": 21, "operations.md": 8, "coming-from.md": 2, "security.md": 4} {
		commands := commandsOf(readDoc(t, page))
		for _, command := range commands {
			for _, args := range wordsOf(t, bin, command) {
				if err := parseError(t, args); err != "" {
					t.Errorf("docs/%s: %s: %s", page, command, err)
				}
			}
		}
		if len(commands) < least {
			t.Errorf("docs/%s: %d commands found, want at least %d", page, len(commands), least)
		}
	}
}

var (
	shellBlock = regexp.MustCompile("(?ms)^ *```(sh|console)\n(.*?)^ *```")
	inShell    = regexp.MustCompile(`(?m)^ *((?:[A-Z_]+=\S+ )*lessor (?:.*\|\n)*.*)$`) // a line that ends with | goes on
	inConsole  = regexp.MustCompile(`(?m)^ *\$ ((?:[A-Z_]+=\S+ )*lessor (?:.*\|\n)*.*)$`)
)

// commandsOf returns the commands of a page that begin with lessor.
func commandsOf(page string) (commands []string) {
	for _, block := range shellBlock.FindAllStringSubmatch(page, -1) {
		pattern := inShell
		if block[1] == "console" {
			pattern = inConsole
		}
		for _, m := range pattern.FindAllStringSubmatch(block[2], -1) {
			commands = append(commands, m[1])
		}
	}
	return commands
}

// Users rely on the table of variables: each variable in it must exist, and it must list all the variables of the long-running commands.
func TestTableOfVariablesMatchesTheFlags(t *testing.T) {
	table := make(map[string]bool)
	row := regexp.MustCompile("(?m)^\\|[^|]*\\| `(LESSOR_[A-Z_]+)` \\|")
	for _, match := range row.FindAllStringSubmatch(readDoc(t, "configuration.md"), -1) {
		table[match[1]] = true
	}
	known, seen := make(map[string]bool), make(map[string]bool)
	longRunning := []string{"", "serve", "worker run"} // the first is the application, with the flags that all commands share
	eachFlagOf(t, func(command string, flag *kong.Flag) {
		seen[command] = true
		for _, env := range flag.Envs {
			known[env] = true
			if slices.Contains(longRunning, command) && !table[env] {
				t.Errorf("docs/configuration.md does not list %s of %s", env, command)
			}
		}
	})
	for _, command := range longRunning {
		if !seen[command] {
			t.Errorf("there is no command %q to compare the table with", command)
		}
	}
	for env := range table {
		if !known[env] {
			t.Errorf("docs/configuration.md lists %s, which no flag reads", env)
		}
	}
}

// The command of a task may itself be lessor. So no flag may read a variable that the worker sets for a task. The exception is LESSOR_WORKSPACE: a
// lessor in the command uses the workspace of the task.
func TestNoFlagReadsAVariableOfATask(t *testing.T) {
	ofTask := execworker.Variables()
	eachFlagOf(t, func(command string, flag *kong.Flag) {
		for _, env := range flag.Envs {
			if env != "LESSOR_WORKSPACE" && slices.Contains(ofTask, env) {
				t.Errorf("--%s of %s reads %s, which a worker sets for each task", flag.Name, command, env)
			}
		}
	})
}
