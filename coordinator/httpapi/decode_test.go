package httpapi

import (
	"encoding/json"
	"fmt"
	"reflect"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

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
		`{"priority": -2147483649}`:                                    `priority: is -2147483649; it must be a whole number from -2147483648 to 2147483647`,
		`{"retentionMs": 1e3}`:                                         `retentionMs: is 1e3; it must be a whole number from -9223372036854775808 to 9223372036854775807, without an exponent`,
		`{"retentionMs": 1.0e3}`:                                       `retentionMs: is 1.0e3; it must be a whole number from -9223372036854775808 to 9223372036854775807, without an exponent`,
		`{"retentionMs": 1000.01}`:                                     `retentionMs: is 1000.01; it must be a whole number from -9223372036854775808 to 9223372036854775807`,
		`{"retryPolicy": 1}`:                                           `retryPolicy: is a number; it must be an object`,
		`{"runAt": 1}`:                                                 `runAt: is a number; it must be a string`,
		`{"payloadBase64": "eA"}`:                                      `payloadBase64: is not valid base64 (standard alphabet, padded with =)`,
		`{"runAt": "2026-01-15"}`:                                      `runAt: is not an RFC 3339 time such as 2026-01-15T10:00:00Z`,
		`{"runAt": ""}`:                                                `runAt: is not an RFC 3339 time such as 2026-01-15T10:00:00Z`,
		`{"runAt": "2026-01-15T10:00:00\u002b02:00"}`:                  ``,
		`{"payloadBase64": "\u0065A\u003d="}`:                          ``,
		`{"queue": "a\\ud800"}`:                                        ``,
		`{"queue": "\ud83d\ude00"}`:                                    ``,
		`{"queue": "\ud83d"}`:                                          `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ude00\ud83d"}`:                                    `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ud83dxudc00"}`:                                    `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ud83d\ud83d\ude00"}`:                              `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "\ud83d\ude00\ud83d"}`:                              `queue: has an unpaired surrogate, which is not a valid character`,
		`{"queue": "a\n"}`:                                             ``,
		`{"queue": "\n\u00e9\ud83d"}`:                                  `queue: has an unpaired surrogate, which is not a valid character`,
		`{"payload": ` + nested(99) + `}`:                              ``,
		`{"payload": ` + nested(100) + `}`:                             `payload: is nested more than 100 levels deep`,
		`{"resourceRefs": [{"metadata": {"\udead": ""}}]}`:             "resourceRefs[0].metadata.\ufffd: has an unpaired surrogate, which is not a valid character",
		`{"payload": {"\ud800": "\ud800"}}`:                            ``, // kept as it is
		`{"resourceRefs": [{}` + strings.Repeat(", {}", 10_000) + `]}`: `resourceRefs: has more than 10000 entries`,
		`{"labels": {` + wide(10_001) + `}}`:                           `labels: has more than 10000 entries`,
		`{"labels": {` + wide(10_000) + `}}`:                           ``,
		`{"payload": [{` + wide(10_001) + `}, [0` + strings.Repeat(", 0", 10_000) + `]]}`: ``, // its size is its only limit
		`{"queue": "q"} x`: `the body has more data after its JSON object`,
		`{"affinity": {"key": "k"}, "resourceRefs": [{}` + strings.Repeat(", {}", maxDepth) + `]}`: ``, // many, but not deep
	} {
		got := ""
		if p := parse([]byte(body), &submitRequest{}, strict, runtime.Gosched); p != nil {
			got = p.body.Message
		}
		if got != want {
			t.Errorf("%.1000s: %q, want %q", body, got, want)
		}
	}
}

