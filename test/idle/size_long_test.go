//go:build long

package idle

// sessions is how many there are by default.
const sessions = 10_000
