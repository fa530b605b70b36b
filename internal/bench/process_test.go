package bench

import (
	"maps"
	"testing"
	"time"
)

// The name of a process is in parentheses, and may itself contain parentheses and text that looks
// like the fields behind it.
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
	const rollup = "564e-7ffe ---p 0 00:00 0   [rollup]\nRss:     9999 kB\nPss:     9999 kB\nPss_Anon:      512 kB\nPss_File:     2048 kB\nPss_Shmem:      7 kB\n"
	got, ok := parseMemory(rollup)
	if want := (memory{anonymous: 0.5, mapped: 2}); got != want || !ok {
		t.Errorf("%+v, %v; want %+v", got, ok, want)
	}
	if got, ok := parseMemory("Rss:     9999 kB\nPss:     9999 kB\n"); ok {
		t.Errorf("the text of an older kernel without Pss_Anon is read as %+v, want that it is not known", got)
	}
}

// The flushes are the 16th field in the stat file of a disk. The lines of older kernels end before
// it.
func TestParseFlushes(t *testing.T) {
	for stat, want := range map[string]uint64{
		"  761429 136440 167 401 118 69 249 329 1 818 764 508054 73 403 80778  2084456   258751\n": 2084456,
		"  761429 136440 167 401 118 69 249 329 1 818 764 508054 73 403 80778\n":                   0,
		"  761429 136440 167 401 118 69 249 329 1 818 764 508054 73 403 80778 x 1\n":               0,
	} {
		if got, ok := parseFlushes([]byte(stat)); got != want || ok != (want > 0) {
			t.Errorf("%q: %d, %v; want %d", stat, got, ok, want)
		}
	}
	if count, ok := flushCounter("").read(); ok {
		t.Errorf("%d flushes without a disk, want that they are not known", count)
	}
}

// Processor time and flushes are given for 1,000 tasks, and flushes only if the disk counts them.
func TestCostsOfASpan(t *testing.T) {
	ran := span{wall: 2 * time.Second, cpu: 30 * time.Millisecond, flushes: 8, counted: true}
	if got, want := ran.rate("drain", 500), (samples{"drain": 250, "cpu/drain": 60, "flushes/drain": 16}); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	ran.counted = false
	if _, known := ran.rate("drain", 500)["flushes/drain"]; known {
		t.Error("flushes are reported although the disk does not count them")
	}
}
