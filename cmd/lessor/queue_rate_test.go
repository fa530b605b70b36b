package main

import (
	"testing"

	"github.com/lessor-dev/lessor/internal/words"
)

// T13: a rate is read with any unit, and printed with a unit in which its number is easy to read.
func TestRates(t *testing.T) {
	for text, want := range map[string]string{
		"5": "5/s", "5/s": "5/s", "300/m": "5/s", "30/m": "30/m", "1000/h": "16.6667/m", "12/h": "12/h", "1/d": "1/d", "0": "0/d", "0.5/s": "30/m",
	} {
		var r rate
		if err := r.UnmarshalText([]byte(text)); err != nil || words.Rate(float64(r)) != want {
			t.Errorf("%s is %s, %v; want %s", text, words.Rate(float64(r)), err, want)
		}
	}
	for _, text := range []string{"", "/", "/s", "5/", "5/w", "-1", "Inf", "NaN", "5/s/s", "five"} {
		var r rate
		if err := r.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %v, want an error", text, r)
		}
	}
}
