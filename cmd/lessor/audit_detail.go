package main

import (
	"fmt"
	"slices"
	"strings"

	"google.golang.org/protobuf/encoding/prototext"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/words"
)

// auditDetail returns what an entry has of a request, in words for people. The entry has it in the
// text form of protobuf. What cannot be read, because it was cut or a newer coordinator wrote it,
// stays as it is.
func auditDetail(e *lessorv1.AuditEvent) string {
	request, err := protoregistry.GlobalTypes.FindMessageByName(protoreflect.FullName("lessor.v1." + e.GetAction() + "Request"))
	if err != nil {
		return e.GetDetail()
	}
	m := request.New()
	if err := prototext.Unmarshal([]byte(e.GetDetail()), m.Interface()); err != nil {
		return e.GetDetail()
	}
	return messageText(m)
}

// messageText names the fields that a message has, in the order of their numbers.
func messageText(m protoreflect.Message) string {
	var set []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		set = append(set, f)
		return true
	})
	slices.SortFunc(set, func(a, b protoreflect.FieldDescriptor) int { return int(a.Number()) - int(b.Number()) })
	var parts []string
	for _, f := range set {
		parts = append(parts, strings.ReplaceAll(string(f.Name()), "_", " ")+fieldText(f, m.Get(f)))
	}
	return strings.Join(parts, ", ")
}

// fieldText returns the value of a field behind a space; of a flag that is set, nothing.
func fieldText(f protoreflect.FieldDescriptor, v protoreflect.Value) (text string) {
	switch {
	case f.IsMap():
		var entries []string
		v.Map().Range(func(k protoreflect.MapKey, v protoreflect.Value) bool {
			entries = append(entries, " "+word(k.String())+"="+strings.TrimPrefix(fieldText(f.MapValue(), v), " "))
			return true
		})
		slices.Sort(entries)
		return strings.Join(entries, "")
	case f.IsList():
		for i := range v.List().Len() {
			text += oneText(f, v.List().Get(i))
		}
		return text
	case f.Kind() == protoreflect.BoolKind && v.Bool():
		return ""
	}
	return oneText(f, v)
}

func oneText(f protoreflect.FieldDescriptor, v protoreflect.Value) string {
	switch f.Kind() {
	case protoreflect.EnumKind:
		if kind, err := protoregistry.GlobalTypes.FindEnumByName(f.Enum().FullName()); err == nil {
			return " " + words.Name(kind.New(v.Enum()))
		}
	case protoreflect.MessageKind:
		return " " + nestedText(v.Message().Interface())
	case protoreflect.StringKind:
		return " " + word(v.String())
	}
	return " " + v.String()
}

func nestedText(m proto.Message) string {
	switch m := m.(type) {
	case *durationpb.Duration:
		return words.Span(m.AsDuration())
	case *timestamppb.Timestamp:
		return clock(m)
	}
	return "(" + messageText(m.ProtoReflect()) + ")"
}

// word quotes a text unless it is one plain word.
func word(s string) string {
	if s == "" || strings.ContainsAny(s, " ,()\"=") {
		return fmt.Sprintf("%q", s)
	}
	return s
}
