package main

import "testing"

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
		if got, err := omitFields([]byte(object), paths); string(got) != want || err != nil {
			t.Errorf("%s: got %s, %v, want %s", object, got, err, want)
		}
	}
}
