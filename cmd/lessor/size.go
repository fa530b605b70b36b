package main

import (
	"errors"
	"math"
	"strconv"
	"strings"
)

// size is a flag that holds bytes: 65536, 512KiB, 1MiB or 2GB.
type size int

// sizeUnits are the units of a size, with the bytes of each.
var sizeUnits = map[string]int64{
	"": 1, "b": 1,
	"kib": 1 << 10, "mib": 1 << 20, "gib": 1 << 30, "tib": 1 << 40,
	"kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
}

// UnmarshalText reads the flag.
func (s *size) UnmarshalText(text []byte) error {
	n, err := parseSize(string(text), 1)
	*s = size(n)
	return err
}

// mebibytes is a flag that holds MiB: 64, or a size with a unit, which is rounded up.
type mebibytes int

// UnmarshalText reads the flag.
func (m *mebibytes) UnmarshalText(text []byte) error {
	n, err := parseSize(string(text), 1<<20)
	*m = mebibytes((n-1)>>20 + 1)
	return err
}

// parseSize reads a whole number with a unit; without one, the unit is plain bytes. Upper and lower
// case mean the same.
func parseSize(text string, plain int64) (int, error) {
	digits := strings.TrimRight(text, " bBkKmMgGtTiI")
	n, err := strconv.ParseInt(digits, 10, 64)
	unit, known := sizeUnits[strings.ToLower(strings.TrimSpace(text[len(digits):]))]
	if digits == text {
		unit = plain
	}
	if err != nil || !known || n > math.MaxInt/unit || n < math.MinInt/unit {
		return 0, errors.New("not a size") // the user sees nounOf's words instead
	}
	return int(n * unit), nil
}
