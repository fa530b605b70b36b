package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
)

// Members at the given paths are left out, however their values and their neighbours look, and
// everything else stays as it is.
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
		`{"spec":[{"payload":1}],"output":{"a":{}},"a":-1.5e3}`:        `{"spec":[{}],"a":-1.5e3}`,
		`{"spec":[[],{"payload":[1,2],"b":"],"},"payload",{"c":2}]}`:   `{"spec":[[],{"b":"],"},"payload",{"c":2}]}`,
	} {
		if got := omitFields([]byte(object), paths); string(got) != want {
			t.Errorf("%s: got %s, want %s", object, got, want)
		}
	}
}

// What is printed of a message is what protojson writes, without spaces and without the members
// that are left out: the order stays, and so do fields with their default. A slow and simple
// program with package json says so of all messages, with random fields, and random paths to leave
// out.
func TestLinesAgreeWithPackageJSON(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	var dropped int
	protoregistry.GlobalTypes.RangeMessages(func(mt protoreflect.MessageType) bool {
		if mt.Descriptor().ParentFile().Package() != "lessor.v1" {
			return true
		}
		for range 5 {
			m := mt.New()
			fillAtRandom(m, random, 4)
			raw, err := protojson.MarshalOptions{UseProtoNames: true, EmitDefaultValues: true}.Marshal(m.Interface())
			if err != nil {
				t.Fatal(err)
			}
			paths := randomPaths(mt.Descriptor(), random)
			got := &strings.Builder{}
			if err := printJSON(got, m.Interface(), paths...); err != nil {
				t.Fatal(err)
			}
			all, want := &bytes.Buffer{}, &bytes.Buffer{}
			if err := errors.Join(json.Compact(all, raw), json.Compact(want, withoutMembers(t, raw, paths))); err != nil {
				t.Fatal(err)
			}
			if got.String() != want.String()+"\n" {
				t.Fatalf("%s without %v:\n%s\nwant\n%s", mt.Descriptor().Name(), paths, got, want)
			}
			if want.Len() < all.Len() {
				dropped++
			}
		}
		return true
	})
	if dropped < 100 {
		t.Errorf("%d messages had something that was left out, want at least 100", dropped)
	}
}

// withoutMembers does with package json what omitFields does.
func withoutMembers(t *testing.T, object []byte, paths []string) []byte {
	if len(paths) == 0 {
		return object
	}
	decoder := json.NewDecoder(bytes.NewReader(object))
	first, err := decoder.Token()
	if err != nil || first != json.Delim('{') && first != json.Delim('[') {
		return object
	}
	var kept [][]byte
	if first == json.Delim('[') {
		for decoder.More() {
			var value json.RawMessage
			if err := decoder.Decode(&value); err != nil {
				t.Fatal(err)
			}
			kept = append(kept, withoutMembers(t, value, paths))
		}
		return fmt.Appendf(nil, "[%s]", bytes.Join(kept, []byte(",")))
	}
	for decoder.More() {
		name, err := decoder.Token()
		if err != nil {
			t.Fatal(err)
		}
		var value json.RawMessage
		if err := decoder.Decode(&value); err != nil {
			t.Fatal(err)
		}
		var below []string
		for _, path := range paths {
			if rest, ok := strings.CutPrefix(path, name.(string)+"."); ok {
				below = append(below, rest)
			}
		}
		if !slices.Contains(paths, name.(string)) {
			kept = append(kept, fmt.Appendf(nil, "%q:%s", name, withoutMembers(t, value, below)))
		}
	}
	return fmt.Appendf(nil, "{%s}", bytes.Join(kept, []byte(",")))
}

// randomPaths returns paths of some fields of a message, and of fields of these.
func randomPaths(d protoreflect.MessageDescriptor, random *rand.Rand) (paths []string) {
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		path := string(f.Name())
		if m := f.Message(); m != nil && !f.IsMap() && m.Fields().Len() > 0 && random.IntN(2) == 0 {
			path += "." + string(m.Fields().Get(random.IntN(m.Fields().Len())).Name())
		}
		if random.IntN(3) == 0 {
			paths = append(paths, path)
		}
	}
	return paths
}

