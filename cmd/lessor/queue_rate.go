package main

import (
	"errors"
	"math"
	"strconv"
	"strings"

	"github.com/lessor-dev/lessor/internal/words"
)

// rate is a flag that holds grants per second: 5 or 5/s, 300/m, 1000/h or 50/d.
type rate float64

// UnmarshalText reads the flag.
func (r *rate) UnmarshalText(text []byte) error {
	number, name, _ := strings.Cut(string(text), "/")
	if !strings.Contains(string(text), "/") {
		name = "s"
	}
	n, err := strconv.ParseFloat(number, 64)
	for _, unit := range words.RateUnits {
		if unit.Name == name && err == nil && n >= 0 && !math.IsInf(n, 1) {
			*r = rate(n / unit.Seconds)
			return nil
		}
	}
	return errors.New("not a rate") // the user sees nounOf's words instead
}
