package strictjson

import (
	"bytes"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// scanner reads a body token by token and refuses faults that package json would accept.
type scanner struct {
	body   []byte
	tokens *json.Decoder
	strict Strictness
	depth  int
	values int // so far
	pause  func()
}

// document reads the whole body, which must be exactly one object.
func (s *scanner) document(t reflect.Type) *Error {
	first, err := s.tokens.Token()
	if err != nil {
		return malformed(err)
	}
	if first != json.Delim('{') {
		return refuse("", "is not a JSON object")
	}
	if p := s.object(nil, t); p != nil {
		return p
	}
	if _, err := s.tokens.Token(); !errors.Is(err, io.EOF) {
		return refuse("", "has more data after its JSON object")
	}
	return nil
}

func malformed(err error) *Error {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return refuse("", "ends before its JSON object is complete")
	}
	return refuse("", "is not valid JSON: %v", err)
}

// value reads a value for type t. If t is nil, any value is allowed. item says that the value is in
// a list, or in an object with arbitrary names.
func (s *scanner) value(at *place, t reflect.Type, item bool) *Error {
	if s.values++; s.values%valuesPerTurn == 0 {
		s.pause()
	}
	begin := s.tokens.InputOffset()
	token, err := s.tokens.Token()
	if err != nil {
		return malformed(err)
	}
	if got, want := kindOfToken(token), KindOf(t); got != "" && want != "" && got != want {
		return refuse(at.path(), "is %s; it must be %s", got, want)
	} else if token == nil && item && want != "" && s.strict == Strict {
		// Package json would read null as 0 or "". JavaScript writes NaN as null, so a requirement
		// of the caller could get lost.
		return refuse(at.path(), "is null; it must be %s", want)
	}
	switch token := token.(type) {
	case json.Delim:
		if token == '{' {
			return s.object(at, t)
		}
		return s.list(at, t)
	case string:
		return s.text(at, token, plain(t), begin)
	case json.Number:
		return s.number(at, token.String(), plain(t))
	}
	return nil
}

// text checks a string, which may also be the form of bytes, or of a struct that reads itself. It
// does this because the errors of package json would not name the field.
func (s *scanner) text(at *place, text string, t reflect.Type, begin int64) *Error {
	switch t {
	case nil, reflect.TypeFor[json.RawMessage](): // kept as it is
		return nil
	case reflect.TypeFor[[]byte]():
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return refuse(at.path(), "is not valid base64 (standard alphabet, padded with =)")
		}
	default:
		if !readsText(t) {
			break
		}
		if err := reflect.New(t).Interface().(encoding.TextUnmarshaler).UnmarshalText([]byte(text)); err != nil {
			return refuse(at.path(), "%v", err)
		}
	}
	return s.whole(at, begin)
}

// whole refuses half of a surrogate pair in the string that starts after begin. Package json reads
// each such half as U+FFFD, so two different keys would become equal.
func (s *scanner) whole(at *place, begin int64) *Error {
	raw := s.body[begin:s.tokens.InputOffset()]
	for {
		escape := bytes.IndexByte(raw, '\\')
		if escape < 0 {
			return nil
		}
		first := escaped(raw[escape:])
		raw = raw[escape+2:]
		if first < 0 {
			continue
		}
		raw = raw[4:]
		if !utf16.IsSurrogate(first) {
			continue
		}
		if utf16.DecodeRune(first, escaped(raw)) == utf8.RuneError {
			return refuse(at.path(), "has an unpaired surrogate, which is not a valid character")
		}
		raw = raw[6:]
	}
}

// escaped returns the code unit of an escape of the form \u0000 at the start of text, or -1 if text
// does not start with one.
func escaped(text []byte) rune {
	if len(text) < 6 || text[0] != '\\' || text[1] != 'u' {
		return -1
	}
	code, err := strconv.ParseUint(string(text[2:6]), 16, 16)
	if err != nil {
		return -1
	}
	return rune(code)
}

