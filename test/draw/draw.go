// Package draw lets random tests draw what to do next. The tests of other packages may import it,
// too, for it imports nothing of ours.
package draw

import "math/rand/v2"

// One returns one of several things, each as often as its weight says, which is at least 0. At
// least one weight must be more.
func One[T any](rng *rand.Rand, of []T, weight func(T) int) (one T) {
	sum := 0
	for _, t := range of {
		sum += weight(t)
	}
	n := rng.IntN(sum)
	for _, one = range of {
		if n -= weight(one); n < 0 {
			break
		}
	}
	return one
}
