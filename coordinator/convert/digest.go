package convert

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"hash"
	"math"
	"slices"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"github.com/lessor-dev/lessor/lease"
)

// traceFields are left out of digests, because their values may differ between submits with the
// same idempotency key (T1).
var traceFields = []protoreflect.FullName{"lessor.v1.TaskSpec.trace_meta", "lessor.v1.TaskSpec.traceparent"}

// DigestOf identifies the content of a message: two messages have the same digest if and only if
// they hold the same known fields, except for traceFields. The digest shows whether a submit
// repeats an earlier one with the same idempotency key, or differs from it (T1). Digests are
// stored, but protobuf's encoding has no guaranteed order. So the digest has its own encoding,
// which never changes: fields in the order of their numbers, map entries in the order of their
// keys, every value with its length. A field that is not set is left out, so that fields added
// later do not change old digests. A field with a zero value is not set, unless the value is a
// message: an empty retry policy counts.
func DigestOf(m proto.Message) lease.Digest {
	sum := Fingerprint(m)
	return lease.Digest(sum[:len(lease.Digest{})])
}

// Fingerprint returns a hash of the given words and the content of a message, in this order.
func Fingerprint(m proto.Message, words ...string) [sha256.Size]byte {
	d := digester{sha256.New()}
	for _, w := range words {
		d.bytes([]byte(w))
	}
	d.message(m.ProtoReflect())
	return [sha256.Size]byte(d.h.Sum(nil))
}

type digester struct{ h hash.Hash }

func (d digester) num(n uint64) {
	var b [binary.MaxVarintLen64]byte
	d.h.Write(b[:binary.PutUvarint(b[:], n)])
}

func (d digester) bytes(b []byte) {
	d.num(uint64(len(b)))
	d.h.Write(b)
}

// message writes the number of fields that are set, then each field.
func (d digester) message(m protoreflect.Message) {
	var set []protoreflect.FieldDescriptor
	m.Range(func(f protoreflect.FieldDescriptor, _ protoreflect.Value) bool {
		if !slices.Contains(traceFields, f.FullName()) {
			set = append(set, f)
		}
		return true
	})
	slices.SortFunc(set, func(a, b protoreflect.FieldDescriptor) int { return cmp.Compare(a.Number(), b.Number()) })
	d.num(uint64(len(set)))
	for _, f := range set {
		d.num(uint64(f.Number()))
		d.field(f, m.Get(f))
	}
}

func (d digester) field(f protoreflect.FieldDescriptor, v protoreflect.Value) {
	switch {
	case f.IsMap():
		d.entries(v.Map())
	case f.IsList():
		d.num(uint64(v.List().Len()))
		for i := range v.List().Len() {
			d.value(v.List().Get(i))
		}
	default:
		d.value(v)
	}
}

// entries writes a map in the order of its keys, which are strings in all of our messages.
func (d digester) entries(m protoreflect.Map) {
	var keys []string
	m.Range(func(k protoreflect.MapKey, _ protoreflect.Value) bool {
		keys = append(keys, k.String())
		return true
	})
	slices.Sort(keys)
	d.num(uint64(len(keys)))
	for _, k := range keys {
		d.bytes([]byte(k))
		d.value(m.Get(protoreflect.ValueOfString(k).MapKey()))
	}
}

func (d digester) value(v protoreflect.Value) {
	switch v := v.Interface().(type) {
	case protoreflect.Message:
		d.message(v)
	case string:
		d.bytes([]byte(v))
	case []byte:
		d.bytes(v)
	case bool:
		d.num(map[bool]uint64{false: 0, true: 1}[v])
	case protoreflect.EnumNumber:
		d.num(uint64(v))
	case int32:
		d.num(uint64(v))
	case int64:
		d.num(uint64(v))
	case uint32:
		d.num(uint64(v))
	case uint64:
		d.num(v)
	case float32:
		d.num(uint64(math.Float32bits(v)))
	case float64:
		d.num(math.Float64bits(v))
	}
}
