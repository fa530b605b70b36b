package lint

import (
	"regexp"
	"testing"
)

const dependenciesDoc = "docs/decisions/dependencies.md"

var (
	// requirement matches a line of a require block of go.mod. The second group is set for an
	// indirect requirement.
	requirement = regexp.MustCompile(`(?m)^(?:require )?\s*(\S+\.\S+/\S+) v\S+( // indirect)?$`)
	// dependencyRow matches a row of the table, whose first cell is the module as code.
	dependencyRow = regexp.MustCompile("(?m)^\\| `([^`]+)` \\|")
)

// TestEachDependencyHasItsReason compares the table of dependencies with go.mod: each direct
// requirement has a reason in the table, and each module in the table is still required.
func TestEachDependencyHasItsReason(t *testing.T) {
	reasons := make(map[string]bool)
	for _, row := range dependencyRow.FindAllStringSubmatch(read(t, dependenciesDoc), -1) {
		reasons[row[1]] = true
	}
	required := make(map[string]bool)
	for _, line := range requirement.FindAllStringSubmatch(read(t, "go.mod"), -1) {
		mod, indirect := line[1], line[2] != ""
		required[mod] = true
		if !indirect && !reasons[mod] {
			t.Errorf("go.mod requires %s: say why in %s", mod, dependenciesDoc)
		}
	}
	for mod := range reasons {
		if !required[mod] {
			t.Errorf("%s explains %s, which go.mod does not require", dependenciesDoc, mod)
		}
	}
}
