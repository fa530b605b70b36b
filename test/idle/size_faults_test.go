//go:build faults && !long

package idle

// sessions is the default number of sessions.
const sessions = 2_000
