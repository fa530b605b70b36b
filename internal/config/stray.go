package config

import (
	"slices"
	"strings"

	"github.com/alecthomas/kong"
)

// Stray is an environment variable that has the prefix of the flags' variables, but belongs to no
// flag: perhaps a typing mistake.
type Stray struct {
	Name    string
	Similar string // the variable of a flag that may be meant; may be empty
}

// Strays returns the strays of an environment, sorted by name. others are the variables with this
// prefix that have another purpose. The variables that Kubernetes makes for a service whose name
// begins with the prefix are no strays.
func Strays(root *kong.Node, prefix string, others, environ []string) []Stray {
	variables := make(map[string]string)
	_ = eachFlag(root, func(node *kong.Node, flag *kong.Flag) {
		for _, env := range flag.Envs {
			variables[envName(prefix, flagPath(node, flag))] = env // another name only if the command is bare
			variables[env] = env
		}
	})
	set := make(map[string]bool)
	for _, variable := range environ {
		if name, _, _ := strings.Cut(variable, "="); strings.HasPrefix(name, prefix+"_") {
			set[name] = true
		}
	}
	var strays []Stray
	for name := range set {
		if variables[name] != name && !slices.Contains(others, name) && !ofKubernetes(name, set) {
			strays = append(strays, Stray{name, similar(name, variables)})
		}
	}
	slices.SortFunc(strays, func(a, b Stray) int { return strings.Compare(a.Name, b.Name) })
	return strays
}

// ofKubernetes reports whether Kubernetes made a variable for a service. For a service named
// lessor, every container of its namespace gets LESSOR_SERVICE_HOST, LESSOR_SERVICE_PORT,
// LESSOR_PORT_7420_TCP and more.
func ofKubernetes(name string, set map[string]bool) bool {
	for _, mark := range []string{"_SERVICE_", "_PORT"} {
		if service, _, found := strings.Cut(name, mark); found && set[service+"_SERVICE_HOST"] {
			return true
		}
	}
	return false
}

// mostMistakes is how many characters of a variable may be wrong for its name to be recognized.
const mostMistakes = 2

// similar returns the variable of a flag whose name is most like this one. variables has the
// variables by their names and by names that one might think they have.
func similar(name string, variables map[string]string) (best string) {
	fewest := mostMistakes + 1
	for near, variable := range variables {
		if n := distance(name, near); n < fewest || n == fewest && variable < best {
			best, fewest = variable, n
		}
	}
	return best
}

// distance returns how many characters have to be inserted, deleted or replaced to turn a into b.
func distance(a, b string) int {
	row := make([]int, len(b)+1) // of the prefix of a so far to each prefix of b
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			n := diagonal
			if a[i] != b[j] {
				n = 1 + min(diagonal, row[j], row[j+1])
			}
			diagonal, row[j+1] = row[j+1], n
		}
	}
	return row[len(b)]
}
