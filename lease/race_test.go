//go:build race

package lease_test

// quickSteps is less under the race detector, which finds nothing in rules without a goroutine and takes six times as long.
const quickSteps = 60_000
