package wire

import (
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
)

// Entries returns how many messages and strings the lists in an encoded message of lessor.v1 hold,
// at any depth and without the entries of maps. Decoding takes memory for each of them, however
// small it is. Entries returns 0 for a message of another package.
func Entries(m proto.Message, raw []byte) (messages, strings int) {
	// a shape needs messages that do not contain themselves
	if m.ProtoReflect().Descriptor().ParentFile().Package() != "lessor.v1" {
		return 0, 0
	}
	return shapeOf(m).entries(raw)
}

// entries stops at a part that is malformed, as decoding does.
func (s shape) entries(raw []byte) (messages, strings int) {
	for len(raw) > 0 {
		number, typ, used := protowire.ConsumeTag(raw)
		if used < 0 {
			return messages, strings
		}
		size := protowire.ConsumeFieldValue(number, typ, raw[used:])
		if size < 0 {
			return messages, strings
		}
		value := raw[used : used+size]
		raw = raw[used+size:]
		if typ != protowire.BytesType || int(number) >= len(s) {
			continue
		}
		f := &s[number]
		if f.nested == nil {
			if f.list {
				strings++
			}
			continue
		}
		if f.list {
			messages++
		}
		content, _ := protowire.ConsumeBytes(value)
		inMessages, inStrings := f.nested.entries(content)
		messages, strings = messages+inMessages, strings+inStrings
	}
	return messages, strings
}
