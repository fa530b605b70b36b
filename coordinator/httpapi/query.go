package httpapi

import (
	"bytes"
	"encoding/json"
	"maps"
	"net/http"
	"net/url"
	"reflect"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/lessor-dev/lessor/internal/strictjson"
)

// query reads the parameters in the URL of a request into a struct. It is as strict as decode,
// because it parses the body that would have the same fields. A real body is refused: not
// everything on the way passes on the body of a GET or DELETE, and a list whose filter is ignored
// has every task.
func (a *api) query(w http.ResponseWriter, r *http.Request, into any) *problem {
	switch body, p := a.body(w, r); {
	case p != nil:
		return p
	case len(body) > 0:
		return invalid("", "a %s has no body; its fields are parameters of the URL", r.Method)
	}
	sent, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return invalid("", "the query cannot be read: %v", err)
	}
	body, p := asBody(sent, strictjson.FieldsOf(reflect.TypeOf(into).Elem()))
	if p != nil {
		return p
	}
	return a.parse(body, into, strict)
}

// asBody returns a body with the given parameters as its fields. A parameter that is sent twice is
// a list, or a field that is sent twice. An empty one is refused: it may be an unset variable of a
// script, and would select more than it should.
func asBody(sent url.Values, known strictjson.Fields) ([]byte, *problem) {
	var fields [][]byte
	for _, name := range slices.Sorted(maps.Keys(sent)) {
		t, isKnown := known[name]
		item := strictjson.ItemOf(t)
		if item != nil {
			t = item
		}
		var values [][]byte
		for _, text := range sent[name] {
			switch {
			case !utf8.ValidString(name) || !utf8.ValidString(text):
				return nil, invalid("", "the query is not valid UTF-8")
			case text == "" && isKnown:
				return nil, invalid(name, "must not be empty; leave it out")
			}
			values = append(values, asValue(text, t))
		}
		if item != nil {
			values = [][]byte{slices.Concat([]byte("["), bytes.Join(values, []byte(",")), []byte("]"))}
		}
		for _, value := range values {
			fields = append(fields, slices.Concat(quoted(name), []byte(":"), value))
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(fields, []byte(",")), []byte("}")), nil
}

// asValue returns the text of a parameter as a JSON value: for a type that is no text as it is, if
// it has that form, else as a string.
func asValue(text string, t reflect.Type) []byte {
	switch strictjson.KindOf(t) {
	case strictjson.Bool:
		if text == "true" || text == "false" {
			return []byte(text)
		}
	case strictjson.Number:
		if strings.Trim(text, "+-.0123456789eE") == "" && json.Valid([]byte(text)) {
			return []byte(text)
		}
	}
	return quoted(text)
}

// noParameters refuses parameters in the URL of a request whose fields are in its body: a deadline
// there would be ignored.
func noParameters(r *http.Request) *problem {
	if r.URL.RawQuery != "" {
		return invalid("", "the request has its fields in the body, and no parameters in the URL")
	}
	return nil
}

func quoted(text string) []byte {
	value, _ := json.Marshal(text) // a string cannot fail
	return value
}
