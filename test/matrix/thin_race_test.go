//go:build race

package matrix

// thinned tells that some cells are left out.
const thinned = true

// thin leaves out most cells: the race detector makes them ten times as slow, and one field takes the same way through the coordinator as
// another. What stays is everything at once, with each good credential; the bad ones take turns, from place to place.
func thin(turn int, all []cell) (some []cell) {
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