// oddTexts have what JSON has to escape, and what looks like JSON.
var oddTexts = []string{"", "a b", `"`, `\`, `\\"`, "{[,:]}", "\t\n\x00\x7f", "<&>", "ä\u2028\U0001f600", `","output":"`}

// fillAtRandom sets about two thirds of the fields of a message, and of those in it down to a
// depth.
func fillAtRandom(m protoreflect.Message, random *rand.Rand, depth int) {
	for i := range m.Descriptor().Fields().Len() {
		switch f := m.Descriptor().Fields().Get(i); {
		case random.IntN(3) == 0, f.Message() != nil && depth == 0:
		case f.IsMap():
			m.Mutable(f).Map().Set(randomValue(f.MapKey(), random).MapKey(), randomValue(f.MapValue(), random))
		case f.IsList() && f.Message() != nil:
			for range random.IntN(3) {
				fillElement(m.Mutable(f).List().AppendMutable().Message(), random, depth-1)
			}
		case f.IsList():
			for range random.IntN(3) {
				m.Mutable(f).List().Append(randomValue(f, random))
			}
		case f.Message() != nil:
			fillElement(m.Mutable(f).Message(), random, depth-1)
		default:
			m.Set(f, randomValue(f, random))
		}
	}
}

// fillElement fills a message inside another. Those of other packages have rules of their own;
// times and durations are valid as they are.
func fillElement(m protoreflect.Message, random *rand.Rand, depth int) {
	if m.Descriptor().ParentFile().Package() == "lessor.v1" {
		fillAtRandom(m, random, depth)
	}
}

func randomValue(f protoreflect.FieldDescriptor, random *rand.Rand) protoreflect.Value {
	switch f.Kind() {
	case protoreflect.StringKind:
		return protoreflect.ValueOfString(oddTexts[random.IntN(len(oddTexts))])
	case protoreflect.BytesKind:
		return protoreflect.ValueOfBytes([]byte(oddTexts[random.IntN(len(oddTexts))]))
	case protoreflect.BoolKind:
		return protoreflect.ValueOfBool(random.IntN(2) == 0)
	case protoreflect.EnumKind:
		return protoreflect.ValueOfEnum(protoreflect.EnumNumber(random.IntN(4)))
	case protoreflect.DoubleKind:
		return protoreflect.ValueOfFloat64(random.NormFloat64() * 1e9)
	case protoreflect.Uint32Kind:
		return protoreflect.ValueOfUint32(random.Uint32N(3))
	case protoreflect.Uint64Kind, protoreflect.Fixed64Kind:
		return protoreflect.ValueOfUint64(random.Uint64())
	case protoreflect.Int32Kind:
		return protoreflect.ValueOfInt32(random.Int32N(3) - 1)
	case protoreflect.Int64Kind:
		return protoreflect.ValueOfInt64(random.Int64())
	}
	return f.Default()
}

// The protos say which fields lists leave out; these are absent in lines of --json, so that no
// script takes them for empty.
func TestLinesLeaveOutWhatListsDo(t *testing.T) {
	source, err := os.ReadFile("../../proto/lessor/v1/task.proto")
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"spec.payload", "error.stack_trace"} // which the comments of spec and of the answers tell
	for message, prefix := range map[string]string{"Task": "", "DiscardedResult": "discarded."} {
		_, body, _ := strings.Cut(string(source), "\nmessage "+message+" {")
		body, _, _ = strings.Cut(body, "\n}")
		comment := ""
		for line := range strings.Lines(body) {
			if field := regexp.MustCompile(` (\w+) = \d+;`).FindStringSubmatch(line); field == nil {
				comment += " " + strings.Trim(line, " /\n")
			} else {
				if regexp.MustCompile(`(Lists leave (it|them) out|Left out of lists|GetTask alone)`).MatchString(comment) {
					want = append(want, prefix+field[1])
				}
				comment = ""
			}
		}
	}
	got := slices.Clone(listLeftOut)
	slices.Sort(got)
	slices.Sort(want)
	if !slices.Equal(got, want) {
		t.Errorf("lines leave out\n%v, lists\n%v", got, want)
	}
}
