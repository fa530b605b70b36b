//go:build long

package idle

// sessions is the default number of sessions.
const sessions = 10_000