// A whole number may have a fraction of zeros, as the type integer of JSON Schema allows. Other values, and those that are kept as they are, do not change.
func TestWholeNumbersWithAFraction(t *testing.T) {
	for fraction := range strings.FieldsSeq(".0 .00 .0000000000000000000000000000000") {
		var got submitRequest
		body := strings.ReplaceAll(`{"priority": -3#, "retryPolicy": {"maxAttempts":2#,"maxBackoffMs":4000#}, "payload": [1#]}`, "#", fraction)
		if p := parse([]byte(body), &got, strict, runtime.Gosched); p != nil {
			t.Fatalf("%s: %s", body, p.body.Message)
		}
		policy := got.RetryPolicy
		if got.Priority != -3 || policy.MaxAttempts != 2 || policy.MaxBackoffMs != 4000 || string(got.Payload) != "[1"+fraction+"]" {
			t.Errorf("%s: priority %d, policy %+v, payload %s", body, got.Priority, policy, got.Payload)
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

// A time or bytes with JSON escapes are read like those without; some encoders write "+" as an escape in every string.
func TestEscapedTextsAreRead(t *testing.T) {
	var m completedRequest
	body := `{"completedAt": "2026-01-15T10:00:00\u002b02:00", "startedAt": null, "outputBase64": "\u002b\/8\u003d"}`
	if p := parse([]byte(body), &m, lenient, runtime.Gosched); p != nil {
		t.Fatal(p.body.Message)
	}
	if want := time.Date(2026, 1, 15, 8, 0, 0, 0, time.UTC); !m.CompletedAt.Equal(want) || !m.StartedAt.IsZero() || string(m.OutputBase64) != "\xfb\xff" {
		t.Errorf("read %v, %v and %q, want %v, no time and \xfb\xff", m.CompletedAt, m.StartedAt, m.OutputBase64, want)
	}
}

// A null means that the field is not sent. Inside a list or a map a null is refused, because package json would read it as 0 or "". A callback is not
// refused for a null: an entry that is null is left out.
func TestNullMeansNotSent(t *testing.T) {
	for body, field := range map[string]string{
		`{"requirements": {"features": [null]}}`:       "requirements.features[0]",
		`{"requirements": {"resources": {"a": null}}}`: "requirements.resources.a",
		`{"resourceRefs": [null]}`:                     "resourceRefs[0]",
		`{"requirements": null, "payload": [null]}`:    "",
	} {
		got := ""
		if p := parse([]byte(body), &submitRequest{}, strict, runtime.Gosched); p != nil {
			got = p.body.Field
		}
		if got != field {
			t.Errorf("%s: the refused field is %q, want %q", body, got, field)
		}
	}
	var m completedRequest
	if p := parse([]byte(`{"attempt": 1, "metrics": {"a": null, "b": 0}, "artifacts": [{"metadata": {"a": null, "b": ""}}]}`), &m, lenient, runtime.Gosched); p != nil {
		t.Fatal(p.body.Message)
	}
	if got := fmt.Sprint(m.Metrics, m.Artifacts[0].Metadata); got != "map[b:0] map[b:]" {
		t.Errorf("read %s, want only what is not null", got)
	}
	var h heartbeatRequest
	if p := parse([]byte(`{"attempt": 1, "metrics": {"a": null}}`), &h, lenient, runtime.Gosched); p != nil || len(h.Metrics) != 0 {
		t.Errorf("read %v (%+v), want no metric", h.Metrics, p)
	}
}

// An accepted body sets only fields whose exact names it contains, and a strict one contains no unknown names. A refusal has a code and a message of our
// own, not one of encoding/json. Nothing panics.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"attempt": 1, "outcome": "SUCCEEDED", "output": {"a": [1, null, "x"]}, "metrics": {"cpuTimeMs": 1e3}}`,
		`{"attempt": 1, "attempt": 2}`, `{"Attempt": 1}`, `{"attempt": NaN}`, `{"queue": "q", "runAt": "2026-01-15T10:00:00Z"}`,
		`{"attempt": 1, "completedAt": "2026-01-15T10:00:00\u002b02:00"}`,
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), `{"error": {"retryable": null}} {}`,
		`{"filter": {"queue": "", "states": [ ], "labels": {"a": ""}, "createdAfter": null}, "all": true}`, "{\"message\": \"\xff\"}", `[`, ``,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, s := range []strictness{lenient, strict} {
			for _, into := range []any{&startedRequest{}, &heartbeatRequest{}, &completedRequest{}, &leaseRequest{}, &submitRequest{}, &cancelTasksRequest{}} {
				p := parse(body, into, s, runtime.Gosched)
				if p == nil {
					checkAccepted(t, body, into, s)
				} else if p.status != 400 || p.body.Code != codeInvalid || p.body.Message == "" || strings.HasPrefix(p.body.Message, doesNotFit) {
					t.Errorf("%s: the refusal is %+v, want 400 with a code and a message of our own", body, p)
				}
			}
		}
	})
}

