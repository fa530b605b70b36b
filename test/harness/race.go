//go:build race

package harness

var raceFlag = []string{"-race"}
