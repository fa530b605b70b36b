package main

import (
	"bytes"
	"encoding/json"
	"testing"
)

// Members at the given paths are left out, however their values and their neighbours look, and everything else stays as it is.
func TestFieldsAreLeftOut(t *testing.T) {
	paths := []string{"output", "spec.payload", "history"}
	for object, want := range map[string]string{
		`{}`:                       `{}`,
		`{"output":""}`:            `{}`,
		`{"output":"","a":1}`:      `{"a":1}`,
		`{"a":1,"output":"x\"},"}`: `{"a":1}`,
		`{"a":{"output":1},"history":[{"b":"]"},[]],"c":"\\"}`:         `{"a":{"output":1},"c":"\\"}`,
		`{"spec":{"payload":"YQ==","queue":"a,\"b"},"payload":null}`:   `{"spec":{"queue":"a,\"b"},"payload":null}`,
		`{"spec":{"queue":"q","payload":"","type":"}"},"state":"{[:"}`: `{"spec":{"queue":"q","type":"}"},"state":"{[:"}`,
		`{"spec":null,"history":[],"labels":{"output":"kept"}}`:        `{"spec":null,"labels":{"output":"kept"}}`,
		`{"spec":[{"payload":1}],"output":{"a":{}},"a":-1.5e3}`:        `{"spec":[{"payload":1}],"a":-1.5e3}`,
	} {
		if got := string(compact([]byte(object), paths)); got != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
	}
}

// White space goes, but not that of strings.
func TestJSONIsCompact(t *testing.T) {
	for _, text := range []string{
		`{}`, "{\n}", `[ ]`, ` "a b" `, `{ "a" : [ 1 , -2.5e3, true,false , null ] , "b":{"c": " d\" : , "} }`, "[[ 1 ],\t{\"\\\\\": {} }\r\n]", `12 `,
	} {
		var want bytes.Buffer
		if err := json.Compact(&want, []byte(text)); err != nil {
			t.Fatal(err)
		}
		if got := string(compact([]byte(text), nil)); got != want.String() {
			t.Errorf("%q: got %q, want %q", text, got, &want)
		}
		if got := string(compact([]byte(text), []string{"x", "b.x"})); got != want.String() {
			t.Errorf("%q without what it does not have: got %q, want %q", text, got, &want)
		}
	}
}
