package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"strings"
)

func main() {
	required := flag.String("require", "", "letters of the groups of which every rule must have a test")
	flag.Parse()
	if err := run(flag.Arg(0), *required, os.Stdin, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "rules:", err)
		os.Exit(1)
	}
}

// run prints the results of the tests in the stream, and if there is a path, the table of the rules
// in that document. It returns an error if something is wrong with the tests.
func run(path, required string, stream io.Reader, out io.Writer) error {
	var all []rule
	if path != "" {
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if all, err = parseRules(string(text)); err != nil {
			return fmt.Errorf("%s: %w", path, err)
		}
	}
	tests, err := readTests(stream, out)
	if err != nil {
		return err
	}
	if path != "" {
		printTable(out, all, tests)
	}
	switch {
	case len(tests.failed) > 0:
		return fmt.Errorf("failed: %s", strings.Join(tests.failed, ", "))
	case path == "":
		return nil
	}
	return judge(all, tests, required)
}

// judge returns an error if a test declares a rule that does not exist, or a required rule has no
// test.
func judge(all []rule, tests *tests, required string) error {
	known := map[string]bool{}
	var missing []string
	for _, r := range all {
		known[r.id] = true
		if strings.Contains(required, r.id[:1]) && len(tests.of(r.id)) == 0 {
			missing = append(missing, r.id)
		}
	}
	for id, by := range tests.declared {
		if !known[id] {
			return fmt.Errorf("there is no rule %s; it is declared by %s", id, by[0])
		}
	}
	if len(missing) > 0 {
		return fmt.Errorf("no test that passed declares %s", strings.Join(missing, ", "))
	}
	return nil
}

func printTable(out io.Writer, all []rule, tests *tests) {
	for _, r := range all {
		fmt.Fprintf(out, "%-4s %s\n", r.id, r.text)
		for _, name := range tests.of(r.id) {
			fmt.Fprintf(out, "       %s\n", name)
		}
	}
}
