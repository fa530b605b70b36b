package main

import (
	"strings"
	"testing"

	"github.com/lessor-dev/lessor/internal/bench"
)

func TestAmount(t *testing.T) {
	for x, want := range map[float64]string{
		0: "0.00", 0.125: "0.12", 9.994: "9.99", 10.4: "10", 999: "999", 1000: "1,000", 1234567.8: "1,234,567",
		1002003: "1,002,003",
	} {
		if got := amount(x); got != want {
			t.Errorf("amount(%v) = %s, want %s", x, got, want)
		}
	}
}

// limitsText names each limit of a time once, with the number of times that the time meets it.
func TestLimitsText(t *testing.T) {
	if got, want := limitsText([]string{"a", "b", "a", "c"}), "2 x a + b + c"; got != want {
		t.Errorf("limitsText = %q, want %q", got, want)
	}
}

func TestReportSaysThatTheMachineWasBusy(t *testing.T) {
	for load, want := range map[float64]string{-1: "not known\n", 0.1: "0.10\n", 2: "2.00: a busy machine"} {
		var out strings.Builder
		if err := printReport(&out, &bench.Report{Machine: bench.Machine{CPUs: 2, LoadAverage: load}}); err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(out.String(), "load average before: "+want) {
			t.Errorf("load %v: the report is\n%s\nwant %q in it", load, &out, want)
		}
	}
}
