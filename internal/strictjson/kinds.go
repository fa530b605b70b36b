package strictjson

import (
	"encoding"
	"encoding/json"
	"reflect"
	"strings"
	"sync"
)

// Kinds of values, as an error says them.
const (
	Object = "an object"
	List   = "an array"
	Text   = "a string"
	Number = "a number"
	Bool   = "a boolean"
)

// kindOfToken returns the kind of the value that begins with a token. It returns "" for null, which
// means the same as a field that is absent.
func kindOfToken(token json.Token) string {
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return Object
		}
		return List
	case string:
		return Text
	case json.Number:
		return Number
	case bool:
		return Bool
	}
	return ""
}

// KindOf returns the kind of JSON value that a type is read from, or "" if any value is allowed. It
// panics if the type is none that this package reads.
func KindOf(t reflect.Type) string {
	switch t = plain(t); t {
	case nil, reflect.TypeFor[json.RawMessage]():
		return ""
	case reflect.TypeFor[[]byte]():
		return Text
	}
	if readsText(t) {
		return Text
	}
	switch t.Kind() {
	case reflect.String:
		return Text
	case reflect.Bool:
		return Bool
	case reflect.Slice:
		return List
	case reflect.Map, reflect.Struct:
		return Object
	}
	if k := t.Kind(); k < reflect.Int || k > reflect.Float64 || k == reflect.Uintptr {
		panic("strictjson: no value is read into a " + t.String())
	}
	return Number
}

// readsText reports whether a type is a struct that reads itself from a string.
func readsText(t reflect.Type) bool {
	return t.Kind() == reflect.Struct && reflect.PointerTo(t).Implements(reflect.TypeFor[encoding.TextUnmarshaler]())
}

// Fields are the types of the fields of a struct by their JSON names; nil means that any name is
// allowed.
type Fields map[string]reflect.Type

// FieldsOf returns the fields of a struct that is read field by field, or nil for any other type.
func FieldsOf(t reflect.Type) Fields {
	if t = plain(t); t == nil || t.Kind() != reflect.Struct {
		return nil
	}
	if known, ok := fieldsOfTypes.Load(t); ok {
		return known.(Fields)
	}
	if readsText(t) {
		return nil
	}
	m := Fields{}
	for _, f := range reflect.VisibleFields(t) {
		if name, _, _ := strings.Cut(f.Tag.Get("json"), ","); name != "" && name != "-" {
			m[name] = f.Type
		}
	}
	fieldsOfTypes.Store(t, m)
	return m
}

// fieldsOfTypes caches the results of FieldsOf. It has an entry for each struct that was ever read.
var fieldsOfTypes sync.Map

// of returns the type of a field. It refuses a name in the wrong case, which package json would
// accept.
func (m Fields) of(at *place, s Strictness) (reflect.Type, *Error) {
	t, known := m[at.name]
	if known || m == nil {
		return t, nil
	}
	for other := range m {
		if strings.EqualFold(at.name, other) {
			return nil, refuse(at.path(), "has the wrong case; the field is %s", other)
		}
	}
	if s == Strict {
		return nil, refuse(at.path(), "is not a field of this request")
	}
	return nil, nil
}

// ItemOf returns the type of the items of a list, or of an object with arbitrary names; nil means
// any type.
func ItemOf(t reflect.Type) reflect.Type {
	if t = plain(t); t != nil &&
		(t.Kind() == reflect.Map || t.Kind() == reflect.Slice && t != reflect.TypeFor[json.RawMessage]()) {
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
