package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/term"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"

	"github.com/lessor-dev/lessor/internal/words"
)

// printJSON writes m on one line, with fields named as in the protos, including fields with their
// default. It leaves out the fields that the coordinator did not send, because they would look
// empty.
func printJSON(w io.Writer, m proto.Message, leftOut ...string) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	// protojson adds spaces at random, so that nobody depends on its output. Scripts need a stable
	// form.
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	_, err = w.Write(append(omitFields(line.Bytes(), leftOut), '\n'))
	return err
}

// line prints v as JSON, or else the text.
func (a *app) line(v any, text string) error {
	if a.json {
		return json.NewEncoder(a.out).Encode(v)
	}
	_, err := fmt.Fprintln(a.out, printable(text))
	return err
}

// announce prints a line of a process that goes on even if the line cannot be written, as on a full
// disk or into a pipe that is closed: what it does matters more than who is told. The log says so.
func (a *app) announce(log *slog.Logger, v any, text string) {
	if err := a.line(v, text); err != nil {
		log.Error("a line cannot be printed; the process goes on", "error", err.Error(), "line", text)
	}
}

// table prints rows in columns. The columns of later rows are at least as wide as those of rows
// that were flushed before them. If a row is wider than the terminal, its last cell, which has the
// longest text, goes to the lines below it, and so does each column for which no row has room; but
// first columns that are much wider than others, such as one with a long name, are clipped. If the
// output is not a terminal, a row is always one line, and whole.
type table struct {
	w      io.Writer
	width  int  // of the terminal; 0: not a terminal
	clips  bool // the last cell is clipped on a terminal, see clipped
	rows   [][]string
	widths []int // of the columns so far
}

func newTable(w io.Writer, heads ...string) *table {
	t := &table{w: w, width: widthOf(w), widths: make([]int, len(heads))}
	t.row(heads...)
	return t
}

// widthOf returns the number of columns of the terminal that w writes to, or 0 if it is not a
// terminal.
func widthOf(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil { // a file, or a pipe
		return 0
	}
	return width
}

func (t *table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	if last := len(cells) - 1; t.clips && t.width > 0 {
		cells[last] = clipped(cells[last])
	}
	t.rows = append(t.rows, cells)
}

// flush prints the rows that it has not printed yet.
func (t *table) flush() error {
	for _, cells := range t.rows {
		for i, cell := range cells {
			t.widths[i] = max(t.widths[i], columns(cell))
		}
	}
	out, shown := bufio.NewWriter(t.w), t.shown()
	for _, cells := range t.rows {
		t.write(out, cells, shown)
	}
	t.rows = t.rows[:0]
	return out.Flush()
}

// write prints a row; flush returns the error.
func (t *table) write(out *bufio.Writer, cells []string, widths []int) {
	beside := t.beside(widths)
	var line strings.Builder
	for i, cell := range cells[:beside] {
		line.WriteString(padded(clippedTo(cell, widths[i]), widths[i]) + "  ")
	}
	text := strings.Join(cells[beside:], "  ")
	used := columns(line.String())
	if t.width == 0 || beside == len(cells)-1 && used+columns(text) <= t.width {
		_, _ = fmt.Fprintln(out, line.String()+text)
		return
	}
	_, _ = fmt.Fprintln(out, strings.TrimRight(line.String(), " "))
	const indent = "    "
	for _, part := range wrapped(text, t.width-len(indent)) {
		_, _ = fmt.Fprintln(out, indent+part)
	}
}

// A column that is wider than longName is clipped if the terminal is too narrow, to leastShown at
// most. Ids and times are never that wide, and stay whole.
const longName, leastShown = 24, 12

// shown returns how wide the columns are shown: as wide as they are, unless the terminal has no
// room for them. Then long ones are clipped, if that makes room for all, or for all but the last
// one, which goes below.
func (t *table) shown() []int {
	last := len(t.widths) - 1
	beside := 2 * last
	for _, width := range t.widths[:last] {
		beside += width
	}
	if t.width == 0 || t.widths[last] > longName && beside <= t.width {
		return t.widths
	}
	for _, used := range []int{beside + t.widths[last], beside} {
		if widths := t.without(used - t.width); widths != nil {
			return widths
		}
	}
	return t.widths
}

// without returns the widths when so many columns of the terminal are taken from the long ones, the
// widest first; nil if they have not that many.
func (t *table) without(over int) []int {
	widths := slices.Clone(t.widths)
	for ; over > 0; over-- {
		widest := 0
		for i := range widths[:len(widths)-1] {
			if t.widths[i] > longName && (t.widths[widest] <= longName || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if t.widths[widest] <= longName || widths[widest] <= leastShown {
			return nil
		}
		widths[widest]--
	}
	return widths
}

// beside returns how many columns, without the last one, fit side by side: all, unless the terminal
// is too narrow for them.
func (t *table) beside(widths []int) int {
	last := len(widths) - 1
	if t.width == 0 {
		return last
	}
	used := 0
	for i, width := range widths[:last] {
		if used+width > t.width && i > 0 {
			return i
		}
		used += width + 2
	}
	return last
}

// wrapped returns a text in lines of at most width columns; a longer word has its own line.
func wrapped(text string, width int) (lines []string) {
	var line string
	for _, word := range strings.Fields(text) {
		switch {
		case line == "":
			line = word
		case columns(line)+1+columns(word) <= width:
			line += " " + word
		default:
			lines = append(lines, line)
			line = word
		}
	}
	return append(lines, line)
}

// printable makes the characters visible that would break a table, control the terminal, turn the
// direction of text around, or hide; a tab, which would begin a column, becomes a space, and an
// empty cell a dash.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return words.Visible(strings.ReplaceAll(s, "\t", " "), "")
}

// counted returns a number with a noun, in the plural unless it is 1.
func counted(n uint64, name string) string {
	if n != 1 {
		name += "s"
	}
	return fmt.Sprintf("%d %s", n, name)
}

// are is counted with a verb.
func are(n uint64, name string) string {
	if n == 1 {
		return counted(n, name) + " is"
	}
	return counted(n, name) + " are"
}

// age returns how long ago t was.
func age(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return words.Age(time.Since(t.AsTime()))
}

// zoneNow returns the time zone in which a table shows times. The head of the table names it once,
// so it is the same for all rows, also for times of the other half of the year.
func zoneNow() *time.Location {
	return time.FixedZone(time.Now().Zone())
}

// inZone returns the head of a column of times.
func inZone(head string) string { return head + " (" + zoneNow().String() + ")" }

// stamp returns a time for a table.
func stamp(t *timestamppb.Timestamp) string {
	return t.AsTime().In(zoneNow()).Format("2006-01-02 15:04:05.000")
}

// second returns a time for a table in which the order of the rows says what milliseconds would.
func second(t *timestamppb.Timestamp) string {
	return t.AsTime().In(zoneNow()).Format("2006-01-02 15:04:05")
}

// minute returns a time for a table in which seconds do not matter.
func minute(t *timestamppb.Timestamp) string {
	return t.AsTime().In(zoneNow()).Format("2006-01-02 15:04")
}

// clock returns a time for people, or "" if there is none.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format("2006-01-02 15:04:05.000 MST")
}
