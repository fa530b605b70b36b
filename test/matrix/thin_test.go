//go:build !race

package matrix

// thinned says that some cells are left out.
const thinned = false

// thin leaves out nothing without the race detector.
func thin(_ int, all []cell) []cell { return all }
