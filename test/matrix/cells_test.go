package matrix

import (
	"fmt"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// Codes of refusals.
const (
	codeToken     = "E.AUTH.INVALID_TOKEN"
	codeForbidden = "E.AUTH.FORBIDDEN"
)

// say says what a cell has to say.
func (h *house) say(c cell) (a answer, said map[string]kind) {
	h.t.Helper()
	r, said := c.request(h.parties)
	a = c.say(h, c.credential, r)
	for _, name := range a.drawn {
		if len(name) > longestID {
			h.secrets = append(h.secrets, name)
		}
	}
	return a, said
}

// longestID is that of a session. What is longer and drawn by chance is a lease id or a token, and no log has it.
const longestID = 30

// refused checks a cell that must be refused: in words that have nothing to do with the request, and without any effect.
func (h *house) refused(c cell) {
	h.t.Helper()
	a, _ := h.say(c)
	code, want := c.refusal()
	if a.refusal != want {
		h.t.Errorf("%v: %q, want %s", c, a.text, want)
	}
	for _, n := range h.parties {
		if name := leaked(a.text, n, nil); name != "" {
			h.t.Errorf("%v: the refusal has %s in it: %s", c, name, a.text)
		}
	}
	h.accuse(c, code)
}

// refusal is how a cell must be refused.
func (c cell) refusal() (code, whole string) {
	name, status, code := "PERMISSION_DENIED", http.StatusForbidden, codeForbidden
	if c.problem != "" {
		name, status, code = "UNAUTHENTICATED", http.StatusUnauthorized, codeToken
	}
	if c.web {
		return code, fmt.Sprint(status, " ", code)
	}
	return code, strings.TrimSpace(name + " " + code + " " + string(c.problem))
}

// accuse checks what a refusal has left behind: nothing but an entry in the audit of whom the credential belongs to, the first time.
func (h *house) accuse(c cell, code string) {
	h.t.Helper()
	left := h.effects()
	if len(left.records) > 0 {
		h.t.Errorf("%v: refused, and all the same the store has changed: %v", c, left.records)
	}
	entries := 0
	if owned := c.problem == "" || c.owned; owned && !h.accused[c.credential.name] {
		entries = 1
	}
	h.aged, h.accused[c.credential.name] = true, true
	if len(left.entries) != entries {
		h.t.Errorf("%v: %d entries in the audit, want %d", c, len(left.entries), entries)
	}
	for _, a := range left.entries {
		if h.entry(c, a); a.Outcome != code {
			h.t.Errorf("%v: the outcome in the audit is %s", c, a.Outcome)
		}
	}
}

// outcome is what a good cell comes to.
type outcome struct {
	gist string // the answer in short, and what has changed
	text string // the answer as it is compared
}

// answered asks a cell that must be answered, and checks that nothing of the other tenant is in the answer, or has changed.
func (h *house) answered(c cell) outcome {
	h.t.Helper()
	a, said := h.say(c)
	if a.code == codeForbidden && c.declarer != holder { // which has words of its own for a token of another task
		h.t.Errorf("%v: %s", c, a.text)
	}
	stranger := map[string]string{acme: evil, evil: acme}[c.tenant]
	if name := leaked(a.text, h.parties[stranger], said); name != "" {
		h.t.Errorf("%v: the answer has %s of the other tenant in it: %s", c, name, a.text)
	}
	left := h.effects()
	for tenant, what := range left.records {
		if tenant != c.tenant {
			h.t.Errorf("%v: %q has changed: %s", c, tenant, what)
		}
	}
	gist := []string{strings.Join(a.gist, " ")}
	if changed := left.records[c.tenant]; changed != "" {
		gist = append(gist, changed)
	}
	for _, entry := range left.entries {
		short, whole := h.entry(c, entry)
		gist = append(gist, short)
		a.text += whole
	}
	h.spent = len(gist) > 1 || c.fleeting
	return outcome{strings.Join(gist, "; "), h.comparable(a, said)}
}

// comparable is an answer without what may differ: the names that were said, and those that are drawn by chance in each house anew.
func (h *house) comparable(a answer, said map[string]kind) string {
	drawn := map[string]kind{}
	for _, name := range a.drawn {
		drawn[name] = h.whose(name)
	}
	return without(without(a.text, said), drawn)
}

// whose says of whom and what a name is.
func (h *house) whose(name string) kind {
	for _, tenant := range []string{acme, evil} {
		for k, known := range h.parties[tenant] {
			if name == known {
				return kind(tenant) + " " + k
			}
		}
	}
	return "new"
}

// without is a text with names replaced by what they name, the longer ones first.
func without(text string, said map[string]kind) string {
	order := slices.SortedFunc(maps.Keys(said), func(a, b string) int {
		if d := len(b) - len(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range order {
		switch whole := "<" + string(said[name]) + ">"; {
		case canTell(name):
			text = strings.ReplaceAll(text, name, whole)
		case name != "":
			alone := regexp.MustCompile(`(^|[^-\w])` + name + `($|[^-\w])`) // not the end of a token, which may be -4 by chance
			text = alone.ReplaceAllString(text, "${1}"+whole+"${2}")
		}
	}
	return text
}

// leaked is one of somebody's names that is in a text and was not said.
func leaked(text string, of names, said map[string]kind) string {
	text = without(text, said)
	for _, name := range of {
		if canTell(name) && strings.Contains(text, name) {
			return name
		}
	}
	return ""
}

// canTell leaves out the short numbers, which may stand for anything.
func canTell(name string) bool { return len(name) >= len(acme) }

// A short number is replaced where it stands alone, and not in a name that was drawn by chance.
func TestWithout(t *testing.T) {
	for text, want := range map[string]string{
		`{"after":4}`: `{"after":<sequence>}`, "4": "<sequence>", "1-4": "1-4", `"lst_AQAA-4"`: `"lst_AQAA-4"`, "4-x": "4-x", "14": "14",
	} {
		if got := without(text, map[string]kind{"4": "sequence"}); got != want {
			t.Errorf("without(%q) = %q, want %q", text, got, want)
		}
	}
}
