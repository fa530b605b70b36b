// Package strictjson reads the body of a request so that it can be read in only one way. Package
// json accepts a name that comes twice (the last one wins), names in any case, invalid UTF-8 and
// half of a surrogate pair; with these, two programs could read the same body differently, so this
// package refuses them. Its errors name the field and what it must be.
//
// A body is read into a struct: strings, booleans, numbers, pointers, lists, maps, structs, bytes
// in base64, values that are kept as they are (json.RawMessage), and structs that read themselves
// from a string (encoding.TextUnmarshaler), whose error becomes the problem of the field. A null
// means that a field is not sent.
package strictjson

import (
	"bytes"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"unicode/utf8"
)

// Limits of a body. MaxDepth is how deep its values may be nested. maxEntries is how many entries a
// list or map may have, except in values that are kept as they are: a struct whose JSON is two
// bytes would take hundreds.
const (
	MaxDepth   = 100
	maxEntries = 10_000
)

// valuesPerTurn is after how many values the reading of a body pauses.
const valuesPerTurn = 100

// Strictness says what becomes of fields that the struct does not have, and of a null in a list or
// a map. Lenient ignores such a field, and leaves the null to the type of the list or map. Strict
// refuses both.
type Strictness bool

// The two kinds of strictness.
const (
	Lenient Strictness = false
	Strict  Strictness = true
)

// Limited is a type of whole numbers of which the server takes fewer than the type can hold. The
// error about a number that does not fit the type names these limits, so that it does not offer
// numbers that would be refused next. Those between are read: whoever takes them checks them.
type Limited interface {
	Limits() (least int64, most uint64)
}

// Defaulted is a Limited type of which 0, below its limits, means the default. The error says so.
type Defaulted interface {
	Limited
	ZeroIsDefault()
}

// Error is why a body is refused.
type Error struct {
	Field   string // its path, such as labels.a or queues[1]; "" is the whole body
	Problem string // what is wrong with it, such as "is sent twice"
}

// Error returns the problem with its field.
func (e *Error) Error() string {
	if e.Field == "" {
		return "the body " + e.Problem
	}
	return e.Field + ": " + e.Problem
}

func refuse(field, format string, args ...any) *Error {
	return &Error{Field: field, Problem: fmt.Sprintf(format, args...)}
}

// Unmarshal reads a body, one object, into the struct that into points to, and returns nil unless
// the body is refused. It calls pause, which may be nil, after every hundred values or so. It may
// change body: a whole number that has a fraction of zeros loses it.
func Unmarshal(body []byte, into any, strict Strictness, pause func()) *Error {
	if !utf8.Valid(body) {
		return refuse("", "is not valid UTF-8")
	}
	if pause == nil {
		pause = func() {}
	}
	scan := scanner{body: body, tokens: json.NewDecoder(bytes.NewReader(body)), strict: strict, pause: pause}
	scan.tokens.UseNumber()
	if err := scan.document(reflect.TypeOf(into).Elem()); err != nil {
		return err
	}
	if err := json.Unmarshal(body, into); err != nil {
		return refuse("", "%s: %v", doesNotFit, err)
	}
	return nil
}

// Clip returns the text of a caller as an error shows it: at most 64 bytes, cut between two
// characters, and then with "..." at its end, as lease.Clip has it.
func Clip(text string) string {
	const most = 64
	if len(text) <= most {
		return text
	}
	return strings.ToValidUTF8(text[:most], "") + "..."
}

// doesNotFit is the problem if package json refuses a body that the scanner has accepted. It should
// not occur, because it names no field; FuzzUnmarshal looks for it.
const doesNotFit = "does not match the request"
