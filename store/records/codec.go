package records

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/lessor-dev/lessor/store"
)

// codec goes over the fields of a record, either way: it appends them to buf, or takes them from its front. An error sticks: all fields
// after it are left zero. Writing only looks at a record: others may be reading it.
type codec struct {
	buf     []byte
	reading bool
	broken  bool
}

var codecs = sync.Pool{New: func() any { return new(codec) }}

// integer is any kind of number or enum that the records hold.
type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint32 | ~uint64
}

// num is a number. Negative ones are written as their 64 bits, which is long, but no record has them as a rule.
func num[T integer](c *codec, v *T) {
	if !c.reading {
		c.buf = binary.AppendUvarint(c.buf, uint64(*v))
		return
	}
	u, n := binary.Uvarint(c.buf)
	if n <= 0 || uint64(T(u)) != u {
		c.fail()
		return
	}
	c.buf = c.buf[n:]
	*v = T(u)
}

func (c *codec) fail() { c.broken, c.buf = true, nil }

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
	if n > uint64(len(c.buf)) {
		c.fail()
		return nil
	}
	b := c.buf[:n:n]
	c.buf = c.buf[n:]
	return b
}

func (c *codec) str(v *string) {
	n := uint64(len(*v))
	num(c, &n)
	if c.reading {
		*v = string(c.take(n))
		return
	}
	c.buf = append(c.buf, *v...)
}

// bytes keeps no part of what is read from; an empty value is read as nil.
func (c *codec) bytes(v *[]byte) {
	n := uint64(len(*v))
	num(c, &n)
	if !c.reading {
		c.buf = append(c.buf, *v...)
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
		c.buf = append(c.buf, v...)
		return
	}
	copy(v, c.take(uint64(len(v))))
}

// list is a slice; an empty one is read as nil. Each item takes at least a byte, which bounds what a broken length may allocate.
func list[T any](c *codec, v *[]T, item func(*codec, *T)) {
	n := uint64(len(*v))
	num(c, &n)
	if c.reading {
		*v = nil
		if n > uint64(len(c.buf)) {
			c.fail()
			return
		}
		if n > 0 {
			*v = make([]T, n)
		}
	}
	for i := range *v {
		item(c, &(*v)[i])
	}
}

// optional is a pointer that may be nil.
func optional[T any](c *codec, v **T, fields func(*codec, *T)) {
	is := *v != nil
	if c.bool(&is); !is {
		return
	}
	if c.reading {
		*v = new(T)
	}
	fields(c, *v)
}

// table is a map; an empty one is read as nil. Its order does not matter: no record is compared by its bytes.
func table[V any](c *codec, v *map[string]V, value func(*codec, *V)) {
	n := uint64(len(*v))
	num(c, &n)
	if !c.reading {
		for k, x := range *v {
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

// version of every record so far.
const version = 1

// put seals the fields of v under key.
func put[T any](b *store.Batch, ks store.Keyspace, key []byte, v *T, fields func(*codec, *T)) {
	c := codecs.Get().(*codec)
	defer codecs.Put(c)
	*c = codec{buf: c.buf[:0]}
	fields(c, v)
	b.PutSealed(ks, key, version, c.buf)
}

// get reads the fields of the record under key into v; found is false where there is none.
func get[T any](r store.Reader, ks store.Keyspace, key []byte, v *T, fields func(*codec, *T)) (found bool, err error) {
	value := r.Get(ks, key)
	if value == nil {
		return false, nil
	}
	return true, decode(ks, key, value, v, fields)
}

// decode reads a sealed value. The error is a *store.CorruptError.
func decode[T any](ks store.Keyspace, key, value []byte, v *T, fields func(*codec, *T)) error {
	ver, payload, err := store.Open(ks, key, value)
	switch {
	case err != nil:
		return err
	case ver != version:
		return &store.CorruptError{Keyspace: ks, Key: append([]byte(nil), key...), Problem: "the record has a version that this program does not know"}
	}
	c := codec{buf: payload, reading: true}
	fields(&c, v)
	if c.broken || len(c.buf) > 0 {
		return &store.CorruptError{Keyspace: ks, Key: append([]byte(nil), key...), Problem: "the record does not fit its fields"}
	}
	return nil
}
