package docs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protojson"
)

const ellipsis = "…"

// fieldEllipsis is an ellipsis that stands for further fields of an object.
var fieldEllipsis = regexp.MustCompile(`([^"])` + ellipsis)

// readJSON reads the documents of a block. An ellipsis for further fields becomes a field of its
// own.
func readJSON(text string) ([]any, error) {
	decoder := json.NewDecoder(strings.NewReader(fieldEllipsis.ReplaceAllString(text, `$1"`+ellipsis+`": true`)))
	var documents []any
	for {
		var document any
		if err := decoder.Decode(&document); errors.Is(err, io.EOF) {
			return documents, nil
		} else if err != nil {
			return nil, err
		}
		documents = append(documents, document)
	}
}

// matcher compares answers with the page. A variable that is not set yet takes the value of the
// answer at its place.
type matcher struct {
	variables map[string]string
}

// match returns the first difference between got and the page; nil if there is none.
func (m matcher) match(path string, want, got any) error {
	if want == ellipsis {
		return nil
	}
	switch want := want.(type) {
	case map[string]any:
		if got, ok := got.(map[string]any); ok {
			return m.matchObject(path, want, got)
		}
	case []any:
		if got, ok := got.([]any); ok && len(got) == len(want) {
			return m.matchList(path, want, got)
		}
	case string:
		if got, ok := got.(string); ok && m.matchString(want, got) {
			return nil
		}
	default:
		if want == got {
			return nil
		}
	}
	return fmt.Errorf("%s is %v, the page shows %v", path, got, want)
}

func (m matcher) matchObject(path string, want, got map[string]any) error {
	for field := range got {
		if _, shown := want[field]; !shown && want[ellipsis] == nil {
			return fmt.Errorf("%s.%s is %v, the page does not show it", path, field, got[field])
		}
	}
	for field, value := range want {
		if field == ellipsis {
			continue
		}
		if _, ok := got[field]; !ok {
			return fmt.Errorf("%s.%s is missing, the page shows %v", path, field, value)
		}
		if err := m.match(path+"."+field, value, got[field]); err != nil {
			return err
		}
	}
	return nil
}

func (m matcher) matchList(path string, want, got []any) error {
	for i := range want {
		if err := m.match(fmt.Sprintf("%s[%d]", path, i), want[i], got[i]); err != nil {
			return err
		}
	}
	return nil
}

func (m matcher) matchString(want, got string) bool {
	if name, ok := strings.CutPrefix(want, "$"); ok && m.variables[name] == "" {
		m.variables[name] = got
		return true
	}
	want, err := expand(want, m.variables)
	return err == nil && (want == ellipsis || withoutTimes(want) == withoutTimes(got))
}

// clock matches a time of day, with or without its date.
var clock = regexp.MustCompile(`(\d{4}-\d\d-\d\dT)?\d\d:\d\d:\d\d(\.\d+)?Z?`)

// withoutTimes returns s without what differs from run to run: times, and fractions of a second.
func withoutTimes(s string) string {
	if d, err := time.ParseDuration(s); err == nil {
		return d.Round(time.Second).String()
	}
	return clock.ReplaceAllString(s, "00:00:00")
}

// errorText is how grpcurl prints an error status; an ellipsis may stand for the details.
var errorText = regexp.MustCompile(`^ERROR:\n  Code: (.*)\n  Message: (.*)\n(?:  (` + ellipsis + `)\n|  Details:\n([\s\S]*))?$`)

// detailNumber stands before each detail of an error.
var detailNumber = regexp.MustCompile(`(?m)^  \d+\) `)

func (m matcher) matchError(want string, got *status.Status) error {
	shown := errorText.FindStringSubmatch(want)
	switch {
	case shown == nil:
		return fmt.Errorf("the test does not understand %q", want)
	case shown[1] != got.Code().String():
		return fmt.Errorf("the code is %v, the page shows %s", got.Code(), shown[1])
	case !m.matchString(shown[2], got.Message()):
		return fmt.Errorf("the message is %q, the page shows %q", got.Message(), shown[2])
	case shown[3] == ellipsis:
		return nil
	}
	details, err := readJSON(detailNumber.ReplaceAllString(shown[4], ""))
	if err != nil {
		return err
	}
	return m.matchDetails(details, got)
}

func (m matcher) matchDetails(want []any, got *status.Status) error {
	details := got.Proto().GetDetails()
	if len(details) != len(want) {
		return fmt.Errorf("there are %d details, the page shows %d", len(details), len(want))
	}
	for i, detail := range details {
		text, err := protojson.Marshal(detail)
		if err != nil {
			return err
		}
		document, err := readJSON(string(text))
		if err != nil {
			return err
		}
		if err := m.match(fmt.Sprintf("detail %d", i+1), want[i], document[0]); err != nil {
			return err
		}
	}
	return nil
}

// Pages may shorten answers, as they explain at their beginning: an ellipsis stands for a value or
// for further fields, a variable takes the value of the answer, and times may differ.
func TestConventions(t *testing.T) {
	for i, c := range []struct {
		shown, got string
		same       bool
	}{
		{`{"a": 1}`, `{"a": 1}`, true},
		{`{"a": 1}`, `{"a": 2}`, false},
		{`{"a": 1}`, `{"a": 1, "b": 2}`, false},
		{`{"a": 1, …}`, `{"a": 1, "b": 2}`, true},
		{`{"a": 1, …}`, `{"b": 2}`, false},
		{`{"a": "…"}`, `{"a": "x"}`, true},
		{`{"a": "…"}`, `{"a": 1}`, true},
		{`{"a": "…"}`, `{}`, false},
		{`["a"]`, `["a", "b"]`, false},
		{`{"a": "$KNOWN-1"}`, `{"a": "k-1"}`, true},
		{`{"a": "$KNOWN"}`, `{"a": "other"}`, false},
		{`["$NEW", "$NEW"]`, `["n", "n"]`, true},
		{`["$NEW", "$NEW"]`, `["n", "m"]`, false},
		{`"89.99s"`, `"90s"`, true},
		{`"89.99s"`, `"30s"`, false},
		{`"ended at 10:00:00.123"`, `"ended at 11:11:11.456"`, true},
		{`"2026-01-01T00:00:00.5Z"`, `"2000-01-01T00:00:00Z"`, true},
		{`"2026-01-01T00:00:00.5Z"`, `"never"`, false},
	} {
		want, err := readJSON(c.shown)
		if err != nil {
			t.Fatal(err)
		}
		got, err := readJSON(c.got)
		if err != nil {
			t.Fatal(err)
		}
		err = matcher{variables: map[string]string{"KNOWN": "k"}}.match(strconv.Itoa(i), want[0], got[0])
		if (err == nil) != c.same {
			t.Errorf("the page shows %s and the answer is %s: match = %v, want a match: %t", c.shown, c.got, err, c.same)
		}
	}
}
