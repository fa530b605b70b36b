package main

import (
	"math"
	"strconv"
	"testing"
)

func TestSizeWithAndWithoutUnit(t *testing.T) {
	for text, want := range map[string]int{
		"0": 0, "65536": 65536, "7B": 7, "512KiB": 512 << 10, "1MiB": 1 << 20, "1 mib": 1 << 20, "3gib": 3 << 30, "2TiB": 2 << 40,
		"5kB": 5000, "5MB": 5e6, "2GB": 2e9, "1TB": 1e12, "-1": -1, "-2KiB": -2048, strconv.Itoa(math.MaxInt): math.MaxInt,
	} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err != nil || int(s) != want {
			t.Errorf("%q: got %d, %v, want %d", text, s, err, want)
		}
	}
	for _, text := range []string{"", "MiB", "1.5MiB", "1Mi", "1M", "KiB1", "1KiBB", "1 0", "9223372036854775808", "8388608TiB", "-8388609TiB", "x"} {
		var s size
		if err := s.UnmarshalText([]byte(text)); err == nil {
			t.Errorf("%q is read as %d, want an error", text, s)
		}
	}
}

// A plain number means MiB, as in versions that had no units. A size with a unit is rounded up to
// MiB, so that at least that much stays free.
func TestMebibytes(t *testing.T) {
	for text, want := range map[string]mebibytes{"0": 0, "64": 64, "64MiB": 64, "1GiB": 1024, "1GB": 954, "1": 1, "1B": 1, "-1": -1} {
		var m mebibytes
		if err := m.UnmarshalText([]byte(text)); err != nil || m != want {
			t.Errorf("%q: got %d, %v, want %d", text, m, err, want)
		}
	}
}
