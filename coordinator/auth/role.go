package auth

import "strings"

// Role is what the holder of a credential may do. It is also used as a set of roles (X2).
type Role uint8

// The roles.
const (
	Worker   Role = 1 << iota // takes tasks and reports on them
	Producer                  // submits tasks, and looks at, cancels and retries them
	Operator                  // does everything within the tenant
	Viewer                    // sees everything within the tenant, and changes nothing

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

// String returns the names in the set, joined by "or".
func (r Role) String() string {
	var names []string
	for one := Worker; one <= Viewer; one <<= 1 {
		if r&one != 0 {
			names = append(names, roleNames[one])
		}
	}
	return strings.Join(names, " or ")
}

// Has reports whether the two sets have a role in common.
func (r Role) Has(other Role) bool { return r&other != 0 }
