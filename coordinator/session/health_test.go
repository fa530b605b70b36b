package session

import "testing"

// The reason why a worker gets no new work has its gauge as other tables show it: without an
// exponent, and with all digits, so that what is just above a limit does not look like the limit.
func TestFullTextShowsGaugesAsTheyAre(t *testing.T) {
	for want, of := range map[string]struct{ pct, limit float64 }{
		"mem_pct is 91.5: no new work at 90 or more, until it falls to 85":                   {91.5, 90},
		"mem_pct is 85.00001: no new work at 90 or more, until it falls to 85":               {85.00001, 90},
		"mem_pct is 12345678: no new work at 2000000.5 or more, until it falls to 1999995.5": {12345678, 2000000.5},
	} {
		if got := fullText(memPct, gauge{pct: of.pct, full: true}, of.limit); got != want {
			t.Errorf("%v: %q, want %q", of, got, want)
		}
	}
}
