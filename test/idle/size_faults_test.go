//go:build faults && !long

package idle

// sessions is how many there are by default.
const sessions = 2_000
