package httpapi

import (
	"encoding/json"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// A body that is taken has one meaning: what it says is what package json reads, and no reader finds more in it. Nothing panics, and what is
// refused has a code and words.
func FuzzDecode(f *testing.F) {
	for _, body := range []string{
		`{"attempt": 1, "outcome": "SUCCEEDED", "output": {"a": [1, null, "x"]}, "metrics": {"cpuTimeMs": 1e3}}`,
		`{"attempt": 1, "attempt": 2}`, `{"Attempt": 1}`, `{"attempt": NaN}`, `{"queue": "q", "runAt": "2026-01-15T10:00:00Z"}`,
		strings.Repeat(`{"a":`, 200) + "1" + strings.Repeat("}", 200), `{"error": {"retryable": null}} {}`, "{\"message\": \"\xff\"}", `[`, ``,
	} {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, s := range []strictness{lenient, strict} {
			for _, into := range []any{&startedRequest{}, &heartbeatRequest{}, &completedRequest{}, &leaseRequest{}, &submitRequest{}} {
				p := parse(body, into, s)
				if p == nil {
					checkRead(t, body, into, s)
				} else if p.status != 400 || p.body.Code != codeInvalid || p.body.Message == "" {
					t.Errorf("%s: refused as %+v", body, p)
				}
			}
		}
	})
}

// What a body costs follows from its length, not from how deep its values lie: who sends 4 MiB must not get back ten thousand times as much work. The
// memory stands for it, as it does not depend on the machine.
func TestDeepBodiesCostNoMore(t *testing.T) {
	t.Attr("rules", "X5")
	cost := func(depth int) uint64 {
		open := strings.Repeat(`{"`+strings.Repeat("n", 64)+`": `, depth)
		body := []byte(`{"output": ` + open + "[" + strings.Repeat("0,", 50_000) + "0]" + strings.Repeat("}", depth) + "}")
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if p := parse(body, &completedRequest{}, lenient); p != nil {
			t.Fatal(p.body)
		}
		runtime.ReadMemStats(&after)
		return after.TotalAlloc - before.TotalAlloc
	}
	if flat, deep := cost(0), cost(maxDepth-2); deep > 2*flat {
		t.Errorf("%d bytes in all where it is flat, %d where it is deep", flat, deep)
	}
}

// checkRead compares what was read with what is there, name by name.
func checkRead(t *testing.T, body []byte, into any, s strictness) {
	t.Helper()
	var there map[string]json.RawMessage
	if err := json.Unmarshal(body, &there); err != nil {
		t.Fatalf("%s: was taken, but is no object: %v", body, err)
	}
	known := membersOf(reflect.TypeOf(into))
	for name := range there {
		if s == strict && known[name] == nil {
			t.Errorf("%s: %s was taken, though it is not known", body, name)
		}
	}
	again, err := json.Marshal(into)
	if err != nil {
		t.Fatalf("%s: what was read can not be written: %v", body, err)
	}
	var read map[string]json.RawMessage
	if err := json.Unmarshal(again, &read); err != nil {
		t.Fatal(err)
	}
	for name, value := range read {
		if _, sent := there[name]; !sent && !isZero(value) {
			t.Errorf("%s: %s is %s, though it was not sent", body, name, value)
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
