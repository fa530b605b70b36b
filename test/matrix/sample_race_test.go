//go:build race

package matrix

// sampled says that some cells are left out.
const sampled = true

// sampleCells leaves out most cells, because the race detector makes them ten times as slow, and all fields take the same way through the coordinator. It
// keeps the cells that set everything: all with a good credential, and of those with a bad one a quarter, another one for each place.
func sampleCells(turn int, all []cell) (some []cell) {
	bad := map[string]int{}
	for _, c := range all {
		if c.field.kind != everything.kind {
			continue
		}
		if _, met := bad[c.credential.name]; !met && !c.good() {
			bad[c.credential.name] = len(bad)
		}
		if c.good() || bad[c.credential.name]%4 == turn%4 {
			some = append(some, c)
		}
	}
	return some
}
