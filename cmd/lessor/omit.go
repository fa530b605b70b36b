package main

import "strings"

// omitFields returns a JSON object, or an array of such, without the members at the given paths,
// such as "spec.payload"; the others keep their order. The value must be valid and without spaces.
// Lists of many thousand tasks are piped, so it is not decoded: it is only looked where members
// end.
func omitFields(value []byte, paths []string) []byte {
	switch {
	case len(paths) == 0:
		return value
	case value[0] == '[':
		return omitInEach(value, paths)
	case value[0] != '{':
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

// omitInEach is omitFields for each element of an array.
func omitInEach(array []byte, paths []string) []byte {
	kept := append(make([]byte, 0, len(array)), '[')
	for at := 1; array[at] != ']'; {
		end := endOf(array, at)
		kept = append(kept, omitFields(array[at:end], paths)...)
		if at = end; array[at] == ',' {
			kept = append(kept, ',')
			at++
		}
	}
	return append(kept, ']')
}

// endOf returns where the name or value ends that begins at an index of an object or array: at the
// colon, comma, brace or bracket behind it.
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

// descend says what the paths mean for the member with that name: whether to drop it, or else which
// paths below it to drop.
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
