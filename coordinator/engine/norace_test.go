//go:build !race

package engine

// quickHistories is how many histories TestRandomHistories plays unless -random.histories says
// otherwise.
const quickHistories = 6
