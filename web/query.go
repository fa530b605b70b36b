package web

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/internal/words"
)

// unchanged is the parameter of a form that has the exact values of the others, see kept. Every
// page takes it, and the workspace.
const unchanged = "unchanged"

// readable checks the query of a page that takes certain parameters, and returns the request
// without what forms add to it. It refuses what is not a query, which net/url would leave out; what
// is not text, which no other client of the services can send; and what the page would not heed: a
// reader who has written "states" for "state" would take all tasks for those of that state.
func readable(r *http.Request, takes []string) (*http.Request, error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, malformed("query", err.Error())
	}
	if err := readableParameters(query, takes); err != nil {
		return nil, err
	}
	if err := restore(query, takes); err != nil {
		return nil, err
	}
	address := *r.URL
	address.RawQuery = query.Encode()
	r = r.WithContext(r.Context())
	r.URL = &address
	return r, nil
}

func readableParameters(query url.Values, takes []string) error {
	for name, values := range query {
		switch {
		case !utf8.ValidString(name) || !utf8.ValidString(strings.Join(values, "&")):
			return malformed(strings.ToValidUTF8(name, "\uFFFD"), "must be UTF-8")
		case name == "workspace" || name == unchanged:
		case !slices.Contains(takes, name):
			return malformed(name, "this page takes no such parameter, but "+strings.Join(append([]string{"workspace"}, takes...), ", "))
		}
		if len(values) > 1 && !slices.Contains(lists, name) {
			return malformed(name, "is there more than once")
		}
	}
	return nil
}

// lists are the parameters that may have several values.
var lists = []string{"state", "end_reason", "error_category"}

// valuesOf returns the values of a parameter that may have several: the form has one, with commas,
// or an empty one for none.
func valuesOf(query url.Values, name string) (values []string) {
	for _, list := range query[name] {
		if list != "" {
			values = append(values, strings.Split(list, ",")...)
		}
	}
	return values
}

// namedBy returns the values of an enum that a parameter names, in any case; unknown says what a
// name is that names none.
func namedBy[E any](
	query url.Values, parameter string, named func(string) (E, bool), unknown string,
) (found []E, err error) {
	for i, name := range valuesOf(query, parameter) {
		value, known := named(name)
		switch {
		case name == "":
			return nil, malformed(parameter,
				fmt.Sprintf("the value %d of %q is empty", i+1, strings.Join(query[parameter], ",")))
		case !known:
			return nil, malformed(parameter, unknown+" "+name)
		}
		found = append(found, value)
	}
	return found, nil
}

// boxed returns a text as the box of a form has it. A browser would drop the ends of lines.
func boxed(text string) string { return words.Visible(text, "") }

// kept returns what a form says of the values that its boxes cannot show, so that one that its
// reader leaves as it is keeps its value; "" if the boxes show all.
func kept(query url.Values) string {
	exact := url.Values{}
	for name := range query {
		if text := query.Get(name); boxed(text) != text {
			exact.Set(name, text)
		}
	}
	return exact.Encode()
}

// restore gives parameters of a form that its reader has left as they were their exact values.
func restore(query url.Values, takes []string) error {
	exact, err := url.ParseQuery(query.Get(unchanged))
	if err != nil {
		return malformed(unchanged, err.Error())
	}
	query.Del(unchanged)
	if err := readableParameters(exact, takes); err != nil {
		return err
	}
	for name := range exact {
		if query.Get(name) == boxed(exact.Get(name)) {
			query.Set(name, exact.Get(name))
		}
	}
	return nil
}

// malformed refuses a part of the query.
func malformed(field, why string) error {
	return status.Errorf(codes.InvalidArgument, "%s: %s", field, why)
}
