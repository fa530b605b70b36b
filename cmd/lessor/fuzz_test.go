package main

import (
	"io"
	"math"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/lessor-dev/lessor/internal/words"
)

// The parser accepts a command line or refuses it with a message, and never panics. The fuzzer's
// text is split into arguments at NUL bytes, which no argument of a process can hold.
func FuzzCommandLine(f *testing.F) {
	for _, line := range []string{
		"serve\x00--data\x00d\x00--quota\x00calls=5/s:10\x00--quota-tenant\x00a.tasks=1", "task\x00list\x00--state\x00READY\x00--label\x00a=b=c", "queue\x00update\x00q\x00--rate\x00-1/m",
		"submit\x00--run-at\x0010m\x00--priority\x00-5\x00q\x00\xff\xfe", "run\x00-j\x000\x00--\x00echo\x00{}", "worker\x00run\x00--queue\x00=\x00--", "--json=\x00--", "task\x00get\x00--addr", "\x00",
	} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		args := strings.Split(line, "\x00")
		for _, arg := range args {
			if strings.HasPrefix(arg, "--c") { // skips --config: it would read any file
				return
			}
		}
		defer func() {
			if p := recover(); p != nil {
				if _, help := p.(exited); !help {
					t.Errorf("%q: the parser panics with %v", args, p)
				}
			}
		}()
		parser, err := newParser(&cli{}, streams{out: io.Discard, err: io.Discard}, args...)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := parser.Parse(args); err != nil && err.Error() == "" {
			t.Errorf("%q is refused with an empty message, want one that says why", args)
		}
	})
}

// What is read as a rate is finite and not negative. The text that Lessor prints for a rate is read
// as nearly the same rate.
func FuzzRate(f *testing.F) {
	for _, text := range []string{"5", "5/s", "300/m", "1e300/d", "1e-320", "NaN", "Inf", "-0", "0x1p-1074", "/s", "5/", "1/s:5", "1_0"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var r rate
		if r.UnmarshalText([]byte(text)) == nil {
			n := float64(r)
			if math.IsNaN(n) || math.IsInf(n, 0) || n < 0 {
				t.Fatalf("%q is read as %v", text, n)
			}
			var again rate
			if err := again.UnmarshalText([]byte(words.Rate(n))); err != nil || math.Abs(float64(again)-n) > n/1e4 && n > 1e-300 {
				t.Errorf("%q is printed as %q, which is read as %v (%v), want nearly %v", text, words.Rate(n), again, err, n)
			}
		}
		if q, ok := readRate(text); ok && (math.IsNaN(q.PerSecond) || math.IsInf(q.PerSecond, 0) || q.PerSecond <= 0) {
			t.Errorf("the quota %q is read as %+v, want a finite rate above 0", text, q)
		}
	})
}

// Each part of a filter is read as one state, never UNSPECIFIED, and the printed name of the state
// is read as the same state again. If the filter is valid UTF-8, so is the error.
func FuzzStates(f *testing.F) {
	f.Add("READY")
	f.Add("ready,running")
	f.Add("TASK_STATE_READY")
	f.Add("UNSPECIFIED")
	f.Fuzz(func(t *testing.T, text string) {
		states, err := parseStates(strings.Split(text, ","))
		if err != nil && !utf8.ValidString(err.Error()) && utf8.ValidString(text) {
			t.Errorf("%q is refused with %q, want an error in valid UTF-8", text, err)
		}
		if err == nil && len(states) != len(strings.Split(text, ",")) {
			t.Errorf("%q is read as %v, want one state for each part", text, states)
		}
		for _, state := range states {
			name := words.Name(state)
			if again, err := parseStates([]string{name}); err != nil || state == 0 || again[0] != state {
				t.Errorf("%q is read as %v, whose name %s is read as %v (%v), want the same state", text, state, name, again, err)
			}
		}
	})
}
