package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// printJSON writes m on one line, fields named as in the protos, those at their default included; but not those that the
// coordinator left out of m, which would look empty.
func printJSON(w io.Writer, m proto.Message, leftOut ...string) error {
	raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m)
	if err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	if raw, err = without(raw, leftOut); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	// protojson adds spaces at random, so that nobody depends on its form; scripts get a stable one.
	var line bytes.Buffer
	if err := json.Compact(&line, raw); err != nil {
		return fmt.Errorf("writing JSON: %w", err)
	}
	line.WriteByte('\n')
	_, err = w.Write(line.Bytes())
	return err
}

// table prints rows in columns.
type table struct{ w *tabwriter.Writer }

func newTable(w io.Writer, heads ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
	t.row(heads...)
	return t
}

func (t table) row(cells ...string) {
	for i, cell := range cells {
		cells[i] = printable(cell)
	}
	_, _ = fmt.Fprintln(t.w, strings.Join(cells, "\t")) // flush tells
}

func (t table) flush() error { return t.w.Flush() }

// printable replaces what would break a table or steer the terminal; an empty cell becomes a dash.
func printable(s string) string {
	if s == "" {
		return "-"
	}
	return strings.Map(func(r rune) rune {
		if r == '\t' {
			return ' ' // it would open a column
		}
		if r < ' ' || r == 0x7f || r >= 0x80 && r < 0xa0 {
			return '?'
		}
		return r
	}, s)
}

// short is an enum value without its prefix: TASK_STATE_READY is READY.
func short(value fmt.Stringer, prefix string) string {
	return strings.TrimPrefix(value.String(), prefix)
}

// age is how long ago t was, in its largest unit.
func age(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	d := max(time.Since(t.AsTime()), 0)
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}

// zoneNow is the zone in which a table shows times. Its head names it once, so it is the same for all rows, also those of the other half
// of the year.
func zoneNow() *time.Location {
	return time.FixedZone(time.Now().Zone())
}

// inZone heads a column of times.
func inZone(head string) string { return head + " (" + zoneNow().String() + ")" }

// stamp is a point in time in a table.
func stamp(t *timestamppb.Timestamp) string {
	return t.AsTime().In(zoneNow()).Format("2006-01-02 15:04:05.000")
}

// minute is a point in time in a table where seconds do not matter.
func minute(t *timestamppb.Timestamp) string {
	return t.AsTime().In(zoneNow()).Format("2006-01-02 15:04")
}

// clock is a point in time for people, empty where there is none.
func clock(t *timestamppb.Timestamp) string {
	if t == nil {
		return ""
	}
	return t.AsTime().Local().Format("2006-01-02 15:04:05.000 MST")
}
