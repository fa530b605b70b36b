package bench

import (
	"math"
	"slices"
)

// Summary is the middle and the range of repetitions.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// summarize returns the zero Summary for no values. The median of an even number of values is the mean of the two in the middle.
func summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Summary{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// percentile returns the smallest value that at least p of 100 do not exceed; 0 for no values. It sorts them.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// boundOf is what the machine allows where all the limits hold: of rates the lowest, which is the one that is met first; of times their sum,
// since one comes after the other.
func boundOf(unit string, limits []float64) float64 {
	bound := 0.0
	for i, limit := range limits {
		switch {
		case unit == unitTime:
			bound += limit
		case i == 0 || limit < bound:
			bound = limit
		}
	}
	return bound
}

// shareOf is how much of what the machine allows was reached, 1 being all; 0 where one of the two is not known.
func shareOf(unit string, measured, bound float64) float64 {
	if measured <= 0 || bound <= 0 {
		return 0
	}
	if unit == unitTime {
		return bound / measured
	}
	return measured / bound
}
