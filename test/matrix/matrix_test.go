package matrix

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what good cells come to into testdata")

// X1, X2, S4, V2: all calls, with all credentials.
func TestCalls(t *testing.T) {
	t.Attr("rules", "X1 X2 S4 V2")
	t.Parallel()
	e := newEstate(t)
	e.try(t, "calls", callPlaces(t), e.credentials())
}

// X1, X2, X3, V2: all frames, also with credentials that become bad while the stream is open.
func TestFrames(t *testing.T) {
	t.Attr("rules", "X1 X2 X3 V2")
	t.Parallel()
	e := newEstate(t)
	e.try(t, "frames", framePlaces(t), append(e.credentials(), ending...))
}

// X1, X2, V2, H1: all HTTP routes; those of workers' callbacks with task tokens.
func TestRoutes(t *testing.T) {
	t.Attr("rules", "X1 X2 V2 H1")
	t.Parallel()
	e := newEstate(t)
	places, holders := routePlaces(t, e.readDocument(t))
	e.try(t, "routes", places, e.credentials())
	e.try(t, "callbacks", holders, e.taskTokens())
}

// try asks all cells of the places, and compares the results with testdata.
func (e *estate) try(t *testing.T, what string, places []*place, with []credential) {
	t.Helper()
	var declaration strings.Builder
	fields, cells := 0, 0
	for i, p := range places {
		came, n := e.ask(t, thin(i, p.cells(with)))
		came.compare(t, p)
		came.declare(&declaration, p)
		fields, cells = fields+len(p.fields), cells+n
	}
	t.Logf("%d %s with %d fields that name something: %d cells", len(places), what, fields, cells)
	if thinned {
		return
	}
	// At least four values and four credentials for each field.
	if cells < fields*16 {
		t.Errorf("%d cells for %d fields", cells, fields)
	}
	compareDeclared(t, "testdata/"+what+".txt", declaration.String())
}

// ask asks the cells of a place, in as few houses as possible, and returns the results of the good ones.
func (e *estate) ask(t *testing.T, cells []cell) (came outcomes, counted int) {
	t.Helper()
	came = outcomes{}
	for len(cells) > 0 {
		e.inHouse(t, func(h *house) {
			for !h.spent && len(cells) > 0 {
				c := cells[0]
				if c.good() && h.aged { // the result would depend on what happened in this house before
					return
				}
				cells = cells[1:]
				if c.base == acme {
					counted++
				}
				if c.good() {
					came[question{c.credential.name, c.base, c.field.String(), c.value}] = h.answered(c)
				} else {
					h.refused(c)
				}
			}
		})
	}
	return came, counted
}

// outcomes are the results of the good cells of a place.
type outcomes map[question]outcome

// question identifies a good cell of a place.
type question struct {
	credential, base, field string
	value                   value
}

// like returns the question whose result must be the same. It returns q itself if there is none.
func (q question) like() question {
	switch {
	case q.credential == stranger && q.base == acme: // here the stranger repeats exactly what acme would send
		q.base = nemo
	case q.credential != stranger && q.value == other:
		q.value = random
	}
	return q
}

// compare checks the results of the good cells of a place against each other: about another tenant's object and about one that does not exist, and of
// different roles.
func (came outcomes) compare(t *testing.T, p *place) {
	t.Helper()
	for q, out := range came {
		if want := came[q.like()]; out != want {
			t.Errorf("%s: %v came to\n%s\n%s\nand %v to\n%s\n%s", p.name, q, out.gist, out.text, q.like(), want.gist, want.text)
		}
		if q.credential == stranger || p.unguarded {
			continue
		}
		role := q.credential
		q.credential = p.declarer
		if want := came[q]; out.gist != want.gist {
			t.Errorf("%s: %v came to %q, and with %s to %q", p.name, q, want.gist, role, out.gist)
		}
	}
}

// declare writes the results of the good cells. Values of a field with the same result share a line.
func (came outcomes) declare(b *strings.Builder, p *place) {
	fmt.Fprintf(b, "%s, for %v\n", p.name, p.roles)
	for _, f := range append(p.fields, everything) {
		alike := map[string][]string{}
		var gists []string
		for _, v := range values {
			gist := came[question{p.declarer, acme, f.String(), v}].gist
			if alike[gist] == nil {
				gists = append(gists, gist)
			}
			alike[gist] = append(alike[gist], string(v))
		}
		for _, gist := range gists {
			fmt.Fprintf(b, "\t%-32s %-24s %s\n", f, strings.Join(alike[gist], " "), gist)
		}
	}
}

// compareDeclared compares the results with a file of testdata, or writes it if -update is given.
func compareDeclared(t *testing.T, file, got string) {
	t.Helper()
	if *update {
		if err := os.WriteFile(file, []byte(got), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.Split(string(text), "\n")
	for i, line := range strings.Split(got, "\n") {
		if i >= len(want) || want[i] != line {
			t.Fatalf("%s:%d: this has come about and is not declared there (-update declares it):\n%s", file, i+1, line)
		}
	}
	if string(text) != got {
		t.Errorf("%s declares more than has come about", file)
	}
}
