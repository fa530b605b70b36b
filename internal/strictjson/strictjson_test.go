package strictjson

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"testing"
	"time"
)

// request has a field of each kind.
type request struct {
	Queue            string            `json:"queue"`
	Labels           map[string]string `json:"labels"`
	Requirements     *needs            `json:"requirements"`
	Priority         int32             `json:"priority"`
	ConcurrencyLimit uint32            `json:"concurrencyLimit"`
	Bytes            uint64            `json:"bytes"`
	Device           *uint32           `json:"device"`
	Share            float32           `json:"share"`
	RetentionMs      millis            `json:"retentionMs"`
	All              bool              `json:"all"`
	Slots            *slots            `json:"slots"`
	Tries            tries             `json:"tries"`
	RunAt            day               `json:"runAt,omitzero"`
	PayloadBase64    []byte            `json:"payloadBase64"`
	Payload          json.RawMessage   `json:"payload"`
	References       []reference       `json:"references"`
	embedded
}

type needs struct {
	Features  []string           `json:"features"`
	Resources map[string]float64 `json:"resources"`
}

type reference struct {
	Metadata gaps `json:"metadata"`
}

type embedded struct {
	Reason string `json:"reason"`
}

type millis int64

// slots are limited.
type slots uint32

func (slots) Limits() (least int64, most uint64) { return 0, 64 }

// tries are limited, and have a default.
type tries uint32

func (tries) Limits() (least int64, most uint64) { return 1, 9 }
func (tries) ZeroIsDefault()                     {}

// day reads itself.
type day struct{ time.Time }

func (d *day) UnmarshalText(text []byte) (err error) {
	if d.Time, err = time.Parse(time.DateOnly, string(text)); err != nil {
		return errors.New("is not a day such as 2026-01-15")
	}
	return nil
}

func (d *day) UnmarshalJSON(raw []byte) error {
	var text *string
	if err := json.Unmarshal(raw, &text); err != nil || text == nil {
		return err
	}
	return d.UnmarshalText([]byte(*text))
}

// gaps is a map that reads itself, and leaves out what is null.
type gaps map[string]string

func (g *gaps) UnmarshalJSON(raw []byte) error {
	var sent map[string]*string
	if err := json.Unmarshal(raw, &sent); err != nil || sent == nil {
		return err
	}
	*g = gaps{}
	for key, value := range sent {
		if value != nil {
			(*g)[key] = *value
		}
	}
	return nil
}

