package bench

import (
	"testing"
	"time"
)

// The name of a process may look like the fields behind it.
func TestParseCPU(t *testing.T) {
	const fields = " S 1 2 3 4 5 6 7 8 9 10 150 25 0 0 20 0 7 0"
	for stat, want := range map[string]time.Duration{
		"17 (lessor)" + fields:          1750 * time.Millisecond,
		"17 (a) S 1 2 (x y) )" + fields: 1750 * time.Millisecond,
		"17 (lessor) S 1 2":             -1,
		"":                              -1,
	} {
		got, err := parseCPU([]byte(stat))
		if err != nil {
			got = -1
		}
		if got != want {
			t.Errorf("%q: %v, %v; want %v", stat, got, err, want)
		}
	}
}

func TestParseMemory(t *testing.T) {
	got := parseMemory("Name:\tlessor\nVmPeak:\t 9999 kB\nVmRSS:\t    2048 kB\nRssAnon:\t     512 kB\nThreads:\t7\n")
	if want := (memory{resident: 2, anonymous: 0.5}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
