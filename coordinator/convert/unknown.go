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

// A caller that is newer than this program may send fields that the program does not know. If the
// coordinator ignored such a field, it would silently do something else than the request asks for.
// For example, it would give a task to a worker that must not run it, or delete tasks that a filter
// excludes.

// Unknown returns an error if a message, or one within it, has a field that this program does not
// know; else nil. path is the path of the message, or "" for a request. To protobuf, a field with
// the wire type of another field is unknown, too; its error says what is wrong.
func Unknown(path string, m proto.Message) *lease.FieldError {
	at, of, number := unknownWithin(m.ProtoReflect())
	if number == 0 {
		return nil
	}
	if f := of.Fields().ByNumber(number); f != nil {
		return &lease.FieldError{
			Field:   strings.Trim(path+at+"."+string(f.Name()), "."),
			Problem: fmt.Sprintf("was sent with the wrong wire type; its type is %s", typeOf(f)),
		}
	}
	at = strings.Trim(path+at, ".")
	if at == "" {
		at = "request"
	}
	return &lease.FieldError{Field: at, Problem: fmt.Sprintf("has field %d, which this coordinator does not know; the caller is newer than the coordinator", number)}
}

// typeOf returns the type of a field as the protos write it.
func typeOf(f protoreflect.FieldDescriptor) string {
	name := f.Kind().String()
	switch {
	case f.IsMap():
		return "map"
	case f.Message() != nil:
		name = string(f.Message().Name())
	case f.Enum() != nil:
		name = string(f.Enum().Name())
	}
	if f.IsList() {
		return "repeated " + name
	}
	return name
}

// UnknownInSpec is Unknown for a spec. It is fast for specs without nested messages, because frames
// have hundreds of specs, and most have none.
func UnknownInSpec(path string, m *lessorv1.TaskSpec) *lease.FieldError {
	plain := m.GetRetryPolicy() == nil && m.GetRequirements() == nil && len(m.GetResourceRefs()) == 0 &&
		m.GetAffinity() == nil && m.GetTraceMeta() == nil
	if plain && unknownOf(m.ProtoReflect()) == 0 {
		return nil
	}
	return Unknown(path, m)
}

// UnknownItself is Unknown for the fields of the message itself. It does not check nested messages.
func UnknownItself(m proto.Message) *lease.FieldError {
	if number := unknownOf(m.ProtoReflect()); number != 0 {
		return Unknown("", m)
	}
	return nil
}

// unknownOf returns the number of the first unknown field of a message, or 0 if there is none.
func unknownOf(m protoreflect.Message) protowire.Number {
	raw := m.GetUnknown()
	if len(raw) == 0 {
		return 0
	}
	number, _, _ := protowire.ConsumeTag(raw)
	return number
}

// unknownWithin returns the path of the message with an unknown field, such as ".filter" or
// ".tasks[2].affinity", the type of that message, and the number of the field; 0 if there is none.
func unknownWithin(m protoreflect.Message) (at string, of protoreflect.MessageDescriptor, number protowire.Number) {
	if number := unknownOf(m); number != 0 {
		return "", m.Descriptor(), number
	}
	for _, f := range partsOf(m.Descriptor()) {
		if !m.Has(f) {
			continue
		}
		v := m.Get(f)
		if !f.IsList() {
			if at, of, number := unknownWithin(v.Message()); number != 0 {
				return "." + string(f.Name()) + at, of, number
			}
			continue
		}
		for i := range v.List().Len() {
			if at, of, number := unknownWithin(v.List().Get(i).Message()); number != 0 {
				return fmt.Sprintf(".%s[%d]%s", f.Name(), i, at), of, number
			}
		}
	}
	return "", nil, 0
}

// DropUnknown removes the fields that this program does not know from a message of a worker that
// the coordinator keeps and shows. Nothing else bounds them.
func DropUnknown(m proto.Message) { dropUnknown(m.ProtoReflect()) }

func dropUnknown(m protoreflect.Message) {
	m.SetUnknown(nil)
	for _, f := range partsOf(m.Descriptor()) {
		switch v := m.Get(f); {
		case !m.Has(f):
		case f.IsList():
			for i := range v.List().Len() {
				dropUnknown(v.List().Get(i).Message())
			}
		default:
			dropUnknown(v.Message())
		}
	}
}

// parts caches, by message descriptor, the few fields that hold messages of lessor.v1.
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