// number checks that a number fits the type.
func (s *scanner) number(at *place, text string, t reflect.Type) *Error {
	if t == nil || t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	isFloat := t.Kind() == reflect.Float32 || t.Kind() == reflect.Float64
	if !isFloat {
		text = s.withoutFraction(text)
	}
	var (
		err  error
		want string
		bits = t.Bits()
	)
	switch {
	case isFloat:
		_, err = strconv.ParseFloat(text, bits)
		want = fmt.Sprintf("a number of %d bits", bits)
	case t.Kind() >= reflect.Uint && t.Kind() <= reflect.Uint64:
		_, err = strconv.ParseUint(text, 10, bits)
		want = wholeNumber(t, 0, ^uint64(0)>>(64-bits))
	default:
		_, err = strconv.ParseInt(text, 10, bits)
		want = wholeNumber(t, int64(-1)<<(bits-1), ^uint64(0)>>(65-bits))
	}
	switch {
	case err == nil:
		return nil
	case !isFloat && strings.ContainsAny(text, "eE"):
		want += ", without an exponent"
	}
	return refuse(at.path(), "is %s; it must be %s", Clip(text), want)
}

// wholeNumber says which whole numbers a type may be, if it can hold those from least to most.
func wholeNumber(t reflect.Type, least int64, most uint64) string {
	zero := reflect.Zero(t).Interface()
	if limited, ok := zero.(Limited); ok {
		least, most = limited.Limits()
	}
	text := fmt.Sprintf("a whole number from %d to %d", least, most)
	if _, ok := zero.(Defaulted); ok {
		text += ", or 0 for the default"
	}
	return text
}

// withoutFraction returns the number that was just read without a fraction of zeros, and puts
// spaces in place of that in the body. Many languages write a whole number as 1500.0 if they have
// calculated it, and the type integer of JSON Schema includes that, but package json does not.
func (s *scanner) withoutFraction(text string) string {
	whole, fraction, _ := strings.Cut(text, ".")
	if strings.Trim(fraction, "0") != "" {
		return text
	}
	end := int(s.tokens.InputOffset())
	for i := end - len(text) + len(whole); i < end; i++ {
		s.body[i] = ' '
	}
	return whole
}

// object reads the fields of an object, and its end.
func (s *scanner) object(in *place, t reflect.Type) *Error {
	if p := s.deeper(in); p != nil {
		return p
	}
	fields, items := FieldsOf(t), ItemOf(t)
	seen := map[string]bool{}
	for s.tokens.More() {
		begin := s.tokens.InputOffset()
		token, err := s.tokens.Token()
		if err != nil {
			return malformed(err)
		}
		name := token.(string) // the decoder returns an error for any other key
		at := place{in: in, name: name, index: noIndex}
		if seen[name] {
			return refuse(at.path(), "is sent twice")
		}
		if seen[name] = true; items != nil && len(seen) > maxEntries {
			return tooMany(in)
		}
		inner, p := items, (*Error)(nil)
		if items != nil {
			p = s.whole(&at, begin)
		} else {
			inner, p = fields.of(&at, s.strict)
		}
		if p == nil {
			p = s.value(&at, inner, items != nil)
		}
		if p != nil {
			return p
		}
	}
	return s.end()
}

func (s *scanner) list(in *place, t reflect.Type) *Error {
	if p := s.deeper(in); p != nil {
		return p
	}
	inner := ItemOf(t)
	for at := (place{in: in}); s.tokens.More(); at.index++ {
		if inner != nil && at.index == maxEntries {
			return tooMany(in)
		}
		if p := s.value(&at, inner, true); p != nil {
			return p
		}
	}
	return s.end()
}

func tooMany(at *place) *Error { return refuse(at.path(), "has more than %d entries", maxEntries) }

func (s *scanner) deeper(at *place) *Error {
	if s.depth++; s.depth > MaxDepth {
		return refuse(top(at.path()), "is nested more than %d levels deep", MaxDepth)
	}
	return nil
}

func (s *scanner) end() *Error {
	s.depth--
	if _, err := s.tokens.Token(); err != nil {
		return malformed(err)
	}
	return nil
}

// place is the position of a value in a body; nil is the body itself. The text of its path is built
// only for an error, because a body may have millions of values, and to build all their paths would
// cost more than everything else.
type place struct {
	in    *place
	name  string // of a field of an object
	index int    // of an item of a list; else noIndex
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
	if name == "" {
		name = `""` // else it would be the object around it
	}
	name = Clip(name)
	if outer == "" {
		return name
	}
	return outer + "." + name
}

// top returns the first part of a path.
func top(path string) string {
	end := strings.IndexAny(path, ".[")
	if end < 0 {
		return path
	}
	return path[:end]
}
