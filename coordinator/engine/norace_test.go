//go:build !race

package engine

// quickHistories is how many histories each of TestRandomHistories and TestMatchingAgainstAModel
// plays unless -random.histories says otherwise.
const quickHistories = 6
