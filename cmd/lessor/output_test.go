package main

import (
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// On a terminal, a last cell that would make its row wider than the terminal goes below the row,
// broken into lines. Elsewhere a row is always one line.
func TestTablesFitTheTerminal(t *testing.T) {
	const text = "CONFIGURATION: exit status 78: cannot open /data/ä.png: no such file or directory, the volume is not mounted"
	print := func(width int) string {
		var out strings.Builder
		table := newTable(&out, "AT", "EVENT", "WHY")
		table.width = width
		table.row("2026-11-23 00:16:52.868", "GRANTED", "")
		table.row("2026-11-23 00:16:52.881", "FAILED", text)
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	rows := "AT                       EVENT    WHY\n2026-11-23 00:16:52.868  GRANTED  -\n2026-11-23 00:16:52.881  FAILED"
	if got, want := print(0), rows+"   "+text+"\n"; got != want {
		t.Errorf("no terminal:\n%s\nwant\n%s", got, want)
	}
	below := "\n    CONFIGURATION: exit status 78: cannot open /data/ä.png: no such file or\n    directory, the volume is not mounted\n"
	if got, want := print(80), rows+below; got != want {
		t.Errorf("a terminal of 80 columns:\n%s\nwant\n%s", got, want)
	}
	exact := 34 + utf8.RuneCountInString(text)
	if got, want := print(exact), print(0); got != want {
		t.Errorf("a terminal in which it just fits:\n%s\nwant\n%s", got, want)
	}
	if got := print(exact - 1); strings.Count(got, "\n") != 4 {
		t.Errorf("a terminal that is one column too narrow: want 4 lines\n%s", got)
	}
	// a line holds at least one word, even if the word is wider than the terminal
	for line := range strings.Lines(print(5)) {
		if fields := strings.Fields(line); strings.HasPrefix(line, "    ") && len(fields) != 1 {
			t.Errorf("a terminal of 5 columns has the line %q, want one word", line)
		}
	}
}

// If not even the other columns fit beside each other, those that do not fit go below the row,
// those of the header too.
func TestColumnsThatDoNotFitGoBelow(t *testing.T) {
	var out strings.Builder
	table := newTable(&out, "AT", "SUBJECT", "ACTION", "OUTCOME", "DETAIL")
	table.width = 40
	table.row("00:16:52.868", "lessor token create", "CreateToken", "OK", "role:ROLE_OPERATOR")
	table.row("00:16:52.901", "ann", "RevokeToken", "OK", "")
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"AT            SUBJECT", "    ACTION OUTCOME DETAIL",
		"00:16:52.868  lessor token create", "    CreateToken OK role:ROLE_OPERATOR",
		"00:16:52.901  ann", "    RevokeToken OK -", "",
	}, "\n")
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// On a terminal that is too narrow, one long name does not break all rows: its column is clipped.
// What is short, such as an id, is whole, and nothing is clipped elsewhere, or if there would be no
// room anyway.
func TestLongNamesAreClippedOnATerminal(t *testing.T) {
	long := strings.Repeat("n", 51)
	print := func(width int, last string) string {
		var out strings.Builder
		table := newTable(&out, "TASK", "QUEUE", "AGE", "DETAIL")
		table.width = width
		table.row("t0000200000000001", long, "5m", "")
		table.row("t0000200000000002", "mail", "6m", last)
		if err := table.flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	want := strings.Join([]string{
		"TASK               QUEUE" + strings.Repeat(" ", 35) + "AGE  DETAIL",
		"t0000200000000001  " + strings.Repeat("n", 37) + "…  5m   -",
		"t0000200000000002  mail" + strings.Repeat(" ", 36) + "6m   exit status 7", "",
	}, "\n")
	if got := print(77, "exit status 7"); got != want {
		t.Errorf("a terminal of 77 columns:\n%s\nwant\n%s", got, want)
	}
	for width, whole := range map[int]bool{0: true, 200: true, 20: true, 60: false, 40: false} {
		if got := print(width, "-"); strings.Contains(got, long) != whole || !strings.Contains(got, "t0000200000000001") {
			t.Errorf("%d columns: the name is whole: %t, want %t, and the id whole\n%s", width, !whole, whole, got)
		}
	}
	text := strings.Repeat("why ", 20) // goes below
	if got := print(80, text); strings.Contains(got, "…") || !strings.Contains(got, "\n    why why") {
		t.Errorf("with a long text in the last column:\n%s\nwant it below, and the name whole", got)
	}
}

// The errors of tasks are clipped for people, but not for a program that reads them from a pipe or
// a file, however they are listed.
func TestDetailIsWholeInAPipe(t *testing.T) {
	why := strings.Repeat("why ", 30) + "end"
	task := &lessorv1.Task{TaskId: "t1", State: lessorv1.TaskState_TASK_STATE_FAILED, Error: &lessorv1.TaskError{Message: why}}
	event := &lessorv1.AuditEvent{Action: "CreateToken", Detail: why}
	for width, whole := range map[int]bool{0: true, 500: false} {
		var out strings.Builder
		tasks, events := newTaskListing(&app{streams: streams{out: &out}}), newAuditListing(&app{streams: streams{out: &out}})
		tasks.table.width, events.table.width = width, width
		if err := errors.Join(tasks.add(task, taskCells(task)...), events.add(event, auditCells(event)...), tasks.flush(), events.flush()); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(out.String(), why); n != 0 && !whole || n != 2 && whole {
			t.Errorf("with %d columns, %d of 2 details are whole, want all: %t\n%s", width, n, whole, &out)
		}
	}
}

// Columns stay straight with characters that are wide, such as Chinese ones and emoji, and with
// those that only change the one before them.
func TestColumnsAreStraightWithAnyCharacters(t *testing.T) {
	var out strings.Builder
	table := newTable(&out, "QUEUE", "KEY", "N")
	table.row("日本語", "写真", "1")
	table.row("한", "\u1112\u1161\u11ab", "2") // a whole syllable, and the same in parts
	table.row("zoe\u0301", "🎉!", "3")
	table.row("ｶﾅ", "a\u200db", "4")
	if err := table.flush(); err != nil {
		t.Fatal(err)
	}
	want := strings.Join([]string{
		"QUEUE   KEY   N",
		"日本語  写真  1",
		"한      \u1112\u1161\u11ab    2",
		"zoe\u0301     🎉!   3",
		"ｶﾅ      a\u200db    4", "",
	}, "\n")
	if got := out.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The text of a cell that is clipped takes at most 60 columns, and is not clipped if it fits.
func TestClippedTextFitsItsColumns(t *testing.T) {
	for text, want := range map[string]string{
		strings.Repeat("a", 60):             strings.Repeat("a", 60),
		strings.Repeat("a", 61):             strings.Repeat("a", 59) + "…",
		strings.Repeat("語", 30):             strings.Repeat("語", 30),
		strings.Repeat("語", 31):             strings.Repeat("語", 29) + "…",
		"a" + strings.Repeat("語", 30):       "a" + strings.Repeat("語", 29) + "…",
		strings.Repeat("e\u0301", 60) + "a": strings.Repeat("e\u0301", 59) + "…",
		strings.Repeat("e\u0301", 60):       strings.Repeat("e\u0301", 60),
	} {
		if got := clipped(text); got != want {
			t.Errorf("%s: got %s, want %s", text, got, want)
		}
	}
}
