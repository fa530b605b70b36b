package httpapi

import (
	"bytes"
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

// Limits of a body. maxDepth is how deep its values may be nested. maxEntries is how many entries a list or map may have, except in values that are kept as
// they are: an artifact of two bytes would take hundreds. The gRPC call checks the limits of each field, which are lower.
const (
	maxDepth   = 100
	maxEntries = 10_000
)

// valuesPerTurn is after how many values the parsing of a body pauses.
const valuesPerTurn = 100

// scanner reads a body token by token and refuses faults that package json would accept.
type scanner struct {
	body   []byte
	tokens *json.Decoder
	strict strictness
	depth  int
	values int // so far
	pause  func()
}

// document reads the whole body, which must be exactly one object.
func (s *scanner) document(t reflect.Type) *problem {
	first, err := s.tokens.Token()
	if err != nil {
		return malformed(err)
	}
	if first != json.Delim('{') {
		return invalid("", "the body is not a JSON object")
	}
	if p := s.object(nil, t); p != nil {
		return p
	}
	if _, err := s.tokens.Token(); !errors.Is(err, io.EOF) {
		return invalid("", "the body has more data after its JSON object")
	}
	return nil
}

func malformed(err error) *problem {
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return invalid("", "the body ends before its JSON object is complete")
	}
	return invalid("", "the body is not valid JSON: %v", err)
}

// value reads a value for type t. If t is nil, any value is allowed. item says that the value is in a list, or in an object with arbitrary names.
func (s *scanner) value(at *place, t reflect.Type, item bool) *problem {
	if s.values++; s.values%valuesPerTurn == 0 {
		s.pause()
	}
	begin := s.tokens.InputOffset()
	token, err := s.tokens.Token()
	if err != nil {
		return malformed(err)
	}
	if got, want := kindOfToken(token), kindOfType(t); got != "" && want != "" && got != want {
		return invalid(at.path(), "is %s; it must be %s", got, want)
	} else if token == nil && item && want != "" && s.strict == strict {
		// Package json would read null as 0 or "". JavaScript writes NaN as null, so a requirement of the caller could get lost.
		return invalid(at.path(), "is null; it must be %s", want)
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

// text checks a string, which may also be the form of a time or of bytes. It does this because the errors of package json would not name the field.
func (s *scanner) text(at *place, text string, t reflect.Type, begin int64) *problem {
	switch t {
	case nil, reflect.TypeFor[json.RawMessage](): // kept as it is
		return nil
	case reflect.TypeFor[instant]():
		if new(instant).UnmarshalText([]byte(text)) != nil {
			return invalid(at.path(), "is not an RFC 3339 time such as 2026-01-15T10:00:00Z")
		}
	case reflect.TypeFor[[]byte]():
		if _, err := base64.StdEncoding.DecodeString(text); err != nil {
			return invalid(at.path(), "is not valid base64 (standard alphabet, padded with =)")
		}
	}
	return s.whole(at, begin)
}

// whole refuses half of a surrogate pair in the string that starts after begin. Package json reads each such half as U+FFFD, so two different keys would
// become equal.
func (s *scanner) whole(at *place, begin int64) *problem {
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
			return invalid(at.path(), "has an unpaired surrogate, which is not a valid character")
		}
		raw = raw[6:]
	}
}

// escaped returns the code unit of an escape of the form \u0000 at the start of text, or -1 if text does not start with one.
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
func (s *scanner) number(at *place, text string, t reflect.Type) *problem {
	if t == nil || t == reflect.TypeFor[json.RawMessage]() {
		return nil
	}
	if t.Kind() != reflect.Float64 {
		text = s.withoutFraction(text)
	}
	var (
		err  error
		want string
		bits = t.Bits()
	)
	switch t.Kind() {
	case reflect.Float64:
		_, err = strconv.ParseFloat(text, bits)
		want = fmt.Sprintf("a number of %d bits", bits)
	case reflect.Uint32:
		_, err = strconv.ParseUint(text, 10, bits)
		want = fmt.Sprintf("a whole number from 0 to %d", uint64(1)<<bits-1)
	default:
		_, err = strconv.ParseInt(text, 10, bits)
		want = fmt.Sprintf("a whole number from %d to %d", int64(-1)<<(bits-1), int64(^(uint64(1)<<63))>>(64-bits))
	}
	switch {
	case err == nil:
		return nil
	case t.Kind() != reflect.Float64 && strings.ContainsAny(text, "eE"):
		want += ", without an exponent"
	}
	return invalid(at.path(), "is %.20s; it must be %s", text, want)
}

// withoutFraction returns the number that was just read without a fraction of zeros, and puts spaces in place of that in the body. Many languages write a
// whole number as 1500.0 if they have calculated it, and the type integer of the OpenAPI document includes that, but package json does not.
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

// object reads the members of an object, and its end.
func (s *scanner) object(in *place, t reflect.Type) *problem {
	if p := s.deeper(in); p != nil {
		return p
	}
	members, items := membersOf(t), itemOf(t)
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
			return invalid(at.path(), "is sent twice")
		}
		if seen[name] = true; items != nil && len(seen) > maxEntries {
			return tooMany(in)
		}
		inner, p := items, (*problem)(nil)
		if items != nil {
			p = s.whole(&at, begin)
		} else {
			inner, p = members.of(&at, s.strict)
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

func (s *scanner) list(in *place, t reflect.Type) *problem {
	if p := s.deeper(in); p != nil {
		return p
	}
	inner := itemOf(t)
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

func tooMany(at *place) *problem { return invalid(at.path(), "has more than %d entries", maxEntries) }

func (s *scanner) deeper(at *place) *problem {
	if s.depth++; s.depth > maxDepth {
		return invalid(top(at.path()), "is nested more than %d levels deep", maxDepth)
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

// place is the position of a value in a body; nil is the body itself. The text of its path is built only for an error, because a body may have millions
// of values, and to build all their paths would cost more than everything else.
type place struct {
	in    *place
	name  string // of a member of an object
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
	if len(name) > 64 {
		name = strings.ToValidUTF8(name[:64], "") + "..."
	}
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
