package httpapi

import (
	"encoding/json"
	"math"
	"runtime"
	"strings"
	"testing"
)

// A value is stored as the text of its JSON, and shown as JSON only if that makes a valid answer. A
// null is a value that was not sent.
func TestContent(t *testing.T) {
	for sent, want := range map[string]string{
		`{"a": [1.50, "<"]}`: `{"a":[1.50,"<"]}`, `null`: ``, ``: ``, `""`: `""`,
		" {\"a \\\" \" :\r\n[ \"\\\\\" ,\t\" \" ] } ": `{"a \" ":["\\"," "]}`,
	} {
		if got, p := bytesOf("output", json.RawMessage(sent), nil); p != nil || string(got) != want {
			t.Errorf("%s is stored as %s (%v), want %s", sent, got, p, want)
		}
	}
	if got, p := bytesOf("output", json.RawMessage("null"), []byte("x")); p != nil || string(got) != "x" {
		t.Errorf("base64 beside a null is stored as %s (%v)", got, p)
	}
	nested := func(levels int, inside string) string {
		return strings.Repeat(`[{"a":`, levels/2) + inside + strings.Repeat("}]", levels/2)
	}
	for stored, isJSON := range map[string]bool{
		`{"a":1}`: true, `1`: true, `{`: false, "\"\xff\"": false, "\x00": false,
		nested(98, "1"): true, nested(98, "[1]"): true, nested(98, "[[1]]"): false, nested(98, `"\"[{[\\"`): true,
		nested(98, `["\\",{}]`): false,
	} {
		if p := parse([]byte(`{"queue":"q","payload":`+stored+`}`), new(submitRequest), strict, runtime.Gosched); (p == nil) != isJSON {
			t.Errorf("%q can be sent: %t, want %t", stored, p == nil, isJSON)
		}
		value, raw := shown([]byte(stored))
		if (string(value) == stored) != isJSON || (string(raw) == stored) == isJSON {
			t.Errorf("%q is shown as JSON %q, base64 %q", stored, value, raw)
		}
	}
}

// A number of milliseconds that no duration holds is passed on, so that the call refuses it.
func TestMillisDoNotOverflow(t *testing.T) {
	for _, m := range []millis{1, 999, 1001, -1, -1001, math.MaxInt64, math.MinInt64} {
		if d := m.span(); d.GetSeconds()*1000+int64(d.GetNanos())/1e6 != int64(m) {
			t.Errorf("%d ms are %d s and %d ns", m, d.GetSeconds(), d.GetNanos())
		}
	}
}
