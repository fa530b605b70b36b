package matrix

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write what good cells come to into testdata")

// X1, X2, S4, V2: every call.
func TestCalls(t *testing.T) {
	t.Attr("rules", "X1 X2 S4 V2")
	t.Parallel()
	e := newEstate(t)
	e.try(t, "calls", callPlaces(t), e.credentials())
}

// X1, X2, X3, V2: every frame, with credentials, too, that end while the stream is open.
func TestFrames(t *testing.T) {
	t.Attr("rules", "X1 X2 X3 V2")
	t.Parallel()
	e := newEstate(t)
	e.try(t, "frames", framePlaces(t), append(e.credentials(), ending...))
}

// X1, X2, V2: every route.
func TestRoutes(t *testing.T) {
	t.Attr("rules", "X1 X2 V2 H1")
	t.Parallel()
	e := newEstate(t)
	places, holders := routePlaces(t, e.readDocument(t))
	e.try(t, "routes", places, e.credentials())
	e.try(t, "callbacks", holders, e.taskTokens())
}

// try asks all cells of some places.
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
	// Four values and four credentials for each field at least.
	if cells < fields*16 {
		t.Errorf("%d cells for %d fields", cells, fields)
	}
	compareDeclared(t, "testdata/"+what+".txt", declaration.String())
}

// ask asks cells of a place in as few houses as there may be, and counts them.
func (e *estate) ask(t *testing.T, cells []cell) (came outcomes, counted int) {
	t.Helper()
	came = outcomes{}
	for len(cells) > 0 {
		e.inHouse(t, func(h *house) {
			for !h.spent && len(cells) > 0 {
				c := cells[0]
				if c.good() && h.aged { // answers are compared from house to house
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

// outcomes are what the good cells of a place came to.
type outcomes map[question]outcome

// question is a good cell of a place.
type question struct {
	credential, base, field string
	value                   value
}

// like is the question with another outcome must not differ; the same one where there is none.
func (q question) like() question {
	switch {
	case q.credential == stranger && q.base == acme: // it repeats word for word what acme might say
		q.base = nemo
	case q.credential != stranger && q.value == other:
		q.value = random
	}
	return q
}

// compare holds the good cells of a place against each other: what is another tenant's against what is nobody's, and the roles.
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

// declare writes down what good cells came to, in one line for each field what is alike.
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

// compareDeclared compares what good cells came to with a file of testdata.
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
