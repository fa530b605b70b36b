//go:build !race

package matrix

// sampled says that some cells are left out.
const sampled = false

// sampleCells leaves out nothing without the race detector.
func sampleCells(_ int, all []cell) []cell { return all }
