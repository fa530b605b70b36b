package bench

import (
	"math"
	"testing"
)

func TestSummarize(t *testing.T) {
	for name, test := range map[string]struct {
		values []float64
		want   Summary
	}{
		"none": {nil, Summary{}},
		"one":  {[]float64{3}, Summary{3, 3, 3}},
		"odd":  {[]float64{9, 1, 4}, Summary{4, 1, 9}},
		"even": {[]float64{8, 1, 2, 4}, Summary{3, 1, 8}},
	} {
		if got := summarize(test.values); got != test.want {
			t.Errorf("%s: %v, want %v", name, got, test.want)
		}
	}
}

func TestSummarizeLeavesItsInputAlone(t *testing.T) {
	values := []float64{2, 1}
	summarize(values)
	if values[0] != 2 {
		t.Error("the values were sorted in place")
	}
}

func TestPercentile(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(100 - i)
	}
	for _, test := range []struct {
		values  []float64
		p, want float64
	}{
		{nil, 50, 0},
		{[]float64{7}, 0, 7},
		{[]float64{7}, 99, 7},
		{[]float64{2, 1}, 50, 1},
		{[]float64{2, 1}, 51, 2},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 99.1, 100},
		{hundred, 100, 100},
	} {
		if got := percentile(test.values, test.p); got != test.want {
			t.Errorf("p%v of %d values: %v, want %v", test.p, len(test.values), got, test.want)
		}
	}
}

// The bound of a rate is its lowest limit, the bound of a time is the sum of its limits. In both
// cases, a share of 1 means that the bound was reached.
func TestShareOfABound(t *testing.T) {
	for name, test := range map[string]struct {
		unit                   string
		measured               float64
		limits                 []float64
		wantBound, wantedShare float64
	}{
		"a rate":            {unitRate, 50, []float64{200, 100}, 100, 0.5},
		"times":             {unitTime, 4, []float64{0.5, 1.5}, 2, 0.5},
		"no limit":          {unitRate, 50, nil, 0, 0},
		"an unknown limit":  {unitRate, 50, []float64{200, 0}, 0, 0},
		"nothing measured":  {unitTime, 0, []float64{1}, 1, 0},
		"above the limit":   {unitRate, 150, []float64{100}, 100, 1.5},
		"a limit met twice": {unitTime, 2, []float64{1, 1}, 2, 1},
	} {
		bound := boundOf(test.unit, test.limits)
		if share := shareOf(test.unit, test.measured, bound); bound != test.wantBound || math.Abs(share-test.wantedShare) > 1e-9 {
			t.Errorf("%s: bound %v, share %v, want %v and %v", name, bound, share, test.wantBound, test.wantedShare)
		}
	}
}
