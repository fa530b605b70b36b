package auth

import "strings"

// Role is what the holder of a credential may do; several of them make a set (X2).
type Role uint8

// The roles.
const (
	Worker   Role = 1 << iota // takes tasks and reports on them
	Producer                  // submits tasks, and looks at, cancels and retries them
	Operator                  // does everything within the tenant
	Viewer                    // looks, and changes nothing

	// Nobody is the empty set, Everybody the full one.
	Nobody    Role = 0
	Everybody      = Worker | Producer | Operator | Viewer
)

var roleNames = map[Role]string{Worker: "worker", Producer: "producer", Operator: "operator", Viewer: "viewer"}

// ParseRole reads the name of one role.
func ParseRole(name string) (Role, bool) {
	for r, n := range roleNames {
		if n == name {
			return r, true
		}
	}
	return Nobody, false
}

// String lists the names of the set.
func (r Role) String() string {
	var names []string
	for one := Worker; one <= Viewer; one <<= 1 {
		if r&one != 0 {
			names = append(names, roleNames[one])
		}
	}
	return strings.Join(names, " or ")
}

// Has reports whether the sets share a role.
func (r Role) Has(other Role) bool { return r&other != 0 }
