package matrix

import (
	"slices"
	"strings"

	"github.com/lessor-dev/lessor/coordinator/auth"
)

// place is something that can be said to a coordinator: a call, a frame, a route.
type place struct {
	name      string
	action    string    // of entries in the audit
	roles     auth.Role // who may say it
	unguarded bool      // everybody may, with or without a credential
	whole     func(n names) request
	fields    []field
	together  []field // those that everything is
	web       bool    // over HTTP
	declarer  string  // credential whose outcomes are declared in testdata
	say       func(h *house, c credential, r request) answer
	// fleeting places change what is not in the store, so that a house is good for one good cell.
	fleeting bool
}

// together is what everything stands for: all fields but those that let nothing else of the request be looked at.
func together(all []field, and func(field) bool) []field {
	return slices.DeleteFunc(slices.Clone(all), func(f field) bool { return f.kind == "page" || f.kind == "tenant" || !and(f) })
}

// value is whose name a field gets.
type value string

const (
	own    value = "own"
	other  value = "other"
	random value = "random"
	empty  value = "empty"
)

var values = []value{own, other, random, empty}

// of are the names that v stands for in a request that has the names of base.
func (v value) of(parties map[string]names, base string) names {
	return parties[map[value]string{own: base, other: evil, random: void}[v]]
}

// cell is one question of the matrix: all of a request has the names of base, but for one field, or everything.
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

// cells are all of a place. Those that are refused come first: a good one may change the house.
func (p *place) cells(with []credential) []cell {
	var bad, good []cell
	for _, c := range with {
		for _, f := range append(p.fields, everything) {
			for _, v := range values {
				one := cell{p, c, acme, f, v}
				if !one.good() {
					bad = append(bad, one)
					continue
				}
				if good = append(good, one); c.name == stranger {
					good = append(good, cell{p, c, nemo, f, v}) // to be compared with
				}
			}
		}
	}
	return append(bad, good...)
}

// good reports whether the coordinator has to listen.
func (c cell) good() bool {
	return c.unguarded || c.nowhere() || c.problem == "" && c.role.Has(c.roles)
}

// nowhere reports whether a cell leaves out what makes its path that of a route: nothing is there to be guarded.
func (c cell) nowhere() bool {
	inPath := c.field.kind == everything.kind || c.field.path[0] == "path"
	return c.web && c.value == empty && inPath && strings.Contains(c.place.name+"/", "{task_id}/")
}

// request builds what a cell says. said has each name in it by which an answer may differ, and what it names.
func (c cell) request(parties map[string]names) (r request, said map[string]kind) {
	at, theirs := parties[c.base].at(c.place.name), c.value.of(parties, c.base).at(c.place.name)
	r, said = c.whole(at), map[string]kind{}
	changed := []field{c.field}
	if c.field.kind == everything.kind {
		changed = c.together
	}
	for _, f := range changed {
		r.set(f.path, theirs[f.kind])
		said[theirs[f.kind]] = f.kind
	}
	if c.base != c.tenant {
		for k, name := range at {
			said[name] = k
		}
	}
	return r, said
}
