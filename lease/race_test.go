//go:build race

package lease_test

// quickSteps is smaller with the race detector, with which a step takes about six times as long,
// and which finds nothing in rules that start no goroutine. It is below shortRun, so a run passes
// even if it has not met every outcome.
const quickSteps = 60_000
