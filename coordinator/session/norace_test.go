//go:build !race

package session

// quickHistories is how many histories TestRandomHistories plays unless -random.histories says
// otherwise.
const quickHistories = 10
