package main

import (
	"bytes"
	"encoding/json"
	"strings"
)

// omitFields returns a JSON object without the members at the given paths, such as "spec.payload"; the others keep their order.
func omitFields(object []byte, paths []string) ([]byte, error) {
	if len(paths) == 0 {
		return object, nil
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	if first, err := decoder.Token(); err != nil || first != json.Delim('{') {
		return object, err
	}
	var kept [][]byte
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			return nil, err
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			return nil, err
		}
		drop, below := descend(paths, name.(string))
		if drop {
			continue
		}
		if value, err = omitFields(value, below); err != nil {
			return nil, err
		}
		kept = append(kept, append(quoted(name.(string)), value...))
	}
	return append(append([]byte("{"), bytes.Join(kept, []byte(","))...), '}'), nil
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

// quoted returns the name of a member with its quotes and colon. Names of fields need no escapes.
func quoted(name string) []byte { return []byte(`"` + name + `":`) }
