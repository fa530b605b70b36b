package keyindex

import "testing"

// SetLeastOfStep sets how many entries a step adds or removes at least, for one test.
func SetLeastOfStep(t *testing.T, n int) {
	before := leastOfStep
	t.Cleanup(func() { leastOfStep = before })
	leastOfStep = n
}
