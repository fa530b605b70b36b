// Package latency measures how long calls and starts take while something is wrong (make
// bench-faults). It has no bounds, because the figures depend on the machine.
package latency
