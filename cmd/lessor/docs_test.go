package main

import (
	"cmp"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/alecthomas/kong"

	"github.com/lessor-dev/lessor/internal/execworker"
)

// eachNode calls visit for the application, each group of commands, and each command.
func eachNode(t *testing.T, visit func(node *kong.Node)) {
	t.Helper()
	parser, err := newParser(&cli{}, streams{})
	if err != nil {
		t.Fatal(err)
	}
	err = kong.Visit(parser.Model.Node, func(n kong.Visitable, next kong.Next) error {
		if node, ok := n.(*kong.Node); ok {
			visit(node)
		}
		return next(nil)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// eachFlagOf calls visit for each flag of each command.
func eachFlagOf(t *testing.T, visit func(command string, flag *kong.Flag)) {
	t.Helper()
	eachNode(t, func(node *kong.Node) {
		for _, flag := range node.Flags {
			visit(node.Path(), flag)
		}
	})
}

func readDoc(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

var rowOfCommand = regexp.MustCompile("(?m)^\\| \\[`lessor ([a-z ]+)`\\]\\(([^)#]*)")

// docs/cli.md has one row for each command. It links to the page of the command, which names the
// command and all its flags. Those that commands share may be on docs/cli.md instead.
func TestManualNamesEveryCommandAndFlag(t *testing.T) {
	pages := make(map[string]string) // by command
	for _, row := range rowOfCommand.FindAllStringSubmatch(readDoc(t, "cli.md"), -1) {
		if pages[row[1]] != "" {
			t.Errorf("docs/cli.md has two rows of lessor %s", row[1])
		}
		pages[row[1]] = cmp.Or(row[2], "cli.md")
	}
	eachNode(t, func(node *kong.Node) {
		command, page := node.Path(), "cli.md"
		if node.Type == kong.CommandNode && len(node.Children) == 0 {
			page = pages[command]
			delete(pages, command)
		}
		if page == "" {
			t.Errorf("docs/cli.md has no row of lessor %s", command)
			return
		}
		text := readDoc(t, page)
		if !strings.Contains(text, command) {
			t.Errorf("docs/%s does not mention %q", page, command)
		}
		for _, flag := range node.Flags {
			shared := flag.Name == "help" || flag.Tag.Has("shared")
			named := regexp.MustCompile(`--` + flag.Name + `(?:[^-\w]|$)`)
			if !named.MatchString(text) && (!shared || !named.MatchString(readDoc(t, "cli.md"))) {
				t.Errorf("docs/%s does not mention --%s of lessor %s", page, flag.Name, command)
			}
		}
	})
	for command := range pages {
		t.Errorf("docs/cli.md has a row of lessor %s, which does not exist", command)
	}
}

// The shell and the parser accept each command of the pages that people copy from when they are in
// a hurry.
func TestCommandsOfThePages(t *testing.T) {
	bin := fakeLessor(t)
	for page, least := range map[string]int{
		"runbooks.md": 21, "operations.md": 8, "coming-from.md": 2, "security.md": 4,
		"packages.md": 1, "pools.md": 6, "cli/run.md": 1, "cli/tasks.md": 30, "cli/worker-run.md": 2, "cli/connected-workers.md": 5,
		"cli/credentials.md": 4, "cli/bench.md": 4,
	} {
		commands := commandsOf(readDoc(t, page))
		for _, command := range commands {
			command = strings.ReplaceAll(command, "$run", "r") // a line above has set it
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
	// a line that ends with | goes on
	inShell   = regexp.MustCompile(`(?m)^ *((?:[A-Z_]+=\S+ )*lessor (?:.*\|\n)*.*)$`)
	inConsole = regexp.MustCompile(`(?m)^ *\$ ((?:[A-Z_]+=\S+ )*lessor (?:.*\|\n)*.*)$`)
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

// Users rely on the table of variables: each variable in it must exist, and it must list all the
// variables of the long-running commands.
func TestTableOfVariablesMatchesTheFlags(t *testing.T) {
	table := make(map[string]bool)
	row := regexp.MustCompile("(?m)^\\|[^|]*\\| `(LESSOR_[A-Z_]+)` \\|")
	for _, match := range row.FindAllStringSubmatch(readDoc(t, "configuration.md"), -1) {
		table[match[1]] = true
	}
	known, seen := make(map[string]bool), make(map[string]bool)
	// the first is the application, with the flags that all commands share
	longRunning := []string{"", "serve", "worker run"}
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

// A variable that was left over must not choose what a command changes, or confirm it, or make two
// tasks one. The page lists the flags that are only for the command line.
func TestFlagsOnlyOnTheCommandLine(t *testing.T) {
	_, section, found := strings.Cut(readDoc(t, "configuration.md"), "\n## Only on the command line\n")
	if !found {
		t.Fatal("docs/configuration.md has no such section")
	}
	selects := regexp.MustCompile(`^task (list|count|cancel|retry|delete) --(queue|state|run-id|type|host-node|concurrency-key|label|all)$|` +
		`^worker (install|uninstall) --(worker|session|queue|pool|label|all)$|^submit --(payload|lines|idempotency-key|run-id|task-key|asset-id)$|` +
		` --(yes|force|all|requeue|retry-failed)$`)
	named := make(map[string]bool)
	for _, flag := range regexp.MustCompile("`(--[a-z-]+)`").FindAllStringSubmatch(section, -1) {
		named[flag[1]] = false
	}
	eachFlagOf(t, func(command string, flag *kong.Flag) {
		name := "--" + flag.Name
		switch typed := flag.Tag.Has("typed"); {
		case typed != (len(flag.Envs) == 0) && flag.Name != "help" && flag.Name != "version":
			t.Errorf("%s of lessor %s is read from %q; only on the command line: %t", name, command, flag.Envs, typed)
		case selects.MatchString(command+" "+name) && !typed:
			t.Errorf("a variable or a file can set %s of lessor %s", name, command)
		case typed:
			if _, listed := named[name]; !listed {
				t.Errorf("docs/configuration.md does not list %s of lessor %s as one for the command line", name, command)
			}
			named[name] = true
		}
	})
	for name, exists := range named {
		if !exists {
			t.Errorf("docs/configuration.md lists %s as one for the command line, which it is not", name)
		}
	}
}

// The command of a task may itself be lessor. So no flag may read a variable that the worker sets
// for a task. The exception is LESSOR_WORKSPACE: a lessor in the command uses the workspace of the
// task.
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
