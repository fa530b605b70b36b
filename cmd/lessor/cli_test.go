package main

import (
	"io"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// Where the arguments name a command, the parser has no other, and says of it what the parser of
// all commands says.
func TestParserOfOneCommand(t *testing.T) {
	var out strings.Builder
	parserOf := func(first ...string) *kong.Kong {
		parser, err := newParser(&cli{}, streams{out: &out, err: io.Discard}, first...)
		if err != nil {
			t.Fatal(err)
		}
		return parser
	}
	help := func(parser *kong.Kong, command []string) (text string) {
		defer func() {
			_ = recover().(exited)
			text = out.String()
		}()
		out.Reset()
		_, _ = parser.Parse(append(command, "--help"))
		return "nothing"
	}
	all := parserOf()
	for _, command := range all.Model.Leaves(false) {
		words := strings.Fields(command.Path())
		alone := parserOf(append(words, "--json")...)
		if n := len(alone.Model.Leaves(false)); n != 1 {
			t.Errorf("the parser of %q has %d commands, want this one", words, n)
		}
		if got, want := help(alone, words), help(all, words); got != want || !strings.Contains(got, command.Help) {
			t.Errorf("the parser of %q says\n%s\nwant\n%s", words, got, want)
		}
	}
	for _, first := range []string{"tusk", "task", "--json"} {
		if n := len(parserOf(first, "gett").Model.Leaves(false)); n < 5 {
			t.Errorf("the parser of %s gett has %d commands, want all that may be meant", first, n)
		}
	}
}
