package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// rate is a flag that holds grants per second: 5 or 5/s, 300/m, 1000/h or 50/d.
type rate float64

// rateUnits are the units of a rate, with the seconds of each, shortest first.
var rateUnits = []struct {
	name    string
	seconds float64
}{{"s", 1}, {"m", 60}, {"h", 60 * 60}, {"d", 24 * 60 * 60}}

// UnmarshalText reads the flag.
func (r *rate) UnmarshalText(text []byte) error {
	number, name, _ := strings.Cut(string(text), "/")
	if !strings.Contains(string(text), "/") {
		name = "s"
	}
	n, err := strconv.ParseFloat(number, 64)
	for _, unit := range rateUnits {
		if unit.name == name && err == nil && n >= 0 && !math.IsInf(n, 1) {
			*r = rate(n / unit.seconds)
			return nil
		}
	}
	return errors.New("not a rate") // the user sees nounOf's words instead
}

// rateText returns grants per second in the shortest unit in which there is at least one.
func rateText(perSecond float64) string {
	unit := rateUnits[0]
	for _, unit = range rateUnits {
		if perSecond*unit.seconds >= 1 {
			break
		}
	}
	return strconv.FormatFloat(perSecond*unit.seconds, 'g', 6, 64) + "/" + unit.name
}
