package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/lessor-dev/lessor/internal/words"
)

// details prints one thing as a list of names and values.
type details struct{ w *tabwriter.Writer }

func newDetails(w io.Writer) details {
	return details{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
}

// add prints one value, unless it is empty. A long text keeps its lines.
func (d details) add(name, value string) {
	if value == "" {
		return
	}
	label := name + ":"
	for line := range strings.SplitSeq(strings.TrimRight(value, "\n"), "\n") {
		if line != "" { // printable would turn an empty line into a dash
			line = printable(line)
		}
		_, _ = fmt.Fprintf(d.w, "%s\t%s\n", label, line) // Flush returns the error
		label = ""
	}
}

// addEach prints the entries of a map, in the order of their keys. format has a verb for the key
// and one for the value.
func addEach[V any](d details, name, format string, entries map[string]V) {
	for _, key := range slices.Sorted(maps.Keys(entries)) {
		d.add(name, fmt.Sprintf(format, key, entries[key]))
	}
}

// addGauges adds a row for each gauge.
func (d details) addGauges(all map[string]float64) {
	for _, name := range slices.Sorted(maps.Keys(all)) {
		d.add("gauge", name+" "+words.Number(all[name]))
	}
}

func (d details) flush() error { return d.w.Flush() }