// The message of a refusal names the bad item, and says what it must be.
func TestRefusalsSayWhatIsWanted(t *testing.T) {
	for body, want := range map[string]string{
		`{"queue": 5}`:         `queue: is a number; it must be a string`,
		`{"queue": ["q"]}`:     `queue: is an array; it must be a string`,
		`{"labels": {"a": 1}}`: `labels.a: is a number; it must be a string`,
		`{"labels": ["a"]}`:    `labels: is an array; it must be an object`,
		`{"requirements": {"features": ["ab", true]}}`:  `requirements.features[1]: is a boolean; it must be a string`,
		`{"requirements": {"resources": {"a": 1e999}}}`: `requirements.resources.a: is 1e999; it must be a number of 64 bits`,
		`{"priority": 1.5}`:                             `priority: is 1.5; it must be a whole number from -2147483648 to 2147483647`,
		`{"concurrencyLimit": -1}`:                      `concurrencyLimit: is -1; it must be a whole number from 0 to 4294967295`,
		`{"concurrencyLimit": 4294967296}`:              `concurrencyLimit: is 4294967296; it must be a whole number from 0 to 4294967295`,
		`{"concurrencyLimit": 4294967295, "priority": -2147483648, "retentionMs": 9223372036854775807}`: ``,
		`{"slots": -1}`:             `slots: is -1; it must be a whole number from 0 to 64`,
		`{"slots": 4294967296}`:     `slots: is 4294967296; it must be a whole number from 0 to 64`,
		`{"tries": -1}`:             `tries: is -1; it must be a whole number from 1 to 9, or 0 for the default`,
		`{"slots": 65}`:             ``, // whoever takes it refuses it
		`{"priority": -2147483649}`: `priority: is -2147483649; it must be a whole number from -2147483648 to 2147483647`,
		`{"retentionMs": 1e3}`:      `retentionMs: is 1e3; it must be a whole number from -9223372036854775808 to 9223372036854775807, without an exponent`,
		`{"retentionMs": 1.0e3}`:    `retentionMs: is 1.0e3; it must be a whole number from -9223372036854775808 to 9223372036854775807, without an exponent`,
		`{"retentionMs": 1000.01}`:  `retentionMs: is 1000.01; it must be a whole number from -9223372036854775808 to 9223372036854775807`,
		`{"bytes": ` + strings.Repeat("9", 65) + `}`: `bytes: is ` + strings.Repeat("9",
			64) + `...; it must be a whole number from 0 to 18446744073709551615`,
		`{"requirements": 1}`: `requirements: is a number; it must be an object`,
		`{"bytes": 18446744073709551615, "device": 4294967295, "share": 0.5}`: ``,
		`{"bytes": 18446744073709551616}`:                                     `bytes: is 18446744073709551616; it must be a whole number from 0 to 18446744073709551615`,
		`{"bytes": -1}`:                                                       `bytes: is -1; it must be a whole number from 0 to 18446744073709551615`,
		`{"device": 4294967296}`:                                              `device: is 4294967296; it must be a whole number from 0 to 4294967295`,
		`{"share": 1e39}`:                                                     `share: is 1e39; it must be a number of 32 bits`,
		`{"all": 1}`:                                                          `all: is a number; it must be a boolean`,
		`{"queue": "a", "queue": "b"}`:                                        `queue: is sent twice`,
		`{"requirements": {"features": [], "features": []}}`:                  `requirements.features: is sent twice`,
		`{"Queue": "a"}`:                                                      `Queue: has the wrong case; the field is queue`,
		`{"requirements": {"Features": []}}`:                                  `requirements.Features: has the wrong case; the field is features`,
		// json would read an s
		`{"requirement\u017f": {}}`:               "requirement\u017f: has the wrong case; the field is requirements",
		`{"queues": "a"}`:                         `queues: is not a field of this request`,
		`{"": 1}`:                                 `"": is not a field of this request`,
		`{"requirements": {"": 1}}`:               `requirements."": is not a field of this request`,
		`{"reason": 1}`:                           `reason: is a number; it must be a string`,
		`{"` + strings.Repeat("x", 100) + `": 1}`: strings.Repeat("x", 64) + `...: is not a field of this request`,
		"{\"queue\": \"\xff\"}":                   `the body is not valid UTF-8`,
		``:                                        `the body ends before its JSON object is complete`,
		`{"queue": `:                              `the body ends before its JSON object is complete`,
		`{"queue": "q"`:                           `the body ends before its JSON object is complete`,
		`[]`:                                      `the body is not a JSON object`,
		`null`:                                    `the body is not a JSON object`,
		`no`:                                      `the body is not valid JSON: invalid character 'o' in literal null (expecting 'u')`,
		`{"runAt": 1}`:                            `runAt: is a number; it must be a string`,
		`{"payloadBase64": "eA"}`:                 `payloadBase64: is not valid base64 (standard alphabet, padded with =)`,
		`{"runAt": "2026-01"}`:                    `runAt: is not a day such as 2026-01-15`,
		`{"runAt": ""}`:                           `runAt: is not a day such as 2026-01-15`,
		`{"runAt": "2026\u002d01-15"}`:            ``,
		`{"payloadBase64": "\u0065A\u003d="}`:     ``,
		`{"queue": "a\\ud800"}`:                   ``,
		`{"queue": "\ud83d\ude00"}`:               ``,
		`{"queue": "\ud83d"}`:                     `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ude00\ud83d"}`:               `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ud83dxudc00"}`:               `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ud83d\ud83d\ude00"}`:         `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ud83d\ude00\ud83d"}`:         `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "a\n"}`:                        ``,
		`{"queue": "\n\u00e9\ud83d"}`:             `queue: has an unpaired surrogate, which is not a valid character`,
		`{"payload": ` + nested(99) + `}`:         ``,
		`{"payload": ` + nested(100) + `}`:        `payload: is nested more than 100 levels deep`,
		`{"references": [{"metadata": {"\udead": ""}}]}`:             "references[0].metadata.\ufffd: has an unpaired surrogate, which is not a valid character",
		`{"payload": {"\ud800": "\ud800"}}`:                          ``, // kept as it is
		`{"references": [{}` + strings.Repeat(", {}", 10_000) + `]}`: `references: has more than 10000 entries`,
		`{"labels": {` + wide(10_001) + `}}`:                         `labels: has more than 10000 entries`,
		`{"labels": {` + wide(10_000) + `}}`:                         ``,
		// its size is its only limit
		`{"payload": [{` + wide(10_001) + `}, [0` + strings.Repeat(", 0", 10_000) + `]]}`: ``,
		`{"queue": "q"} x`: `the body has more data after its JSON object`,
		`{"requirements": {}, "references": [{}` + strings.Repeat(", {}", MaxDepth) + `]}`: ``, // many, but not deep
	} {
		got := ""
		if err := Unmarshal([]byte(body), &request{}, Strict, nil); err != nil {
			got = err.Error()
		}
		if got != want {
			t.Errorf("%.1000s: %q, want %q", body, got, want)
		}
	}
}

