package matrix

import (
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// place is something that can be asked of a coordinator: a call, a frame, an HTTP route.
type place struct {
	name                string
	action              string    // as the audit names it
	within              string    // another action that it may cause; empty: none
	roles               auth.Role // who may use it
	unguarded           bool      // it needs no credential
	goodRequest         func(n names) request
	fields              []field
	together            []field // the fields that "everything" sets
	web                 bool    // it is an HTTP route
	declaringCredential string  // the credential whose results are declared in testdata
	send                func(h *host, c credential, r request) answer
	// changesMemory says that the place changes state that is not in the store, so that a host can
	// be used for one good cell only.
	changesMemory bool
}

// together returns the fields that "everything" sets: all except those whose error would hide the
// rest of the request (page tokens, tenants, and what the caller leaves out).
func together(all []field, and func(field) bool) []field {
	return slices.DeleteFunc(slices.Clone(all), func(f field) bool { return f.kind == "page" || f.kind == "tenant" || !and(f) })
}

// value says whose name a field gets.
type value string

const (
	own    value = "own"
	other  value = "other"
	random value = "random"
	empty  value = "empty"
)

var values = []value{own, other, random, empty}

// of returns the names that v stands for, in a request that has the names of base.
func (v value) of(parties map[string]names, base string) names {
	return parties[map[value]string{own: base, other: evil, random: void}[v]]
}

// cell is one question of the matrix: the request has the names of base, except for one field, or
// for everything.
type cell struct {
	*place
	credential
	base  string
	field field
	value value
}

func (c cell) String() string {
	return c.place.name + ", " + c.field.String() + " " + string(c.value) + " in a request of " + c.base + ", credential " + c.credential.name
}

// cells returns the cells of a place. Those that must be refused come first, because a good one may
// change the host. Without -full they are fewer; see asked.
func (p *place) cells(with []credential) []cell {
	var bad, good []cell
	for i, c := range with {
		for j, f := range append(p.fields, everything) {
			for _, v := range values {
				one := cell{p, c, acme, f, v}
				if !one.asked(i + j) {
					continue
				}
				if !one.good() {
					bad = append(bad, one)
					continue
				}
				if good = append(good, one); c.name == stranger {
					good = append(good, cell{p, c, nemo, f, v}) // for comparison; see question.like
				}
			}
		}
	}
	return append(bad, good...)
}

// asked reports whether a cell is asked, which all are with -full. Without it, a credential of
// another tenant and those that must be refused come with one value of each field, another one than
// the credential before; and a role whose results are not declared with two, which are compared
// with each other: see question.counterpart. Another tenant always repeats the whole request.
func (c cell) asked(turn int) bool {
	compared := c.value == other || c.value == random
	switch {
	case *full, c.good() && c.credential.name == c.declaringCredential:
		return true
	case c.credential.name == stranger && c.field.kind == everything.kind:
		return c.value == own
	case c.good() && c.credential.name != stranger:
		return compared == (turn%2 == 0)
	}
	return c.value == values[turn%len(values)]
}

// good reports whether the request must not be refused for its credential.
func (c cell) good() bool {
	return c.unguarded || c.nowhere() || c.problem == "" && c.role.Has(c.roles)
}

// nowhere reports whether the request lacks the task id in its path: then it matches no route that
// could be guarded.
func (c cell) nowhere() bool {
	inPath := c.field.kind == everything.kind || c.field.path[0] == "path"
	return c.web && c.value == empty && inPath && strings.Contains(c.place.name+"/", "{task_id}/")
}

// request builds the request of a cell. sent has the names in it by which an answer may differ, and
// their kinds.
func (c cell) request(parties map[string]names) (r request, sent map[string]kind) {
	at, theirs := parties[c.base].at(c.place.name), c.value.of(parties, c.base).at(c.place.name)
	r, sent = c.goodRequest(at), map[string]kind{}
	changed := []field{c.field}
	if c.field.kind == everything.kind {
		changed = c.together
	}
	for _, f := range changed {
		r.set(f.path, theirs[f.kind])
		sent[theirs[f.kind]] = f.kind
	}
	if c.base != c.tenant {
		for k, name := range at {
			sent[name] = k
		}
	}
	return r, sent
}
