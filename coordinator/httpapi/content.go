package httpapi

import (
	"encoding/json"
	"unicode/utf8"

	"github.com/lessor-dev/lessor/internal/strictjson"
)

// bytesOf returns the bytes to store for a value that was sent as JSON or as base64: the text of
// the JSON without white space, or the decoded base64.
func bytesOf(field string, value json.RawMessage, raw []byte) ([]byte, *problem) {
	if !isSent(value) {
		return raw, nil
	}
	if raw != nil {
		return nil, invalid(field, "cannot be sent together with %sBase64; send only one of them", field)
	}
	return compact(value), nil
}

// compact returns valid JSON without the white space between its values. It is json.Compact without
// the check, which takes most of the time.
func compact(valid []byte) []byte {
	kept := make([]byte, 0, len(valid))
	inText := false
	for i := 0; i < len(valid); i++ {
		switch c := valid[i]; {
		case inText && c == '\\':
			kept = append(kept, c)
			i++
		case c == '"':
			inText = !inText
		case !inText && (c == ' ' || c == '\t' || c == '\n' || c == '\r'):
			continue
		}
		kept = append(kept, valid[i])
	}
	return kept
}

// isSent reports whether a field with any JSON value was sent. A null counts as absent.
func isSent(value json.RawMessage) bool { return len(value) > 0 && string(value) != "null" }

// shown returns stored bytes in the form for an answer: as JSON if they are JSON that could have
// been sent here, else as bytes for base64. Over gRPC a payload may be nested deeper than a
// worker's JSON parser allows, which then could not read the whole answer.
func shown(b []byte) (value json.RawMessage, raw []byte) {
	if len(b) == 0 {
		return nil, nil
	}
	if json.Valid(b) && utf8.Valid(b) && depth(b) < strictjson.MaxDepth { // its field was in the object of a body
		return b, nil
	}
	return nil, b
}

// depth returns how deep valid JSON is nested.
func depth(valid []byte) (most int) {
	open, inText := 0, false
	for i := 0; i < len(valid); i++ {
		switch c := valid[i]; {
		case c == '"':
			inText = !inText
		case !inText && (c == '[' || c == '{'):
			open++
			most = max(most, open)
		case !inText && (c == ']' || c == '}'):
			open--
		case c == '\\':
			i++
		}
	}
	return most
}
