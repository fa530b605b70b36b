package timerindex

// RemovedAtOnce is removedAtOnce, for tests.
const RemovedAtOnce = removedAtOnce

// LowerSteps makes steps small, and returns what undoes it.
func LowerSteps(least int) (undo func()) {
	before := leastOfStep
	leastOfStep = least
	return func() { leastOfStep = before }
}
