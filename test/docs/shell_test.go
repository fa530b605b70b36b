package docs_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
)

// command is one command of a block, reduced to what the test needs.
type command struct {
	name string   // "lessor", "sleep", "grpcurl", or "frame" for a line that is typed into an open session
	args []string // without the request
	body string   // the request: the argument of -d, a here-document or a frame, with its variables
}

var (
	hereDocument = regexp.MustCompile(`^(grpcurl .*) -d @ ([^<\n]*[^<\s])(?: <<EOF\n([\s\S]*?\n)EOF)?\n`)
	quoted       = regexp.MustCompile(`^(grpcurl .*) -d '([^'\n]*)' (.*)\n`)
	plain        = regexp.MustCompile(`^((?:lessor|sleep|grpcurl) .*)\n`)
	frame        = regexp.MustCompile(`^(\{.*\})\n`)
)

// readShell splits a block into commands. It knows only the forms that the page uses.
func readShell(text string) ([]command, error) {
	var commands []command
	for text != "" {
		var c command
		var words string
		whole := ""
		if m := hereDocument.FindStringSubmatch(text); m != nil {
			whole, words, c.body = m[0], m[1]+" "+m[2], m[3]
		} else if m := quoted.FindStringSubmatch(text); m != nil {
			whole, words, c.body = m[0], m[1]+" "+m[3], m[2]
		} else if m := plain.FindStringSubmatch(text); m != nil {
			whole, words = m[0], m[1]
		} else if m := frame.FindStringSubmatch(text); m != nil {
			whole, words, c.body = m[0], "frame", m[1]
		} else {
			return nil, fmt.Errorf("the test does not understand %q", text)
		}
		c.args = strings.Fields(words)
		c.name, c.args = c.args[0], c.args[1:]
		commands, text = append(commands, c), text[len(whole):]
	}
	return commands, nil
}

var (
	filler   = regexp.MustCompile(`\$\(head -c (\d+) /dev/zero \| tr '\\0' (\w)\)`)
	variable = regexp.MustCompile(`\$(\w+)`)
)

// expand replaces variables, and the command substitution that makes a long value, as the shell
// would in a here-document.
func expand(text string, variables map[string]string) (string, error) {
	text = filler.ReplaceAllStringFunc(text, func(s string) string {
		m := filler.FindStringSubmatch(s)
		n, _ := strconv.Atoi(m[1]) // only digits, by the pattern
		return strings.Repeat(m[2], n)
	})
	var unset error
	text = variable.ReplaceAllStringFunc(text, func(s string) string {
		value, ok := variables[s[1:]]
		if !ok {
			unset = fmt.Errorf("%s is not set below this heading", s)
		}
		return value
	})
	return text, unset
}
