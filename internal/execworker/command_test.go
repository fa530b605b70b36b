package execworker

import (
	"slices"
	"strings"
	"testing"
)

func TestFillPutsThePayloadInPlaceOfThePlaceholders(t *testing.T) {
	for name, test := range map[string]struct {
		placeholder   string
		command, want Command
	}{
		"an argument of its own": {"{}", Command{"cp", "{}", "/tmp"}, Command{"cp", "a b", "/tmp"}},
		"inside of an argument":  {"{}", Command{"sh", "-c", "wc -l '{}' > '{}.n'"}, Command{"sh", "-c", "wc -l 'a b' > 'a b.n'"}},
		"the program itself":     {"{}", Command{"./{}", "x"}, Command{"./a b", "x"}},
		"none: last, as xargs":   {"{}", Command{"sha256sum", "-b"}, Command{"sha256sum", "-b", "a b"}},
		"another placeholder":    {"%", Command{"curl", "-d", "{}", "http://h/%/%"}, Command{"curl", "-d", "{}", "http://h/a b/a b"}},
		"no placeholder":         {"", Command{"curl", "-d", "{}"}, Command{"curl", "-d", "{}", "a b"}},
	} {
		t.Run(name, func(t *testing.T) {
			original := slices.Clone(test.command)
			if got := test.command.Fill(test.placeholder, "a b"); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if !slices.Equal(test.command, original) {
				t.Errorf("Fill changed the template to %q, want %q", test.command, original)
			}
		})
	}
}

func TestCheckFindsTheProgramBeforeAnythingRuns(t *testing.T) {
	for _, test := range []struct {
		command Command
		problem string
	}{
		{Command{"sh"}, ""},
		{Command{"{}"}, ""},
		{nil, "no command"},
		{Command{""}, "no command"},
		{Command{"no-such-program-anywhere"}, `cannot run "no-such-program-anywhere": executable file not found`},
	} {
		err := test.command.Check("{}")
		switch {
		case test.problem == "" && err != nil:
			t.Errorf("%q: Check = %v, want nil", test.command, err)
		case test.problem != "" && (err == nil || !strings.Contains(err.Error(), test.problem)):
			t.Errorf("%q: got %v, want %q", test.command, err, test.problem)
		}
	}
	for _, placeholder := range []string{"", "%"} {
		if err := (Command{"{}"}).Check(placeholder); err == nil {
			t.Errorf("with the placeholder %q, a program that is named {} is not missed", placeholder)
		}
	}
}
