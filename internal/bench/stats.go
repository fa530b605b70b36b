package bench

import (
	"math"
	"slices"
)

// Summary is the median and the range of repetitions.
type Summary struct {
	Median float64 `json:"median"`
	Min    float64 `json:"min"`
	Max    float64 `json:"max"`
}

// summarize returns the zero Summary for no values. The median of an even number of values is the
// mean of the two in the middle.
func summarize(values []float64) Summary {
	if len(values) == 0 {
		return Summary{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Summary{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Min: sorted[0], Max: sorted[n-1]}
}

// percentile returns the smallest value that at least p percent of the values do not exceed, or 0
// for no values. It sorts the values.
func percentile(values []float64, p float64) float64 {
	if len(values) == 0 {
		return 0
	}
	slices.Sort(values)
	rank := int(math.Ceil(p / 100 * float64(len(values))))
	return values[min(max(rank, 1), len(values))-1]
}

// boundOf returns what the machine allows if all the limits hold. For rates it is the lowest, which
// is met first; for times their sum, because one comes after the other.
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

// shareOf returns how much of what the machine allows was reached, 1 being all, or 0 if one of the
// two is not known.
func shareOf(unit string, measured, bound float64) float64 {
	if measured <= 0 || bound <= 0 {
		return 0
	}
	if unit == unitTime {
		return bound / measured
	}
	return measured / bound
}
