package chart

import (
	"bytes"
	"encoding/xml"
	"errors"
	"flag"
	"io"
	"os"
	"testing"
)

var update = flag.Bool("update", false, "draw testdata anew; look at it then")

// A chart with a panel of each kind, and bars with everything that a bar can have, is drawn as in
// the golden file, which a person has checked.
func TestGolden(t *testing.T) {
	got := draw(t, Chart{
		Title: `all & more, "quoted" <tags>`,
		Panels: []Panel{
			{Heading: "shares", Axis: Shares(), Bars: []Bar{
				{Label: "half", Value: 0.5, Low: 0.4, High: 0.6, Text: "50 %", Tone: Plain},
				{Label: "more than all is cut off", Value: 1.5, Text: "150 %", Tone: Plain},
				{Label: "nothing", Text: "", Tone: Plain},
			}},
			{Heading: "ratios", Axis: Powers([]float64{0.3, 5}), Bars: []Bar{
				{Label: "better", Value: 4, Low: 3, High: 5, Mark: 2, Text: "4.0 (3.0..5.0)", Tone: Good},
				{Label: "worse", Value: 0.4, Low: 0.3, High: 1.2, Mark: 2, Text: "0.40 (0.30..1.2)", Tone: Bad},
			}},
		},
		Notes: []string{"one note", "and another"},
	})
	const golden = "testdata/chart.svg"
	if *update {
		if err := os.WriteFile(golden, got, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Errorf("the chart differs from %s; run with -update, and look at the new file:\n%s", golden, got)
	}
}

func draw(t *testing.T, c Chart) []byte {
	t.Helper()
	var out bytes.Buffer
	if err := Write(&out, c); err != nil {
		t.Fatal(err)
	}
	for d := xml.NewDecoder(bytes.NewReader(out.Bytes())); ; {
		if _, err := d.Token(); errors.Is(err, io.EOF) {
			return out.Bytes()
		} else if err != nil {
			t.Fatalf("not XML: %v\n%s", err, &out)
		}
	}
}

// The axis ends at the first powers of two that cover all values, but at least at 1/2 and 2. The
// value 1 is always inside of it.
func TestPowers(t *testing.T) {
	for _, test := range []struct {
		values   []float64
		from, to float64
	}{
		{nil, 0.5, 2},
		{[]float64{1}, 0.5, 2},
		{[]float64{0.2, 0, 11}, 0.125, 16},
		{[]float64{8}, 0.5, 8},
	} {
		axis := Powers(test.values)
		if axis.From != test.from || axis.To != test.to || len(axis.Ticks) < 3 {
			t.Errorf("%v: the axis has %d ticks from %v to %v, want at least 3 from %v to %v",
				test.values, len(axis.Ticks), axis.From, axis.To, test.from, test.to)
		}
		if at := axis.x(1); at <= left || at >= right {
			t.Errorf("%v: the value 1 is at x = %v, want between %v and %v", test.values, at, left, right)
		}
	}
}
