package main

import (
	"io"
	"reflect"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
)

// A flag KEY=VALUE whose key comes again with another value is refused; the error names the flag,
// the key and both values.
func TestRepeatedKeys(t *testing.T) {
	var flags int
	eachFlagOf(t, func(command string, flag *kong.Flag) {
		if flag.Target.Kind() != reflect.Map {
			return
		}
		flags++
		name := "--" + flag.Name
		given := [][]string{{name, "k=1", name, "j=1", name, "k=2"}}
		if flag.Tag.MapSep != -1 {
			given = append(given, []string{name, "j=1;k=1;k=2"}, []string{name, "k=1", name, "j=1;k=2"})
		}
		for _, args := range given {
			args = append(strings.Fields(command), args...)
			if err := parseError(t, args); !strings.HasPrefix(err, name+`: "k" is given twice: 1 and 2`) {
				t.Errorf("%v: error %q", args, err)
			}
		}
		args := append(strings.Fields(command), name, "k=1", name, "j=2", name, "k=1")
		if err := parseError(t, args); strings.Contains(err, name) {
			t.Errorf("%v, where no key has two values: error %q", args, err)
		}
	})
	if flags < 10 {
		t.Errorf("%d flags are KEY=VALUE, want all of them", flags)
	}
}

func parseError(t *testing.T, args []string) string {
	t.Helper()
	parser, err := newParser(&cli{}, streams{out: io.Discard, err: io.Discard}, args...)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := parser.Parse(args); err != nil {
		return err.Error()
	}
	return ""
}

// A variable of the environment has several values, each in a line, or divided as on the command
// line.
func TestRepeatedKeysInVariables(t *testing.T) {
	for variable, value := range map[string]string{"LESSOR_SUBMIT_LABEL": "k=1\nj=1\nk=2", "LESSOR_QUOTA": "k=1;j=1;k=2"} {
		t.Setenv(variable, value)
		command := map[string]string{"LESSOR_QUOTA": "serve --data d"}[variable]
		if command == "" {
			command = "submit --queue q"
		}
		if err := parseError(t, strings.Fields(command)); !strings.Contains(err, `"k" is given twice: 1 and 2`) {
			t.Errorf("%s=%q: error %q", variable, value, err)
		}
	}
}

// An escaped separator is part of a value.
func TestEscapedSeparator(t *testing.T) {
	got := parsed(t, "serve", "--data=d", `--quota=a=1\;2;b=3`).Serve.Quotas.Quota
	if want := map[string]string{"a": "1;2", "b": "3"}; !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
