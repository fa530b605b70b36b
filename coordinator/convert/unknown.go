package convert

import (
	"fmt"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// A caller that is newer than this program may send fields that the program does not know. Where somebody asks for something, passing over one would do another
// thing than what was asked for, without a word: give a task to a worker that it must not run on, or delete what a filter should have spared.

// Unknown returns an error if a message, or one within it, has a field that this program does not know; nil if there is none. path is that of
// the message; empty for a request, whose fields begin a path.
func Unknown(path string, m proto.Message) *lease.FieldError {
	at, number := unknownWithin(m.ProtoReflect())
	if number == 0 {
		return nil
	}
	at = strings.Trim(path+at, ".")
	if at == "" {
		at = "request"
	}
	return &lease.FieldError{Field: at, Problem: fmt.Sprintf("has field %d, which this coordinator does not know: its caller is newer", number)}
}

// UnknownInSpec is Unknown for a spec. Frames have hundreds, most of them without parts.
func UnknownInSpec(path string, m *lessorv1.TaskSpec) *lease.FieldError {
	plain := m.GetRetryPolicy() == nil && m.GetRequirements() == nil && len(m.GetResourceRefs()) == 0 && m.GetAffinity() == nil && m.GetTraceMeta() == nil
	if plain && unknownOf(m.ProtoReflect()) == 0 {
		return nil
	}
	return Unknown(path, m)
}

// UnknownItself is Unknown for the message alone, not for those within it.
func UnknownItself(m proto.Message) *lease.FieldError {
	if number := unknownOf(m.ProtoReflect()); number != 0 {
		return Unknown("", m)
	}
	return nil
}

// unknownOf returns the number of the first field of a message that is not known; 0 if there is none.
func unknownOf(m protoreflect.Message) protowire.Number {
	raw := m.GetUnknown()
	if len(raw) == 0 {
		return 0
	}
	number, _, _ := protowire.ConsumeTag(raw)
	return number
}

// unknownWithin returns where it found a field that is not known, as ".filter" or ".tasks[2].affinity", and its number; 0 if there is none.
func unknownWithin(m protoreflect.Message) (at string, number protowire.Number) {
	if number := unknownOf(m); number != 0 {
		return "", number
	}
	for _, f := range partsOf(m.Descriptor()) {
		if !m.Has(f) {
			continue
		}
		v := m.Get(f)
		if !f.IsList() {
			if at, number := unknownWithin(v.Message()); number != 0 {
				return "." + string(f.Name()) + at, number
			}
			continue
		}
		for i := range v.List().Len() {
			if at, number := unknownWithin(v.List().Get(i).Message()); number != 0 {
				return fmt.Sprintf(".%s[%d]%s", f.Name(), i, at), number
			}
		}
	}
	return "", 0
}

// parts are the fields of a message that are messages of ours, by its descriptor: few among many.
var parts sync.Map

func partsOf(d protoreflect.MessageDescriptor) []protoreflect.FieldDescriptor {
	if known, ok := parts.Load(d); ok {
		return known.([]protoreflect.FieldDescriptor)
	}
	var of []protoreflect.FieldDescriptor
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		if f.Message() != nil && !f.IsMap() && f.Message().ParentFile().Package() == d.ParentFile().Package() {
			of = append(of, f)
		}
	}
	parts.Store(d, of)
	return of
}
