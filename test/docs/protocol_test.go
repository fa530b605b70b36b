package docs_test

import (
	"go/ast"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const (
	protocol    = "../../docs/protocol.md"
	errorsTable = "../../docs/errors.md"
)

// readRows returns the cells of the rows of all tables below a heading of a page.
func readRows(t *testing.T, page, heading string) [][]string {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(text), "\n## "+heading+"\n")
	if !found {
		t.Fatalf("%s has no section %q", page, heading)
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var rows [][]string
	for line := range strings.Lines(section) {
		if cells := strings.Split(strings.TrimSpace(line), "|"); len(cells) > 3 {
			rows = append(rows, cells[1:len(cells)-1])
		}
	}
	return rows
}

var codeSpan = regexp.MustCompile("`([^`]+)`")

// spansIn returns the code spans of a cell.
func spansIn(cell string) []string {
	var all []string
	for _, m := range codeSpan.FindAllStringSubmatch(cell, -1) {
		all = append(all, m[1])
	}
	return all
}

// W14: docs/errors.md has one row for each code of coordinator and worker. Each code that comes in
// frames has rows in docs/protocol.md, too, and each row there names a test in which the code
// occurs.
func TestErrorCodesMatchTheCode(t *testing.T) {
	t.Attr("rules", "W14")
	sides := []*source{
		readSource(t, "coordinator", "coordinator/gate", "coordinator/preauth",
			"coordinator/quota", "coordinator/refusal", "coordinator/service", "coordinator/session"),
		readSource(t, "coordinator/httpapi"), readSource(t, "worker"),
	}
	rows, inFrames := map[string]int{}, map[string]bool{}
	for _, row := range readRows(t, errorsTable, "The codes") {
		for _, code := range spansIn(row[0]) {
			rows[code]++
			inFrames[code] = strings.Contains(row[1], "frame")
		}
	}
	known := map[string]bool{}
	for _, side := range sides {
		for code := range side.codes() {
			if known[code] = true; rows[code] != 1 {
				t.Errorf("%s has %d rows of %s, want one", errorsTable, rows[code], code)
			}
		}
	}
	for code := range rows {
		if !known[code] {
			t.Errorf("%s has a row of %s, which no package defines", errorsTable, code)
		}
	}
	for _, row := range readRows(t, protocol, "Codes") {
		for _, code := range spansIn(row[0]) {
			if !known[code] {
				t.Errorf("%s has a row of %s, which no package defines", protocol, code)
			}
			delete(inFrames, code)
			checkTests(t, sides, code, spansIn(row[len(row)-1]))
		}
	}
	for code, framed := range inFrames {
		if framed {
			t.Errorf("%s has no row of %s, which comes in frames", protocol, code)
		}
	}
}

// checkTests checks that the named tests exist, and that their files use the code.
func checkTests(t *testing.T, sides []*source, code string, tests []string) {
	t.Helper()
	if len(tests) == 0 {
		t.Errorf("a row of %s names no test, want at least one", code)
	}
	for _, name := range tests {
		if !slices.ContainsFunc(sides, func(s *source) bool {
			text := s.tests[name]
			constant := s.codes()[code]
			return strings.Contains(text, `"`+code+`"`) || constant != "" && strings.Contains(text, constant)
		}) {
			t.Errorf("the row of %s names %s, which does not exist or whose file does not use the code", code, name)
		}
	}
}

// scales are the units of the page, as multiples of those of the code.
var scales = map[string]int64{
	"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "µs": units["Microsecond"], "ms": units["Millisecond"], "s": units["Second"], "min": units["Minute"], "h": units["Hour"],
}

// The timers and limits of the page are those of the code.
func TestLimitsMatchTheCode(t *testing.T) {
	packages := map[string]*source{}
	for name, dir := range map[string]string{
		"coordinator": "coordinator", "convert": "coordinator/convert", "reqcodec": "coordinator/reqcodec", "engine": "coordinator/engine", "preauth": "coordinator/preauth",
		"service": "coordinator/service", "session": "coordinator/session", "lease": "lease", "wire": "internal/wire", "worker": "worker",
	} {
		packages[name] = readSource(t, dir)
	}
	checked := 0
	for _, row := range readRows(t, protocol, "Timers and limits") {
		for _, place := range spansIn(row[2]) {
			pkg, name, _ := strings.Cut(place, ".")
			checkLimit(t, packages[pkg], name, strings.TrimSpace(row[1]))
			checked++
		}
	}
	if checked < 30 {
		t.Errorf("the page names %d constants, want at least 30", checked)
	}
}

func checkLimit(t *testing.T, s *source, name, shown string) {
	t.Helper()
	var value ast.Expr
	if s != nil {
		if value = s.constants[name]; value == nil {
			value = s.variables[name] // a constant that tests make smaller
		}
	}
	if value == nil {
		t.Errorf("there is no constant %s", name)
		return
	}
	is, err := s.number(value)
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	digits, unit, _ := strings.Cut(shown, " ")
	says, err := strconv.ParseInt(strings.ReplaceAll(digits, ",", ""), 10, 64)
	scale, known := scales[unit]
	if err != nil || !known || says*scale != is {
		t.Errorf("%s is %d, the page says %q", name, is, shown)
	}
}

var arrow = regexp.MustCompile(`(?m)^  ([A-Z]+) --> ([A-Z]+):`)

// W1: the drawn states and transitions of the worker and of the coordinator are those of the code.
func TestStatesMatchTheCode(t *testing.T) {
	t.Attr("rules", "W1")
	var drawings []string
	for _, b := range readPage(t, protocol) {
		if strings.HasPrefix(b.text, "stateDiagram") {
			drawings = append(drawings, b.text)
		}
	}
	if len(drawings) != 2 {
		t.Fatalf("%d drawings of states, want the worker's and the coordinator's", len(drawings))
	}
	for i, dir := range []string{"worker", "coordinator/session"} {
		var drawn, is []string
		for _, m := range arrow.FindAllStringSubmatch(drawings[i], -1) {
			drawn = append(drawn, m[1]+" to "+m[2])
		}
		for _, a := range readSource(t, dir).moves(t, "moves") {
			is = append(is, shownState(a[0])+" to "+shownState(a[1]))
		}
		slices.Sort(drawn)
		slices.Sort(is)
		if !slices.Equal(drawn, slices.Compact(is)) {
			t.Errorf("the transitions of %s are %v, the page draws %v", dir, is, drawn)
		}
	}
}

// shownState returns the name on the page for a state of the code.
func shownState(name string) string {
	if name == "opening" {
		return "NEW"
	}
	return strings.ToUpper(strings.TrimPrefix(name, "State"))
}
