//go:build !race

package limits

// quickHistories is how many histories TestRandomHistories plays unless -random.histories says otherwise.
const quickHistories = 2
