//go:build race

package engine

// quickHistories is smaller with the race detector, with which a history takes several times as long.
const quickHistories = 5
