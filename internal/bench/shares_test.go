package bench

import (
	"strings"
	"testing"
)

// Only results with a share are drawn. For a time, the longest one is the lowest share.
func TestPlot(t *testing.T) {
	var out strings.Builder
	r := &Report{Results: []Figure{
		{Text: "drain", Unit: unitRate, Summary: Summary{50, 40, 60}, Bound: 100, Share: 0.5},
		{Text: "ack", Unit: unitTime, Summary: Summary{4, 2, 8}, Bound: 1, Share: 0.25},
		{Text: "memory", Unit: unitSize, Summary: Summary{7, 7, 7}},
	}}
	if err := r.Plot(&out); err != nil {
		t.Fatal(err)
	}
	for text, want := range map[string]bool{">drain<": true, "50 % (50 tasks/s)": true, ">ack<": true, "memory": false} {
		if strings.Contains(out.String(), text) != want {
			t.Errorf("the chart contains %q: %v, want %v\n%s", text, !want, want, &out)
		}
	}
	if bar := r.Results[1].bar(); bar.Low != 0.125 || bar.High != 0.5 {
		t.Errorf("a time of 2 to 8 with a limit of 1: the bar is %+v, want 0.125 to 0.5", bar)
	}
}
