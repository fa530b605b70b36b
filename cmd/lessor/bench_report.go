package main

import (
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/lessor-dev/lessor/internal/bench"
)

// printReport writes a report as two tables.
func printReport(w io.Writer, r *bench.Report) error {
	m, l := r.Machine, r.Load
	_, err := fmt.Fprintf(w, "lessor %s on %s/%s, %d CPUs, %s\nload average before: %s\n"+
		"%s producers, %d workers x %d slots, %d tasks of %d bytes, backlog %s; %d repetitions, median (min..max)\n\n",
		m.Version, m.OS, m.Arch, m.CPUs, m.Go, loadText(m), numbers(l.Producers), l.Workers, l.Slots, l.Tasks,
		l.Payload, numbers(l.Backlogs), l.Repeat)
	if err != nil {
		return err
	}
	limits := newTable(w, "NAME", "LIMIT OF THE MACHINE", "FIGURE", "RANGE", "FLUSHES/1,000")
	for _, f := range r.Limits {
		limits.row(f.Name, f.Text, amount(f.Median)+" "+f.Unit, rangeText(f.Summary), medianText(f.Flushes))
	}
	if err := limits.flush(); err != nil {
		return err
	}
	if _, err := fmt.Fprintln(w); err != nil {
		return err
	}
	results := newTable(w, "RESULT", "FIGURE", "RANGE", "CPU MS/1,000", "FLUSHES/1,000", "SHARE", "OF THE LIMIT")
	for _, f := range r.Results {
		results.row(f.Text, amount(f.Median)+" "+f.Unit, rangeText(f.Summary), medianText(f.CPU),
			medianText(f.Flushes), shareText(f.Share), limitsText(f.Limits))
	}
	return results.flush()
}

func loadText(m bench.Machine) string {
	switch {
	case m.LoadAverage < 0:
		return "not known"
	case m.Busy():
		return fmt.Sprintf("%.2f: a busy machine, the shares say more than the figures", m.LoadAverage)
	}
	return fmt.Sprintf("%.2f", m.LoadAverage)
}

// amount formats a number with about three significant digits.
func amount(x float64) string {
	switch {
	case x >= 1000:
		return thousands(int64(x))
	case x >= 10:
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.2f", x)
}

// thousands formats 1234567 as 1,234,567.
func thousands(n int64) string {
	if n < 1000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", thousands(n/1000), n%1000)
}

func rangeText(s bench.Summary) string { return amount(s.Min) + ".." + amount(s.Max) }

// medianText returns a median, or "" if it is not known.
func medianText(s *bench.Summary) string {
	if s == nil {
		return ""
	}
	return fmt.Sprintf("%.1f", s.Median)
}

// numbers returns a list of numbers in the form that its flag takes, or 0 for none.
func numbers(list []int) string {
	if len(list) == 0 {
		return "0"
	}
	texts := make([]string, len(list))
	for i, n := range list {
		texts[i] = strconv.Itoa(n)
	}
	return strings.Join(texts, ",")
}

// limitsText joins names; a name that occurs several times is counted.
func limitsText(names []string) string {
	times := make(map[string]int)
	for _, name := range names {
		times[name]++
	}
	var terms []string
	for _, name := range names {
		switch n := times[name]; {
		case n == 1:
			terms = append(terms, name)
		case n > 1:
			terms = append(terms, fmt.Sprintf("%d x %s", n, name))
		}
		times[name] = 0
	}
	return strings.Join(terms, " + ")
}

func shareText(share float64) string {
	if share == 0 {
		return ""
	}
	return fmt.Sprintf("%.0f %%", 100*share)
}
