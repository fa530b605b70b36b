package matrix

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
)

// Codes of refusals.
const (
	codeToken     = "E.AUTH.INVALID_TOKEN"
	codeForbidden = "E.AUTH.FORBIDDEN"
)

// sendCell sends the request of a cell. sent has the names in it; see cell.request.
func (h *host) sendCell(c cell) (a answer, sent map[string]kind) {
	h.t.Helper()
	r, sent := c.request(h.parties)
	a = c.send(h, c.credential, r)
	for _, name := range a.randomValues {
		if len(name) > longestID {
			h.secrets = append(h.secrets, name)
		}
	}
	return a, sent
}

// longestID is the length of a session id. A random value that is longer is a lease id or a token,
// which no log may have.
const longestID = 30

// askRefused checks a cell that must be refused: the answer must not depend on the request, and
// nothing may change.
func (h *host) askRefused(c cell) {
	h.t.Helper()
	a, _ := h.sendCell(c)
	code, want := c.refusal()
	if a.refusal != want {
		h.t.Errorf("%v: refused with %q, want %s", c, a.text, want)
	}
	for _, n := range h.parties {
		if name := leaked(a.text, n, nil); name != "" {
			h.t.Errorf("%v: the refusal contains the name %s: %s", c, name, a.text)
		}
	}
	h.checkRefusalEffects(c, code)
}

// refusal returns how the cell must be refused.
func (c cell) refusal() (code, refusal string) {
	name, status, code := "PERMISSION_DENIED", http.StatusForbidden, codeForbidden
	if c.problem != "" {
		name, status, code = "UNAUTHENTICATED", http.StatusUnauthorized, codeToken
	}
	if c.web {
		return code, fmt.Sprint(status, " ", code)
	}
	return code, strings.TrimSpace(name + " " + code + " " + string(c.problem))
}

// checkRefusalEffects checks that a refusal changed nothing, except for the audit: it has one entry
// for each credential whose owner is known, made at its first refusal.
func (h *host) checkRefusalEffects(c cell, code string) {
	h.t.Helper()
	left := h.effects()
	if len(left.records) > 0 {
		h.t.Errorf("%v: a refused request has changed the store: %v", c, left.records)
	}
	entries := 0
	if owned := c.problem == "" || c.owned; owned && !h.refusalAudited[c.credential.name] {
		entries = 1
	}
	h.auditDiffers, h.refusalAudited[c.credential.name] = true, true
	if len(left.entries) != entries {
		h.t.Errorf("%v: %d entries in the audit, want %d", c, len(left.entries), entries)
	}
	for _, a := range left.entries {
		if h.entry(c, a); a.Outcome != code {
			h.t.Errorf("%v: the outcome in the audit is %s, want %s", c, a.Outcome, code)
		}
	}
}

// outcome is the result of a good cell.
type outcome struct {
	summary string // the answer in short, and what has changed
	text    string // the whole answer, in a form that can be compared
}

// askAllowed asks a cell that must be answered, and checks that the answer has nothing of the other
// tenant, and that nothing of it has changed.
func (h *host) askAllowed(c cell) outcome {
	h.t.Helper()
	a, sent := h.sendCell(c)
	// a task token for another task is refused with this code, too
	if a.code == codeForbidden && c.declaringCredential != holder {
		h.t.Errorf("%v: the credential is refused, want an answer: %s", c, a.text)
	}
	stranger := map[string]string{acme: evil, evil: acme}[c.tenant]
	if name := leaked(a.text, h.parties[stranger], sent); name != "" {
		h.t.Errorf("%v: the answer contains the name %s of the other tenant: %s", c, name, a.text)
	}
	left := h.effects()
	for tenant, what := range left.records {
		if tenant != c.tenant {
			h.t.Errorf("%v: records of tenant %q have changed: %s", c, tenant, what)
		}
	}
	summary := []string{strings.Join(a.summary, " ")}
	if changed := left.records[c.tenant]; changed != "" {
		summary = append(summary, changed)
	}
	for _, entry := range left.entries {
		short, text := h.entry(c, entry)
		summary = append(summary, short)
		a.text += text
	}
	h.storeChanged = len(summary) > 1 || c.changesMemory
	return outcome{strings.Join(summary, "; "), h.comparable(a, sent)}
}

// comparable returns an answer without what may differ: the names that the request had, and random
// values.
func (h *host) comparable(a answer, sent map[string]kind) string {
	randomValues := map[string]kind{}
	for _, name := range a.randomValues {
		randomValues[name] = h.ownerAndKind(name)
	}
	return replaceNames(replaceNames(a.text, sent), randomValues)
}

// ownerAndKind returns the tenant and the kind of a name; "new" if no tenant had it.
func (h *host) ownerAndKind(name string) kind {
	for _, tenant := range []string{acme, evil} {
		for k, known := range h.parties[tenant] {
			if name == known {
				return kind(tenant) + " " + k
			}
		}
	}
	return "new"
}

// replaceNames replaces names in a text by what they name, the longer ones first.
func replaceNames(text string, sent map[string]kind) string {
	order := slices.SortedFunc(maps.Keys(sent), func(a, b string) int {
		if d := len(b) - len(a); d != 0 {
			return d
		}
		return strings.Compare(a, b)
	})
	for _, name := range order {
		switch tag := "<" + string(sent[name]) + ">"; {
		case isDistinctive(name):
			text = strings.ReplaceAll(text, name, tag)
		case name != "":
			text = replaceAlone(text, name, tag)
		}
	}
	return text
}

// replaceAlone replaces a short number where it is not part of something longer, such as a token,
// which may end in -4 by chance.
func replaceAlone(text, name, tag string) string {
	var b strings.Builder
	for begun := 0; ; {
		before, after, found := strings.Cut(text[begun:], name)
		if b.WriteString(before); !found {
			return b.String()
		}
		at := begun + len(before)
		if begun = at + len(name); at > 0 && inWord(text[at-1]) || after != "" && inWord(after[0]) {
			b.WriteString(name)
		} else {
			b.WriteString(tag)
		}
	}
}

func inWord(c byte) bool {
	return c == '-' || c == '_' || '0' <= c && c <= '9' || 'A' <= c && c <= 'Z' || 'a' <= c && c <= 'z'
}

// leaked returns a name of the given ones that is in the text although the request did not have it;
// empty if there is none.
func leaked(text string, of names, sent map[string]kind) string {
	text = replaceNames(text, sent)
	for _, name := range of {
		if isDistinctive(name) && strings.Contains(text, name) {
			return name
		}
	}
	return ""
}

// isDistinctive is false for short numbers, which may be anything.
func isDistinctive(name string) bool { return len(name) >= len(acme) }

// A short number is replaced only where it stands alone, not inside a random value.
func TestReplaceNames(t *testing.T) {
	for text, want := range map[string]string{
		`{"after":4}`: `{"after":<sequence>}`, "4": "<sequence>", "1-4": "1-4", `"lst_AQAA-4"`: `"lst_AQAA-4"`,
		"4-x": "4-x", "14": "14",
	} {
		if got := replaceNames(text, map[string]kind{"4": "sequence"}); got != want {
			t.Errorf("without(%q) = %q, want %q", text, got, want)
		}
	}
}
