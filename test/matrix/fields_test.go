package matrix

import (
	"slices"
	"strconv"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// field is a field of a request that names something.
type field struct {
	path []string
	kind kind
}

// everything stands for all fields of a request at once.
var everything = field{path: []string{"everything"}}

func (f field) String() string { return strings.Join(f.path, ".") }

// request is what a cell sends. Each is used once.
type request interface {
	// set gives the field at a path a value; an empty value clears it.
	set(path []string, value string)
}

// message is a protobuf request.
type message struct{ proto.Message }

func (m message) set(path []string, value string) { setAt(m.ProtoReflect(), path, value) }

// setAt creates the messages on the way to the field if they are missing. In a list it uses the
// first item.
func setAt(m protoreflect.Message, path []string, value string) {
	f := m.Descriptor().Fields().ByName(protoreflect.Name(path[0]))
	switch {
	case len(path) == 1:
		setField(m, f, value)
	case f.IsList():
		items := m.Mutable(f).List()
		if items.Len() == 0 {
			items.AppendMutable()
		}
		setAt(items.Get(0).Message(), path[1:], value)
	default:
		setAt(m.Mutable(f).Message(), path[1:], value)
	}
}

func setField(m protoreflect.Message, f protoreflect.FieldDescriptor, value string) {
	m.Clear(f)
	switch {
	case value == "":
	case f.IsList():
		m.Mutable(f).List().Append(protoreflect.ValueOfString(value))
	case f.IsMap() && f.MapValue().Kind() == protoreflect.DoubleKind: // a map from names to numbers
		m.Mutable(f).Map().Set(protoreflect.ValueOfString(value).MapKey(), protoreflect.ValueOfFloat64(2))
	case f.IsMap():
		m.Mutable(f).Map().Set(protoreflect.ValueOfString("label").MapKey(), protoreflect.ValueOfString(value))
	case f.Kind() == protoreflect.Uint64Kind:
		n, _ := strconv.ParseUint(value, 10, 64)
		m.Set(f, protoreflect.ValueOfUint64(n))
	default:
		m.Set(f, protoreflect.ValueOfString(value))
	}
}

// fieldsOf returns the fields of a request that name something, at any depth. Of a oneof with
// messages it goes into the one that m has set; each of the others has its own row.
func fieldsOf(t *testing.T, m protoreflect.Message) []field {
	t.Helper()
	var found []field
	fields := m.Descriptor().Fields()
	for i := range fields.Len() {
		f := fields.Get(i)
		if o := f.ContainingOneof(); o != nil && !o.IsSynthetic() && m.WhichOneof(o) != f && f.Message() != nil {
			continue
		}
		switch {
		case f.Message() == nil, f.IsMap():
			if k := kindOf(t, f); k != plain {
				found = append(found, field{[]string{string(f.Name())}, k})
			}
		case f.Message().ParentFile().Package() != "google.protobuf":
			for _, inner := range fieldsOf(t, first(m, f)) {
				found = append(found, field{slices.Concat([]string{string(f.Name())}, inner.path), inner.kind})
			}
		}
	}
	return found
}

// first returns the message in field f, the first one of a list; an empty one if there is none.
func first(m protoreflect.Message, f protoreflect.FieldDescriptor) protoreflect.Message {
	switch {
	case !f.IsList():
		return m.Get(f).Message()
	case m.Get(f).List().Len() > 0:
		return m.Get(f).List().Get(0).Message()
	}
	return m.NewField(f).List().NewElement().Message()
}
