package bench

import (
	"fmt"
	"io"

	"github.com/lessor-dev/lessor/internal/bench/chart"
)

// Plot draws the shares of the limits that a run reached, as SVG.
func (r *Report) Plot(w io.Writer) error {
	panel := chart.Panel{Heading: "share of what the machine allows", Axis: chart.Shares()}
	for i := range r.Results {
		if f := &r.Results[i]; f.Share > 0 {
			panel.Bars = append(panel.Bars, f.bar())
		}
	}
	m, l := r.Machine, r.Load
	return chart.Write(w, chart.Chart{
		Title:  "lessor bench",
		Panels: []chart.Panel{panel},
		Notes: []string{
			fmt.Sprintf("%d CPUs, %s; %d workers x %d slots, %d tasks of %d bytes; median of %d",
				m.CPUs, m.Go, l.Workers, l.Slots, l.Tasks, l.Payload, l.Repeat),
			"Thin lines: least and most. Limits: the disk's flushes, bbolt alone, gRPC alone, whichever is met first.",
		},
	})
}

// bar returns the bar of a figure with a share.
func (f *Figure) bar() chart.Bar {
	return chart.Bar{
		Label: f.Text,
		Value: f.Share,
		Tone:  chart.Plain,
		Text:  fmt.Sprintf("%.0f %% (%s %s)", 100*f.Share, amount(f.Median), f.Unit),
		Low:   min(f.shareAt(f.Min), f.shareAt(f.Max)),
		High:  max(f.shareAt(f.Min), f.shareAt(f.Max)),
	}
}

// amount returns a number with about three significant digits.
func amount(x float64) string {
	if x >= 100 {
		return fmt.Sprintf("%.0f", x)
	}
	return fmt.Sprintf("%.3g", x)
}

func (f *Figure) shareAt(measured float64) float64 { return shareOf(f.Unit, measured, f.Bound) }
