package convert

import (
	"fmt"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lessor-dev/lessor/lease"
)

// Codec is a codec that returns a lease.FieldError for a string that is not valid UTF-8. Protobuf's
// own error does not name the field.
type Codec struct{ encoding.CodecV2 }

// Unmarshal reads a message.
func (c Codec) Unmarshal(data mem.BufferSlice, v any) error {
	err := c.CodecV2.Unmarshal(data, v)
	if m, ok := v.(proto.Message); ok && err != nil {
		if path := invalidUTF8(m.ProtoReflect().Descriptor(), data.Materialize()); path != "" {
			return &lease.FieldError{Field: path, Problem: "contains invalid UTF-8"}
		}
	}
	return err
}

// invalidUTF8 returns the path of the first string in an encoded message that is not UTF-8, or ""
// if there is none.
func invalidUTF8(m protoreflect.MessageDescriptor, raw []byte) string {
	seen := map[protowire.Number]int{} // how many items of each list were read
	for len(raw) > 0 {
		number, typ, n := protowire.ConsumeTag(raw)
		size := protowire.ConsumeFieldValue(number, typ, raw[max(n, 0):])
		if n < 0 || size < 0 {
			return "" // the message is malformed in another way
		}
		value := raw[n : n+size]
		raw = raw[n+size:]
		f := m.Fields().ByNumber(number)
		if f == nil || typ != protowire.BytesType {
			continue
		}
		content, _ := protowire.ConsumeBytes(value)
		if path, bad := invalidField(f, content, seen[number]); bad {
			return path
		}
		seen[number]++
	}
	return ""
}

// invalidField checks one field; of a list it checks the item with the given index.
func invalidField(f protoreflect.FieldDescriptor, content []byte, index int) (path string, bad bool) {
	path = string(f.Name())
	if f.IsList() {
		path = fmt.Sprintf("%s[%d]", path, index)
	}
	switch f.Kind() {
	case protoreflect.StringKind:
		return path, !utf8.Valid(content)
	case protoreflect.MessageKind:
		inner := invalidUTF8(f.Message(), content)
		if inner != "" && !f.IsMap() { // a map has keys and values, which have no names
			path += "." + inner
		}
		return path, inner != ""
	}
	return "", false
}
