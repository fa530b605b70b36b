//go:build faults

package main

import (
	"os"
	"time"
)

// wallClock returns the time plus the duration in the file that LESSOR_FAULT_WALL names. A test
// uses it to simulate a change of the wall clock, because it cannot set the clock of the machine.
func wallClock(t time.Time) time.Time {
	path := os.Getenv("LESSOR_FAULT_WALL")
	if path == "" {
		return t
	}
	text, err := os.ReadFile(path)
	if err != nil {
		panic(err)
	}
	shift, err := time.ParseDuration(string(text))
	if err != nil {
		panic(err)
	}
	return t.Add(shift)
}
