package matrix

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var (
	update = flag.Bool("update", false, "write the results of the good cells into testdata")
	full   = flag.Bool("full", false, "all cells, instead of a sample")
)

// X1, X2, S4, V2: each call is answered or refused as the matrix says, with every credential and
// with names of another tenant.
func TestCalls(t *testing.T) {
	t.Attr("rules", "X1 X2 S4 V2")
	t.Parallel()
	e := newEnvironment(t)
	e.checkPlaces(t, "calls", callPlaces(t), e.credentials())
}

// X1, X2, X3, V2: the same for each frame of a session, also with credentials that become bad while
// the stream is open.
func TestFrames(t *testing.T) {
	t.Attr("rules", "X1 X2 X3 V2")
	t.Parallel()
	e := newEnvironment(t)
	e.checkPlaces(t, "frames", framePlaces(t), append(e.credentials(), ending...))
}

// X1, X2, V2, H1: the same for each HTTP route; the routes of workers' callbacks are tried with
// task tokens.
func TestRoutes(t *testing.T) {
	t.Attr("rules", "X1 X2 V2 H1")
	t.Parallel()
	e := newEnvironment(t)
	places, callbackPlaces := routePlaces(t, e.readDocument(t))
	e.checkPlaces(t, "routes", places, e.credentials())
	e.checkPlaces(t, "callbacks", callbackPlaces, e.taskTokens())
}

// checkPlaces asks all cells of the places, and compares the results with testdata.
func (e *environment) checkPlaces(t *testing.T, what string, places []*place, with []credential) {
	t.Helper()
	var declaration strings.Builder
	fields, cells := 0, 0
	for i, p := range places {
		if !*full && !*update {
			p.fields = sampled(p.fields, i)
		}
		results, n := e.askCells(t, p.cells(with))
		results.compare(t, p)
		results.declare(&declaration, p)
		fields, cells = fields+len(p.fields), cells+n
	}
	t.Logf("%d %s with %d fields that name something: %d cells", len(places), what, fields, cells)
	// At least four values and four credentials for each field.
	if cells < fields*16 {
		t.Errorf("%d cells for %d fields, want at least %d", cells, fields, fields*16)
	}
	compareDeclared(t, "testdata/"+what+".txt", declaration.String())
}

// sampled returns one of four fields of a place, from another one on than for the place before: the
// places share most of their fields. Everything at once is asked of each place.
func sampled(fields []field, turn int) (some []field) {
	for i, f := range fields {
		if (i+turn)%4 == 0 {
			some = append(some, f)
		}
	}
	return some
}

// askCells asks the cells of a place, in as few hosts as possible, and returns the results of the
// good ones.
func (e *environment) askCells(t *testing.T, cells []cell) (results outcomes, counted int) {
	t.Helper()
	results = outcomes{}
	for len(cells) > 0 {
		e.onHost(t, func(h *host) {
			for !h.storeChanged && len(cells) > 0 {
				c := cells[0]
				if c.good() && h.auditDiffers { // the result would depend on what happened in this host before
					return
				}
				cells = cells[1:]
				if c.base == acme {
					counted++
				}
				if c.good() {
					results[question{c.credential.name, c.base, c.field.String(), c.value}] = h.askAllowed(c)
				} else {
					h.askRefused(c)
				}
			}
		})
	}
	return results, counted
}

// outcomes are the results of the good cells of a place.
type outcomes map[question]outcome

// question identifies a good cell of a place.
type question struct {
	credential, base, field string
	value                   value
}

// counterpart returns the question whose result must be the same. It returns q itself if there is
// none.
func (q question) counterpart() question {
	switch {
	case q.credential == stranger && q.base == acme: // here the stranger repeats exactly what acme would send
		q.base = nemo
	case q.credential != stranger && q.value == other:
		q.value = random
	}
	return q
}

// compare checks the results of the good cells of a place against each other: about another
// tenant's object and about one that does not exist, and of different roles.
func (results outcomes) compare(t *testing.T, p *place) {
	t.Helper()
	for q, out := range results {
		if want := results[q.counterpart()]; out != want {
			t.Errorf("%s: the result of %v is\n%s\n%s\nwant that of %v:\n%s\n%s",
				p.name, q, out.summary, out.text, q.counterpart(), want.summary, want.text)
		}
		if q.credential == stranger || p.unguarded {
			continue
		}
		role := q.credential
		q.credential = p.declaringCredential
		if want := results[q]; out.summary != want.summary {
			t.Errorf("%s: the result of %v with the credential %s is %q, want %q", p.name, q, role, out.summary, want.summary)
		}
	}
}

// declare writes the results of the good cells. Values of a field with the same result share a
// line.
func (results outcomes) declare(b *strings.Builder, p *place) {
	fmt.Fprintf(b, "%s, for %v\n", p.name, p.roles)
	for _, f := range append(p.fields, everything) {
		alike := map[string][]string{}
		var summaries []string
		for _, v := range values {
			summary := results[question{p.declaringCredential, acme, f.String(), v}].summary
			if alike[summary] == nil {
				summaries = append(summaries, summary)
			}
			alike[summary] = append(alike[summary], string(v))
		}
		for _, summary := range summaries {
			fmt.Fprintf(b, "\t%-32s %-24s %s\n", f, strings.Join(alike[summary], " "), summary)
		}
	}
}

// compareDeclared compares the results with a file of testdata, or writes it if -update is given.
// Those of a sample are only some of the lines that the file has for a place.
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
	asked, declared := byPlace(got), byPlace(string(text))
	if len(asked) != len(declared) {
		t.Errorf("%s declares results of %d places, want %d (run with -update)", file, len(declared), len(asked))
	}
	for i := range min(len(asked), len(declared)) {
		for _, line := range asked[i] {
			if !slices.Contains(declared[i], line) {
				t.Fatalf("%s: a result of the place %q is not declared there (run with -update, and judge the difference):\n%s",
					file, asked[i][0], line)
			}
		}
	}
	if *full && string(text) != got {
		t.Errorf("%s declares results that did not occur, or in another order (run with -update, and judge the difference)", file)
	}
}

// byPlace returns the lines of each place. Those of its results are indented.
func byPlace(text string) (places [][]string) {
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "\t") {
			places = append(places, nil)
		}
		places[len(places)-1] = append(places[len(places)-1], line)
	}
	return places
}
