package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"reflect"
	"strings"
	"sync"
	"time"
	"unicode/utf8"
)

// maxDepth is how deep values may be nested in a body.
const maxDepth = 100

// strictness is what becomes of fields that the API does not know.
type strictness bool

// A worker may be newer than its coordinator: what it says beside the report is passed over, since a refusal would cost its work. Who asks
// for something is told that it will not be done.
const (
	lenient strictness = false
	strict  strictness = true
)

// decode reads the body of a request into a struct. Package json would take the last of two equal keys, names in any case and text that
// is no UTF-8, so that two readers of one body could understand it differently; all of that is refused.
func (a *api) decode(w http.ResponseWriter, r *http.Request, into any, s strictness) *problem {
	body, err := io.ReadAll(http.MaxBytesReader(plainWriter(w), r.Body, a.MaxBody))
	if err != nil {
		return unread(err)
	}
	return parse(body, into, s)
}

func unread(err error) *problem {
	var (
		tooLarge *http.MaxBytesError
		timeout  net.Error
	)
	switch {
	case errors.As(err, &tooLarge):
		return newProblem(kindTooLarge, codeTooLarge, fmt.Sprintf("the body has more than %d bytes", tooLarge.Limit))
	case errors.As(err, &timeout) && timeout.Timeout():
		return errSlow
	}
	return invalid("", "the body can not be read")
}

func parse(body []byte, into any, s strictness) *problem {
	if !utf8.Valid(body) {
		return invalid("", "the body is no UTF-8")
	}
	scan := scanner{tokens: json.NewDecoder(bytes.NewReader(body)), strict: s}
	scan.tokens.UseNumber()
	if p := scan.document(reflect.TypeOf(into).Elem()); p != nil {
		return p
	}
	return unfit(json.Unmarshal(body, into), membersOf(reflect.TypeOf(into)))
}

// unfit names the field whose value is of the wrong type. Package json puts the names of embedded structs before it.
func unfit(err error, all members) *problem {
	var wrong *json.UnmarshalTypeError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &wrong):
		path := wrong.Field
		if _, inner, ok := strings.Cut(path, "."); ok && all[top(path)] == nil {
			path = inner
		}
		return invalid(path, "is a JSON %s, which does not fit", wrong.Value)
	}
	return invalid("", "the body does not fit: %v", err)
}

// scanner reads a body token by token and refuses what package json would let pass.
type scanner struct {
	tokens *json.Decoder
	strict strictness
	depth  int
}

// document reads the one value of a body, which must be an object.
func (s *scanner) document(t reflect.Type) *problem {
	first, err := s.tokens.Token()
	if err != nil {
		return malformed(err)
	}
	if first != json.Delim('{') {
		return invalid("", "the body is no JSON object")
	}
	if p := s.object(nil, t); p != nil {
		return p
	}
	if _, err := s.tokens.Token(); !errors.Is(err, io.EOF) {
		return invalid("", "the body goes on after its object")
	}
	return nil
}

func malformed(err error) *problem {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("", "the body ends within its object")
	}
	return invalid("", "the body is no JSON: %v", err)
}

// value reads a value of type t; nil is any.
func (s *scanner) value(at *place, t reflect.Type) *problem {
	token, err := s.tokens.Token()
	switch {
	case err != nil:
		return malformed(err)
	case token == json.Delim('{'):
		return s.object(at, t)
	case token == json.Delim('['):
		return s.list(at, t)
	}
	if text, ok := token.(string); ok {
		return readable(at, text, plain(t))
	}
	return nil
}

// readable checks the texts that stand for something else: package json would not name their field.
func readable(at *place, text string, t reflect.Type) *problem {
	switch t {
	case reflect.TypeFor[instant]():
		if _, err := time.Parse(time.RFC3339, text); err != nil {
			return invalid(at.path(), "is no RFC 3339 time such as 2026-01-15T10:00:00Z")
		}
	case reflect.TypeFor[[]byte]():
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return invalid(at.path(), "is no base64")
		}
	}
	return nil
}

// object reads the members of an object, and its end.
func (s *scanner) object(in *place, t reflect.Type) *problem {
	if p := s.deeper(in); p != nil {
		return p
	}
	members := membersOf(t)
	seen := map[string]bool{}
	for s.tokens.More() {
		token, err := s.tokens.Token()
		if err != nil {
			return malformed(err)
		}
		name := token.(string) // the decoder takes no other key
		at := place{in: in, name: name, index: noIndex}
		if seen[name] {
			return invalid(at.path(), "is sent twice")
		}
		seen[name] = true
		inner, p := members.of(&at, s.strict)
		if p == nil {
			p = s.value(&at, inner)
		}
		if p != nil {
			return p
		}
	}
	return s.end()
}

func (s *scanner) list(in *place, t reflect.Type) *problem {
	if p := s.deeper(in); p != nil {
		return p
	}
	inner := itemOf(t)
	for at := (place{in: in}); s.tokens.More(); at.index++ {
		if p := s.value(&at, inner); p != nil {
			return p
		}
	}
	return s.end()
}

func (s *scanner) deeper(at *place) *problem {
	if s.depth++; s.depth > maxDepth {
		return invalid(top(at.path()), "is nested more than %d deep", maxDepth)
	}
	return nil
}

func (s *scanner) end() *problem {
	s.depth--
	if _, err := s.tokens.Token(); err != nil {
		return malformed(err)
	}
	return nil
}

// members are the fields of a struct by their names in JSON; nil where any name will do.
type members map[string]reflect.Type

// membersOf is nil for anything but a struct that is read field by field.
func membersOf(t reflect.Type) members {
	if t = plain(t); t == nil || t.Kind() != reflect.Struct || t == reflect.TypeFor[instant]() {
		return nil
	}
	if known, ok := membersOfTypes.Load(t); ok {
		return known.(members)
	}
	m := members{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" {
			m[name] = f.Type
		}
	}
	membersOfTypes.Store(t, m)
	return m
}

// membersOfTypes keeps what membersOf has found. There are as many types as structs for requests.
var membersOfTypes sync.Map

// of is the type of a member. Package json would take a name in another case for that of a field.
func (m members) of(at *place, s strictness) (reflect.Type, *problem) {
	t, known := m[at.name]
	if known || m == nil {
		return t, nil
	}
	for other := range m {
		if strings.EqualFold(at.name, other) {
			return nil, invalid(at.path(), "is spelled %s", other)
		}
	}
	if s == strict {
		return nil, invalid(at.path(), "is no field of this request")
	}
	return nil, nil
}

// itemOf is the type of the items of a list; nil is any.
func itemOf(t reflect.Type) reflect.Type {
	if t = plain(t); t != nil && t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]() {
		return t.Elem()
	}
	return nil
}

// plain is the type that a pointer points to.
func plain(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}

// place is where in a body a value is; nil is the body itself. Its path is spelled out only where something is wrong: of each of the millions of values
// that a body may have, it would cost more than all else.
type place struct {
	in    *place
	name  string // in an object
	index int    // in a list, else noIndex
}

const noIndex = -1

func (p *place) path() string {
	if p == nil {
		return ""
	}
	outer := p.in.path()
	if p.index != noIndex {
		return fmt.Sprintf("%s[%d]", outer, p.index)
	}
	name := p.name
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "..."
	}
	if outer == "" {
		return name
	}
	return outer + "." + name
}

// top is the first part of a path.
func top(path string) string {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path
	}
	return path[:end]
}
