//go:build race

package limits

// quickHistories is smaller with the race detector, because a history then takes several times as long.
const quickHistories = 1
