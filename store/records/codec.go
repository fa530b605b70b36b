package records

import (
	"bytes"
	"encoding/binary"
	"math"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// codec goes over the fields of a record, either way: it appends them to out, or takes them from the front of in. An error sticks: all
// fields after it are left zero. Writing only looks at a record: others may be reading it.
type codec struct {
	reading bool
	broken  bool
	version byte // of the record
	in, out []byte
	names   [4]string // see name
}

// second reports whether the record has the fields that came with version 2. Older records are read as they are, and written anew when their
// task changes next.
func (c *codec) second() bool { return c.version >= 2 }

// third is second for version 3.
func (c *codec) third() bool { return c.version >= 3 }

// sixth is second for version 6.
func (c *codec) sixth() bool { return c.version >= 6 }

var codecs = sync.Pool{New: func() any { return new(codec) }}

// reader is a codec that reads a record, and writer one that appends to out.
func reader(version byte, in []byte) *codec {
	c := codecs.Get().(*codec)
	*c = codec{reading: true, version: version, in: in, names: c.names}
	return c
}

func writer(out []byte) *codec {
	c := codecs.Get().(*codec)
	*c = codec{version: version, out: out, names: c.names}
	return c
}

// release gives the codec back. What it read from or wrote to is not its own.
func (c *codec) release() {
	c.in, c.out = nil, nil
	codecs.Put(c)
}

// integer is any kind of number or enum that the records hold.
type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint32 | ~uint64
}

// num is a number. Negative ones are written as their 64 bits, which is long, but no record has them as a rule.
func num[T integer](c *codec, v *T) {
	if !c.reading {
		c.out = binary.AppendUvarint(c.out, uint64(*v))
		return
	}
	u, n := binary.Uvarint(c.in)
	if n <= 0 || uint64(T(u)) != u {
		c.fail()
		return
	}
	c.in = c.in[n:]
	*v = T(u)
}

func (c *codec) fail() { c.broken, c.in = true, nil }

func (c *codec) float(v *float64) {
	bits := math.Float64bits(*v)
	if num(c, &bits); c.reading {
		*v = math.Float64frombits(bits)
	}
}

func (c *codec) bool(v *bool) {
	n := uint8(0)
	if *v {
		n = 1
	}
	if num(c, &n); c.reading {
		*v = n == 1
	}
}

// take takes n bytes from the front.
func (c *codec) take(n uint64) []byte {
	if n > uint64(len(c.in)) {
		c.fail()
		return nil
	}
	b := c.in[:n:n]
	c.in = c.in[n:]
	return b
}

func (c *codec) str(v *string) {
	n := uint64(len(*v))
	num(c, &n)
	if c.reading {
		*v = string(c.take(n))
		return
	}
	c.out = append(c.out, *v...)
}

// name is str for what is the same in most records that are read one after the other: those share one string. Each such field has a slot.
func (c *codec) name(slot int, v *string) {
	n := uint64(len(*v))
	num(c, &n)
	if !c.reading {
		c.out = append(c.out, *v...)
		return
	}
	if b := c.take(n); string(b) != c.names[slot] {
		c.names[slot] = string(b)
	}
	*v = c.names[slot]
}

// bytes keeps no part of what is read from; an empty value is read as nil.
func (c *codec) bytes(v *[]byte) {
	n := uint64(len(*v))
	num(c, &n)
	if !c.reading {
		c.out = append(c.out, *v...)
		return
	}
	*v = nil
	if n > 0 {
		*v = append(*v, c.take(n)...)
	}
}

// fixed is for digests.
func (c *codec) fixed(v []byte) {
	if !c.reading {
		c.out = append(c.out, v...)
		return
	}
	copy(v, c.take(uint64(len(v))))
}

// maxReserve is for how many items of a list memory is taken before they were read.
const maxReserve = lease.MaxHistory

// list is a slice; an empty one is read as nil. It grows with the items that are really there: its length may be broken.
func list[T any](c *codec, v *[]T, item func(*codec, *T)) {
	n := uint64(len(*v))
	if num(c, &n); !c.reading {
		for i := range *v {
			item(c, &(*v)[i])
		}
		return
	}
	*v = nil
	if n > 0 {
		*v = make([]T, 0, min(n, maxReserve))
	}
	for i := uint64(0); i < n && !c.broken; i++ {
		*v = append(*v, *new(T))
		item(c, &(*v)[i])
	}
}

// optional is a pointer that may be nil.
func optional[T any](c *codec, v **T, fields func(*codec, *T)) {
	is := *v != nil
	c.bool(&is)
	switch {
	case c.reading && is:
		*v = new(T)
	case c.reading:
		*v = nil
	}
	if is {
		fields(c, *v)
	}
}

// table is a map; an empty one is read as nil. Its order does not matter: no record is compared by its bytes.
func table[V any](c *codec, v *map[string]V, value func(*codec, *V)) {
	n := uint64(len(*v))
	if num(c, &n); !c.reading {
		if n == 0 {
			return
		}
		var x V
		for k := range *v {
			x = (*v)[k]
			c.str(&k)
			value(c, &x)
		}
		return
	}
	*v = nil
	for range n {
		var k string
		var x V
		c.str(&k)
		value(c, &x)
		if c.broken {
			return
		}
		if *v == nil {
			*v = map[string]V{}
		}
		(*v)[k] = x
	}
}

// version of the records that are written; all up to it can be read. Each came with the format of its number; format 4 brought none.
const version = 6

// put seals the fields of v under key. They are written right into the batch.
func put[T any](b *store.Batch, ks store.Keyspace, key []byte, v *T, fields func(*codec, *T)) {
	c := writer(b.BeginSealed(ks, key))
	fields(c, v)
	b.EndSealed(version, c.out)
	c.release()
}

// read reads the record under key; nil where there is none.
func read[T any](r store.Reader, ks store.Keyspace, key []byte, fields func(*codec, *T)) (*T, error) {
	value := r.Get(ks, key)
	if value == nil {
		return nil, nil
	}
	v := new(T)
	if err := decode(ks, key, value, v, fields); err != nil {
		return nil, err
	}
	return v, nil
}

// decode reads a sealed value. The error is a *store.CorruptError.
func decode[T any](ks store.Keyspace, key, value []byte, v *T, fields func(*codec, *T)) error {
	ver, payload, err := open(ks, key, value)
	if err != nil {
		return err
	}
	c := reader(ver, payload)
	fields(c, v)
	if c.broken || len(c.in) > 0 {
		err = corrupt(ks, key, "the record does not fit its fields")
	}
	c.release()
	return err
}

// open returns what is sealed in a value. It belongs to the store.
func open(ks store.Keyspace, key, value []byte) (ver byte, payload []byte, err error) {
	ver, payload, err = store.Open(ks, key, value)
	if err == nil && (ver == 0 || ver > version) {
		err = corrupt(ks, key, "the record has a version that this version of Lessor does not know")
	}
	return ver, payload, err
}

func corrupt(ks store.Keyspace, key []byte, problem string) error {
	return &store.CorruptError{Keyspace: ks, Key: bytes.Clone(key), Problem: problem}
}
