//go:build !race

package lease_test

// quickSteps is how many steps TestSimulation takes unless -simulate.steps says otherwise. It is
// above shortRun, so a run fails that misses an outcome.
const quickSteps = 500_000
