package main

import (
	"bytes"
	"strings"
)

// omitFields returns a compact JSON object without the members at the given paths, such as "spec.payload"; the others keep their order. It only looks for
// where members end, since lists have a million of such objects: the decoder of package json would take most of the time of task list.
func omitFields(object []byte, paths []string) []byte {
	if len(paths) == 0 || object[0] != '{' {
		return object
	}
	kept := make([]byte, 0, len(object))
	kept = append(kept, '{')
	for rest := object[1:]; rest[0] != '}'; rest = bytes.TrimPrefix(rest, []byte(",")) {
		name := rest[:endOfValue(rest)]
		value := rest[len(name)+len(":"):]
		value = value[:endOfValue(value)]
		rest = rest[len(name)+len(":")+len(value):]
		drop, below := descend(paths, string(bytes.Trim(name, `"`)))
		if drop {
			continue
		}
		if len(kept) > len("{") {
			kept = append(kept, ',')
		}
		kept = append(append(append(kept, name...), ':'), omitFields(value, below)...)
	}
	return append(kept, '}')
}

// endOfValue returns the length of the value with which compact JSON begins.
func endOfValue(text []byte) int {
	depth, quoted := 0, false
	for i := 0; i < len(text); i++ {
		switch c := text[i]; {
		case quoted && c == '\\':
			i++ // a quote behind it does not end the string
		case c == '"':
			quoted = !quoted
		case quoted:
		case c == '{' || c == '[':
			depth++
		case depth == 0 && (c == ',' || c == ':' || c == '}' || c == ']'):
			return i
		case c == '}' || c == ']':
			depth--
		}
	}
	return len(text)
}

// descend says what the paths mean for the member with that name: whether to drop it, or else which paths below it to drop.
func descend(paths []string, name string) (drop bool, below []string) {
	for _, path := range paths {
		first, rest, deeper := strings.Cut(path, ".")
		switch {
		case first != name:
		case deeper:
			below = append(below, rest)
		default:
			drop = true
		}
	}
	return drop, below
}
