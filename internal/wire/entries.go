package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Entries returns how many messages the lists in an encoded message of lessor.v1 hold, at any depth and without the entries of maps. Decoding allocates each
// of them, however small it is. Entries returns 0 for a message of another package.
func Entries(m proto.Message, raw []byte) int {
	if m.ProtoReflect().Descriptor().ParentFile().Package() != "lessor.v1" { // a shape needs messages that do not contain themselves
		return 0
	}
	return shapeOf(m).entries(raw)
}

// entries stops at a part that is malformed, as decoding does.
func (s shape) entries(raw []byte) (n int) {
	for len(raw) > 0 {
		number, typ, used := protowire.ConsumeTag(raw)
		if used < 0 {
			return n
		}
		size := protowire.ConsumeFieldValue(number, typ, raw[used:])
		if size < 0 {
			return n
		}
		value := raw[used : used+size]
		raw = raw[used+size:]
		if typ != protowire.BytesType || int(number) >= len(s) || s[number].nested == nil {
			continue
		}
		if s[number].list {
			n++
		}
		content, _ := protowire.ConsumeBytes(value)
		n += s[number].nested.entries(content)
	}
	return n
}
