package httpapi

import (
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// Kinds of values.
const (
	anObject = "an object"
	aList    = "an array"
	aText    = "a string"
	aNumber  = "a number"
	aBool    = "a boolean"
)

// kindOfToken returns the kind of the value that begins with a token. It returns "" for null, which means the same as a field that is absent.
func kindOfToken(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return anObject
		}
		return aList
	case string:
		return aText
	case json.Number:
		return aNumber
	case bool:
		return aBool
	}
	return ""
}

// kindOfType returns the kind of JSON value that a type is read from, or "" if any value is allowed.
func kindOfType(t reflect.Type) string {
	switch t = plain(t); t {
	case nil, reflect.TypeFor[json.RawMessage]():
		return ""
	case reflect.TypeFor[instant](), reflect.TypeFor[[]byte]():
		return aText
	}
	switch t.Kind() {
	case reflect.String:
		return aText
	case reflect.Bool:
		return aBool
	case reflect.Slice:
		return aList
	case reflect.Map, reflect.Struct:
		return anObject
	}
	return aNumber
}

// members holds the types of the fields of a struct by their JSON names; nil means that any name is allowed.
type members map[string]reflect.Type

// membersOf returns the members of a struct that is read field by field, or nil for any other type.
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

// membersOfTypes caches the results of membersOf. It has an entry for each struct of a request.
var membersOfTypes sync.Map

// of returns the type of a member. It refuses a field name in the wrong case, which package json would accept.
func (m members) of(at *place, s strictness) (reflect.Type, *problem) {
	t, known := m[at.name]
	if known || m == nil {
		return t, nil
	}
	for other := range m {
		if strings.EqualFold(at.name, other) {
			return nil, invalid(at.path(), "has the wrong case; the field is %s", other)
		}
	}
	if s == strict {
		return nil, invalid(at.path(), "is not a field of this request")
	}
	return nil, nil
}

// itemOf returns the type of the items of a list, or of an object with arbitrary names; nil means any type.
func itemOf(t reflect.Type) reflect.Type {
	if t = plain(t); t != nil && (t.Kind() == reflect.Map || t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]()) {
		return t.Elem()
	}
	return nil
}

// plain returns the element type of a pointer type, and any other type unchanged.
func plain(t reflect.Type) reflect.Type {
	if t != nil && t.Kind() == reflect.Pointer {
		return t.Elem()
	}
	return t
}
