package wire

import (
	"encoding/binary"
	"sync"
	"unicode/utf8"

	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// shape describes the plain messages of a type: its fields by number.
type shape []field

type field struct {
	known  bool
	typ    protowire.Type
	text   bool
	nested shape // of a field that is a message; nil for any other
	list   bool  // it is a list of messages or strings, and not a map
}

var shapes sync.Map // *shape by protoreflect.MessageDescriptor

func shapeOf(m proto.Message) shape {
	d := m.ProtoReflect().Descriptor()
	s, ok := shapes.Load(d)
	if !ok {
		made := newShape(d)
		s, _ = shapes.LoadOrStore(d, &made)
	}
	return *s.(*shape)
}

// newShape requires that no message contains itself; none of ours does.
func newShape(d protoreflect.MessageDescriptor) shape {
	s := shape{{}} // no field has the number 0
	for i := range d.Fields().Len() {
		f := d.Fields().Get(i)
		for len(s) <= int(f.Number()) {
			s = append(s, field{})
		}
		s[f.Number()] = newField(f)
	}
	return s
}

func newField(f protoreflect.FieldDescriptor) field {
	known := field{known: true}
	switch f.Kind() {
	case protoreflect.StringKind:
		known.typ, known.text, known.list = protowire.BytesType, true, f.IsList()
	case protoreflect.BytesKind:
		known.typ = protowire.BytesType
	case protoreflect.MessageKind: // a map is a list of messages with a key and a value
		known.typ, known.nested, known.list = protowire.BytesType, newShape(f.Message()), f.IsList()
	case protoreflect.DoubleKind:
		known.typ = protowire.Fixed64Type
	case protoreflect.BoolKind, protoreflect.EnumKind, protoreflect.Int32Kind, protoreflect.Int64Kind,
		protoreflect.Uint32Kind, protoreflect.Uint64Kind:
		if f.IsList() { // has two encodings, and is rare
			return field{}
		}
		known.typ = protowire.VarintType
	default: // our messages have none of these
		return field{}
	}
	return known
}

// fits reports whether an encoded message is plain.
func (s shape) fits(raw []byte) bool {
	for len(raw) > 0 {
		tag, n := uvarint(raw)
		number := tag >> 3
		if n <= 0 || number >= uint64(len(s)) {
			return false
		}
		raw = raw[n:]
		f := &s[number]
		if !f.known || f.typ != protowire.Type(tag&7) {
			return false
		}
		if n = f.size(raw); n < 0 {
			return false
		}
		raw = raw[n:]
	}
	return true
}

// size returns how many bytes a value takes, or a negative number if it is not plain.
func (f *field) size(raw []byte) int {
	switch f.typ {
	case protowire.VarintType:
		if _, n := uvarint(raw); n > 0 {
			return n
		}
		return -1
	case protowire.BytesType:
		length, n := uvarint(raw)
		if n <= 0 || length > uint64(len(raw)-n) {
			return -1
		}
		end := n + int(length)
		if content := raw[n:end]; f.text && !utf8.Valid(content) || f.nested != nil && !f.nested.fits(content) {
			return -1
		}
		return end
	}
	return protowire.ConsumeFieldValue(1, f.typ, raw) // the number only matters for groups
}

// uvarint is binary.Uvarint, but faster for numbers of one byte, as most are.
func uvarint(raw []byte) (uint64, int) {
	if len(raw) > 0 && raw[0] < 0x80 {
		return uint64(raw[0]), 1
	}
	return binary.Uvarint(raw)
}
