package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const document = `
| | rule |
|---|---|
| A1 | The first. |
| A2 | The second. |
| S1 | Of no required group. |
`

// begin declares A1 and A2 in two tests of one package; the second test has a subtest. The end of
// the second test is left to each case.
const begin = `{"Action":"start","Package":"github.com/lessor-dev/lessor/p"}
{"Action":"attr","Package":"github.com/lessor-dev/lessor/p","Test":"TestOne","Key":"rules","Value":"A1"}
{"Action":"attr","Package":"github.com/lessor-dev/lessor/p","Test":"TestOne","Key":"other","Value":"Z9"}
{"Action":"output","Package":"github.com/lessor-dev/lessor/p","Test":"TestOne","Output":"words of one\n"}
{"Action":"pass","Package":"github.com/lessor-dev/lessor/p","Test":"TestOne"}
{"Action":"attr","Package":"github.com/lessor-dev/lessor/p","Test":"TestTwo","Key":"rules","Value":"A2 A1"}
{"Action":"output","Package":"github.com/lessor-dev/lessor/p","Test":"TestTwo/part","Output":"words of the part\n"}
`

func TestRunErrors(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.md")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	end := func(part, two string) string {
		const of = `","Package":"github.com/lessor-dev/lessor/p","Test":"TestTwo`
		return begin + `{"Action":"` + part + of + `/part"}` + `{"Action":"` + two + of + `"}`
	}
	for _, tt := range []struct {
		name, stream, required string
		want                   string // empty: no error
	}{
		{"each has a test", end("pass", "pass"), "A", ""},
		{"no test", end("pass", "pass"), "AS", "no test that passed declares S1"},
		{"of a skipped test", end("skip", "skip"), "A", "no test that passed declares A2"},
		{"of a test with a skipped part", end("skip", "pass"), "A", "no test that passed declares A2"},
		{"of a test that did not end", begin, "A", "no test that passed declares A2"},
		{"not required", end("skip", "skip"), "", ""},
		{"of a test that failed", end("fail", "fail"), "", "failed: p TestTwo/part, p TestTwo"},
		{"of a test that took its process along", begin + `{"Action":"fail","Package":"github.com/lessor-dev/lessor/p"}`, "", "failed: p TestTwo/part, p"},
		{"a package that does not build", begin + `{"Action":"build-fail","ImportPath":"x/y"}`, "", "failed: x/y"},
		{"an unknown rule", strings.ReplaceAll(end("pass", "pass"), "other", "rules"), "", "there is no rule Z9; it is declared by p TestOne"},
		{"something else", "ok  \tp\t0.1s\n", "", "not the output of go test -json"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			err := run(path, tt.required, strings.NewReader(tt.stream), io.Discard)
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v, want nothing", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %s", err, tt.want)
			}
		})
	}
}

func TestTableNamesTheTestsOfARule(t *testing.T) {
	path := filepath.Join(t.TempDir(), "rules.md")
	if err := os.WriteFile(path, []byte(document), 0o600); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	stream := `{"Action":"pass","Package":"github.com/lessor-dev/lessor/q","Elapsed":1.23}` + begin +
		`{"Action":"fail","Package":"github.com/lessor-dev/lessor/p","Test":"TestTwo/part"}`
	if err := run(path, "", strings.NewReader(stream), &out); err == nil {
		t.Error("run = nil although a test failed, want an error")
	}
	const want = "ok   q                                        1.2s\nwords of the part\nA1   The first.\n       p TestOne\nA2   The second.\nS1   Of no required group.\n"
	if out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
}

func TestWithoutADocumentOnlyFailuresCount(t *testing.T) {
	const unknown = `{"Action":"attr","Package":"github.com/lessor-dev/lessor/p","Test":"TestTwo","Key":"rules","Value":"Z9"}`
	const passed = `{"Action":"pass","Package":"github.com/lessor-dev/lessor/p","Elapsed":0.5}`
	var out strings.Builder
	if err := run("", "", strings.NewReader(begin+unknown+passed), &out); err != nil {
		t.Errorf("run = %v, want nil", err)
	}
	if want := "ok   p                                        0.5s\n"; out.String() != want {
		t.Errorf("got %q, want %q", out.String(), want)
	}
	if err := run("", "", strings.NewReader(begin+`{"Action":"fail","Package":"github.com/lessor-dev/lessor/p"}`), io.Discard); err == nil {
		t.Error("run = nil although a package failed, want an error")
	}
}

func TestBadDocumentsAreRefused(t *testing.T) {
	for _, text := range []string{"", "| A1 | x |\n| A1 | y |\n"} {
		if all, err := parseRules(text); err == nil {
			t.Errorf("the document %q is read as %v, want an error", text, all)
		}
	}
}
