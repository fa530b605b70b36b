package main

import (
	"bytes"
	"os"
	"path/filepath"
	"testing"

	"github.com/lessor-dev/lessor/internal/bench"
	"github.com/lessor-dev/lessor/internal/bench/chart"
)

const docs = "../../docs/benchmarks"

// The pictures in docs/benchmarks are those that the figures there give.
func TestPicturesMatchTheFigures(t *testing.T) {
	plots, err := draw(docs)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range plots {
		got, err := os.ReadFile(filepath.Join(docs, name))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s is not what its figures give: run make plots", name)
		}
	}
}

// A ratio above 1 is good for a rate and bad for a cost. A ratio that was not measured is not
// drawn.
func TestTonesOfRatios(t *testing.T) {
	for name, test := range map[string]struct {
		less bool
		is   float64
		want chart.Tone
	}{
		"faster": {false, 2, chart.Good}, "slower": {false, 0.5, chart.Bad}, "cheaper": {true, 0.5, chart.Good}, "dearer": {true, 2, chart.Bad},
	} {
		c := comparison{Rows: []ratio{{Less: test.less, Ratio: &bench.Summary{Median: test.is, Min: test.is, Max: test.is}}, {Measure: "not yet"}}}
		panels := c.chart().Panels
		if len(panels) != 1 || len(panels[0].Bars) != 1 || panels[0].Bars[0].Tone != test.want {
			t.Errorf("%s: panels %+v, want one bar with tone %v", name, panels, test.want)
		}
	}
}

func TestMisspelledFieldsAreRefused(t *testing.T) {
	dir := t.TempDir()
	for name, content := range map[string]string{"run.json": `{"results": []}`, "peers.json": `{"rows": [{"mesure": "drain"}]}`} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := run([]string{dir}); err == nil {
		t.Error("a misspelled field was accepted, want an error")
	}
}
