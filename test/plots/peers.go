package main

import (
	"fmt"

	"github.com/lessor-dev/lessor/internal/bench"
	"github.com/lessor-dev/lessor/internal/bench/chart"
)

// comparison is peers.json: ratios of lessor to other systems, each measured in rounds in which
// both ran.
type comparison struct {
	Title string   `json:"title"`
	Notes []string `json:"notes"`
	Rows  []ratio  `json:"rows"`
}

// ratio is one measure in comparison with one peer.
type ratio struct {
	Measure string `json:"measure"`
	Peer    string `json:"peer"`
	// Less says that less is better: times, memory, processor time.
	Less bool `json:"less_is_better,omitempty"`
	// Ratio is lessor's figure divided by the peer's; nil before it was measured.
	Ratio *bench.Summary `json:"ratio"`
	// Asked is the ratio that lessor should reach; 0: none.
	Asked float64 `json:"asked,omitempty"`
}

// chart draws rates in one panel and costs in another one, on axes of the same length.
func (c *comparison) chart() chart.Chart {
	var values []float64
	rates, costs := chart.Panel{Heading: "lessor / peer, more is better"},
		chart.Panel{Heading: "lessor / peer, less is better"}
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Ratio == nil {
			continue
		}
		values = append(values, r.Ratio.Min, r.Ratio.Median, r.Ratio.Max, r.Asked)
		if r.Less {
			costs.Bars = append(costs.Bars, r.bar())
		} else {
			rates.Bars = append(rates.Bars, r.bar())
		}
	}
	drawn := chart.Chart{Title: c.Title, Notes: c.Notes}
	for _, panel := range []chart.Panel{rates, costs} {
		if panel.Axis = chart.Powers(values); len(panel.Bars) > 0 {
			drawn.Panels = append(drawn.Panels, panel)
		}
	}
	return drawn
}

func (r *ratio) bar() chart.Bar {
	tone := chart.Good
	if r.Less != (r.Ratio.Median < 1) {
		tone = chart.Bad
	}
	return chart.Bar{
		Label: r.Measure + ": " + r.Peer, Value: r.Ratio.Median, Low: r.Ratio.Min, High: r.Ratio.Max,
		Mark: r.Asked, Tone: tone,
		Text: fmt.Sprintf("%.2g (%.2g..%.2g)", r.Ratio.Median, r.Ratio.Min, r.Ratio.Max),
	}
}
