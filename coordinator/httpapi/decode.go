package httpapi

import (
	"bytes"
	"context"
	"encoding/json"
	"net/http"
	"reflect"
	"runtime"
	"unicode/utf8"
)

// strictness says whether fields that the API does not know are refused or ignored.
type strictness bool

// A worker may be newer than its coordinator. Unknown fields in its reports are ignored, because the worker would lose its work if the report were
// refused. In any other request an unknown field is refused, because the coordinator would not do what the field asks for.
const (
	lenient strictness = false
	strict  strictness = true
)

// decode reads the body of a request into a struct. It is stricter than package json, which accepts duplicate keys (the last one wins), field names in any
// case, and invalid UTF-8. With these, two programs could read the same body differently, so decode refuses them.
func (a *api) decode(w http.ResponseWriter, r *http.Request, into any, s strictness) *problem {
	body, p := a.body(w, r)
	if p == nil && s == strict {
		p = noParameters(r)
	}
	if p != nil {
		return p
	}
	return a.parse(body, into, s)
}

// decodeIfSent is a strict decode of a body that may be left out.
func (a *api) decodeIfSent(w http.ResponseWriter, r *http.Request, into any) *problem {
	body, p := a.body(w, r)
	if p == nil {
		p = noParameters(r)
	}
	if p != nil || len(body) == 0 {
		return p
	}
	return a.parse(body, into, strict)
}

// longBody is from how many bytes on a body is parsed in turn with others, few at a time. Package json reads a string of any length without giving up the
// processor, which each of many such bodies would keep for 10 ms (docs/decisions/0031-long-calls-yield.md). Short bodies do not wait.
const longBody = 64 << 10

// parse parses a body. A long one begins when it is its turn, and after so many values lets those that wait have theirs: they may be of other tenants, and
// much shorter.
func (a *api) parse(body []byte, into any, s strictness) *problem {
	if len(body) <= longBody {
		return parse(body, into, s, runtime.Gosched)
	}
	take := func() { _ = a.long.Take(context.Background()) } // it fails only if a context ends
	take()
	defer a.long.Give()
	return parse(body, into, s, func() {
		a.long.Give()
		take()
	})
}

// parse parses a body, and calls pause after every valuesPerTurn values.
func parse(body []byte, into any, s strictness, pause func()) *problem {
	if !utf8.Valid(body) {
		return invalid("", "the body is not valid UTF-8")
	}
	scan := scanner{body: body, tokens: json.NewDecoder(bytes.NewReader(body)), strict: s, pause: pause}
	scan.tokens.UseNumber()
	if p := scan.document(reflect.TypeOf(into).Elem()); p != nil {
		return p
	}
	if err := json.Unmarshal(body, into); err != nil {
		return invalid("", "%s: %v", doesNotFit, err)
	}
	return nil
}

// doesNotFit is the message if package json refuses a body that the scanner has accepted. It should not occur, because it names no field; FuzzDecode
// looks for it.
const doesNotFit = "the body does not match the request"
