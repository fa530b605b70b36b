// Package latency measures how long calls and starts take while something is wrong (make bench-faults). It judges nothing: what is too long is for
// the reader to say, and depends on the machine.
package latency
