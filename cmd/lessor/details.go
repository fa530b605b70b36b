package main

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// details prints one thing as names and values.
type details struct{ w *tabwriter.Writer }

func newDetails(w io.Writer) details {
	return details{tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)}
}

// add prints one value; an empty one is left out. The lines of a long text stay lines.
func (d details) add(name, value string) {
	if value == "" {
		return
	}
	label := name + ":"
	for line := range strings.SplitSeq(strings.TrimRight(value, "\n"), "\n") {
		if line != "" { // an empty line of a text is no missing value
			line = printable(line)
		}
		_, _ = fmt.Fprintf(d.w, "%s\t%s\n", label, line) // Flush tells
		label = ""
	}
}

func (d details) flush() error { return d.w.Flush() }

// bytesText is a size in its largest fitting unit.
func bytesText(n uint64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	size, suffix := float64(n)/unit, "KiB"
	for _, next := range []string{"MiB", "GiB", "TiB"} {
		if size < unit {
			break
		}
		size, suffix = size/unit, next
	}
	return fmt.Sprintf("%.1f %s", size, suffix)
}