// X5: the work for a body depends on its length, and not on the depth of its values; otherwise 4 MiB could cause ten thousand times as much work. The test
// compares allocated memory, which is the same on every machine.
func TestDeepBodiesCostNoMore(t *testing.T) {
	t.Attr("rules", "X5")
	cost := func(depth int) uint64 {
		open := strings.Repeat(`{"`+strings.Repeat("n", 64)+`": `, depth)
		body := []byte(`{"output": ` + open + "[" + strings.Repeat("0,", 50_000) + "0]" + strings.Repeat("}", depth) + "}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if p := parse(body, &completedRequest{}, lenient, runtime.Gosched); p != nil {
			t.Fatal(p.body)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if flat, deep := cost(0), cost(maxDepth-2); deep > 2*flat {
		t.Errorf("a flat body needs %d bytes of memory, a deep one of the same length %d, want at most twice as many", flat, deep)
	}
}

// checkAccepted checks what was read from an accepted body: only fields that the body names are set, and a strict body names only known fields.
func checkAccepted(t *testing.T, body []byte, into any, s strictness) {
	t.Helper()
	var sent map[string]json.RawMessage
	if err := json.Unmarshal(body, &sent); err != nil {
		t.Fatalf("%s is accepted, but is not an object: %v", body, err)
	}
	known := membersOf(reflect.TypeOf(into))
	for name := range sent {
		if s == strict && known[name] == nil {
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

// X5: a long body waits while others are parsed. A short one does not.
func TestLongBodiesTakeTurns(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		a := &api{long: make(chan struct{}, 1)}
		a.long <- struct{}{}
		var parsed atomic.Int32
		for _, length := range []int{longBody, longBody / 2} {
			go func() {
				if p := a.parse([]byte(`{"queue":"q","payload":"`+strings.Repeat("x", length)+`"}`), new(submitRequest), strict); p != nil {
					t.Errorf("%d bytes: %v", length, p)
				}
				parsed.Add(1)
			}()
		}
		for want := range int32(2) {
			if synctest.Wait(); parsed.Load() != want+1 {
				t.Errorf("%d bodies are parsed, want %d", parsed.Load(), want+1)
			}
			if want == 0 {
				<-a.long
			}
		}
		if len(a.long) > 0 {
			t.Error("a body that was parsed keeps its place")
		}
	})
}

// X5: while a long body is parsed, another one waits for a few of its values, not for all of them: it may be that of another tenant.
func TestLongBodiesDoNotWaitForWholeBodies(t *testing.T) {
	t.Attr("rules", "X5")
	synctest.Test(t, func(t *testing.T) {
		a := &api{long: make(chan struct{}, 1)}
		a.long <- struct{}{}
		parsed := make(chan string, 4)
		for _, c := range []struct{ name, payload string }{
			{"numbers", "[1" + strings.Repeat(",1", longBody) + "]"}, {"numbers", "[2" + strings.Repeat(",2", longBody) + "]"}, {"text", `"` + strings.Repeat("x", longBody) + `"`},
		} {
			go func() {
				if p := a.parse([]byte(`{"queue":"q","payload":`+c.payload+`}`), new(submitRequest), strict); p != nil {
					t.Errorf("%s: %v", c.name, p)
				}
				parsed <- c.name
			}()
			synctest.Wait() // it waits behind those before it
		}
		<-a.long
		if first := <-parsed; first != "text" {
			t.Errorf("a body of %s was parsed first, want the one that has a single value", first)
		}
		<-parsed
		<-parsed
	})
}
