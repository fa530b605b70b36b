//go:build !faults

package main

import "time"

// wallClock is nil in this build: the wall clock is that of the machine. In builds for fault tests,
// wall_faults.go replaces it.
var wallClock func(time.Time) time.Time