// A whole number may have a fraction of zeros, as the type integer of JSON Schema allows. Other
// values, and those that are kept as they are, do not change.
func TestWholeNumbersWithAFraction(t *testing.T) {
	for fraction := range strings.FieldsSeq(".0 .00 .0000000000000000000000000000000") {
		var got request
		body := strings.ReplaceAll(`{"priority": -3#, "bytes":2#,"retentionMs":4000#, "payload": [1#]}`, "#", fraction)
		if err := Unmarshal([]byte(body), &got, Strict, nil); err != nil {
			t.Fatalf("%s: %v", body, err)
		}
		if got.Priority != -3 || got.Bytes != 2 || got.RetentionMs != 4000 || string(got.Payload) != "[1"+fraction+"]" {
			t.Errorf("%s: read %+v", body, got)
		}
	}
}

// wide returns n members of an object, with different names and the value "".
func wide(n int) string {
	all := make([]string, n)
	for i := range all {
		all[i] = fmt.Sprintf(`"%d": ""`, i)
	}
	return strings.Join(all, ", ")
}

// nested returns lists inside each other.
func nested(levels int) string { return strings.Repeat("[", levels) + strings.Repeat("]", levels) }

// A null means that the field is not sent. Inside a list or a map a strict reader refuses a null,
// because package json would read it as 0 or "".
func TestNulls(t *testing.T) {
	for body, field := range map[string]string{
		`{"requirements": {"features": [null]}}`:                    "requirements.features[0]",
		`{"requirements": {"resources": {"a": null}}}`:              "requirements.resources.a",
		`{"references": [null]}`:                                    "references[0]",
		`{"references": [{"metadata": {"a": null}}]}`:               "references[0].metadata.a",
		`{"requirements": null, "payload": [null], "device": null}`: "",
	} {
		got := ""
		if err := Unmarshal([]byte(body), &request{}, Strict, nil); err != nil {
			got = err.Field
		}
		if got != field {
			t.Errorf("%s: the refused field is %q, want %q", body, got, field)
		}
		if err := Unmarshal([]byte(body), &request{}, Lenient, nil); err != nil {
			t.Errorf("%s: a lenient reader refuses it: %v", body, err)
		}
	}
}

// A lenient reader ignores fields that it does not know, but none in the wrong case: it may be one
// that it knows.
func TestLenient(t *testing.T) {
	var got request
	if err := Unmarshal([]byte(`{"new": {"queue": [1, {}]}, "queue": "q", "new": 1e999}`), &got, Lenient, nil); err == nil || err.Error() != "new: is sent twice" {
		t.Errorf("a name that comes twice: %v", err)
	}
	if err := Unmarshal([]byte(`{"new": {"queue": [1, {}]}, "queue": "q", "newer": 1e999}`), &got, Lenient, nil); err != nil || got.Queue != "q" {
		t.Errorf("read %+v, %v", got, err)
	}
	if err := Unmarshal([]byte(`{"QUEUE": "q"}`), &got, Lenient, nil); err == nil {
		t.Error("a name in the wrong case is ignored")
	}
}

