package main

import "strings"

// omitFields returns a JSON object without the members at the given paths, such as "spec.payload"; the others keep their order. The value must be valid and
// without spaces. Lists of many thousand tasks are piped, so it is not decoded: it is only looked where members end.
func omitFields(value []byte, paths []string) []byte {
	if len(paths) == 0 || value[0] != '{' {
		return value
	}
	kept := append(make([]byte, 0, len(value)), '{')
	for at := 1; value[at] != '}'; {
		colon := endOf(value, at)
		end := endOf(value, colon+1)
		if drop, below := descend(paths, string(value[at+1:colon-1])); !drop { // names of fields have no escapes
			if len(kept) > 1 {
				kept = append(kept, ',')
			}
			kept = append(kept, value[at:colon+1]...)
			kept = append(kept, omitFields(value[colon+1:end], below)...)
		}
		if at = end; value[at] == ',' {
			at++
		}
	}
	return append(kept, '}')
}

// endOf returns where the name or value ends that begins at an index of an object: at the colon, comma or brace behind it.
func endOf(object []byte, at int) int {
	for depth := 0; ; at++ {
		switch object[at] {
		case '"':
			for at++; object[at] != '"'; at++ {
				if object[at] == '\\' {
					at++
				}
			}
		case '{', '[':
			depth++
		case '}', ']':
			if depth == 0 {
				return at
			}
			depth--
		case ',', ':':
			if depth == 0 {
				return at
			}
		}
	}
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
