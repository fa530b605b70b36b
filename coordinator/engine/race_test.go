//go:build race

package engine

// quickHistories is smaller with the race detector, because a history then takes several times as
// long.
const quickHistories = 3