// An accepted body sets only fields whose exact names it contains, and a strict one contains no
// unknown names. A refusal has a problem of our own, not one of encoding/json. Nothing panics.
func FuzzUnmarshal(f *testing.F) {
	for _, body := range []string{
		`{"queue": "q", "all": true, "payload": {"a": [1, null, "x"]}, "requirements": {"resources": {"cpu": 1e3}, "features": ["a"]}, "bytes": 1.0}`,
		`{"queue": "a", "queue": "b"}`, `{"Queue": ""}`, `{"priority": NaN}`,
		`{"queue": "q", "runAt": "2026-01-15", "device": 1, "share": 0.5}`,
		`{"concurrencyLimit": 1, "runAt": "2026\u002d01-15", "retentionMs": 1500.00}`,
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), `{"references": [{"metadata": {"a": null}}]} {}`,
		`{"labels": {"queue": "", "states": "\ud83d\ude00"}, "payloadBase64": "eA==", "runAt": null}`,
		"{\"reason\": \"\xff\"}", `[`, ``,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, s := range []Strictness{Lenient, Strict} {
			var into request
			if err := Unmarshal(body, &into, s, nil); err == nil {
				checkAccepted(t, body, &into, s)
			} else if err.Problem == "" || strings.HasPrefix(err.Problem, doesNotFit) {
				t.Errorf("%s: the refusal is %+v, want a problem of our own", body, err)
			}
		}
	})
}

// X5: the work for a body depends on its length, and not on the depth of its values; otherwise 4
// MiB could cause ten thousand times as much work. The test compares allocated memory, which is the
// same on every machine.
func TestDeepBodiesCostNoMore(t *testing.T) {
	t.Attr("rules", "X5")
	cost := func(depth int) uint64 {
		open := strings.Repeat(`{"`+strings.Repeat("n", 64)+`": `, depth)
		body := []byte(`{"payload": ` + open + "[" + strings.Repeat("0,", 50_000) + "0]" + strings.Repeat("}", depth) + "}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := Unmarshal(body, &request{}, Strict, nil); err != nil {
			t.Fatal(err)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if flat, deep := cost(0), cost(MaxDepth-2); deep > 2*flat {
		t.Errorf("a flat body needs %d bytes of memory, a deep one of the same length %d, want at most twice as many", flat, deep)
	}
}

// checkAccepted checks what was read from an accepted body: only fields that the body names are
// set, and a strict body names only known fields.
func checkAccepted(t *testing.T, body []byte, into any, s Strictness) {
	t.Helper()
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("%s is accepted, but is not an object: %v", body, err)
	}
	known := FieldsOf(reflect.TypeOf(into))
	for name := range sent {
		if s == Strict && known[name] == nil {
			t.Errorf("%s is accepted, although the field %s is not known", body, name)
		}
	}
	again, err := json.Marshal(into)
	if err != nil {
		t.Fatalf("%s: the request cannot be encoded again: %v", body, err)
	}
	var read map[string]json.RawMessage
	if err := json.Unmarshal(again, &read); err != nil {
		t.Fatal(err)
	}
	for name, value := range read {
		if _, ok := sent[name]; !ok && !isZero(value) {
			t.Errorf("%s: %s is %s, although it was not sent", body, name, value)
		}
	}
}

func isZero(value json.RawMessage) bool {
	switch string(value) {
	case `""`, "0", "null", "false", `"0001-01-01T00:00:00Z"`:
		return true
	}
	return false
}

// A field that package json leaves out is none of the body's, and a struct with a field that no
// value can be checked for is a mistake of the program.
func TestFieldsOfNoBody(t *testing.T) {
	var body struct {
		Own int `json:"-"`
		Any any `json:"any"`
	}
	if err := Unmarshal([]byte(`{"-":1}`), &body, Strict, nil); err == nil || err.Field != "-" {
		t.Errorf("the error is %v, want that there is no field -", err)
	}
	defer func() {
		if recover() == nil {
			t.Error("a value was read into an interface")
		}
	}()
	_ = Unmarshal([]byte(`{"any":1}`), &body, Strict, nil)
}
