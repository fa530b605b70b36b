package records

import (
	"encoding/binary"
	"math"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// codec writes the fields of a record by appending them to out, or reads them from the front of in.
// After an error, all further fields are read as zero. Writing does not change the record, because
// other goroutines may be reading it.
type codec struct {
	reading bool
	broken  bool // an error has occurred while reading
	version byte // of the record
	in, out []byte
	names   [4]string // see sharedStr
}

// since reports whether the record has the fields that this version added. Older records are read
// as they are, and get the new fields when their task changes next.
func (c *codec) since(version byte) bool { return c.version >= version }

var codecs = sync.Pool{New: func() any { return new(codec) }}

// reader returns a codec that reads a record of that version from in.
func reader(version byte, in []byte) *codec {
	c := codecs.Get().(*codec)
	*c = codec{reading: true, version: version, in: in, names: c.names}
	return c
}

// writer returns a codec that appends to out.
func writer(out []byte) *codec {
	c := codecs.Get().(*codec)
	*c = codec{version: version, out: out, names: c.names}
	return c
}

// release returns the codec to the pool. in and out belong to the store or the batch.
func (c *codec) release() {
	c.in, c.out = nil, nil
	codecs.Put(c)
}

// integer is any integer or enum type of the records.
type integer interface {
	~int | ~int32 | ~int64 | ~uint8 | ~uint32 | ~uint64
}

// num reads or writes an integer as a varint. A negative number takes 10 bytes, but records hardly
// ever contain one.
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

// take removes n bytes from the front of in and returns them.
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

// addedStr is str for the last field of a record that did not always have it: a record without it
// ends before it, and so does one whose field is empty.
func (c *codec) addedStr(v *string) {
	if c.reading && len(c.in) == 0 || !c.reading && *v == "" {
		return
	}
	if c.str(v); *v == "" {
		c.fail()
	}
}

// sharedStr is str for a field that is equal in most records that are read in sequence. Equal
// values share the memory of one string. Each such field has its slot.
func (c *codec) sharedStr(slot int, v *string) {
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

// bytes reads or writes a byte slice. It copies what it reads; an empty value is read as nil.
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

// fixed reads or writes bytes of a fixed number, such as a digest.
func (c *codec) fixed(v []byte) {
	if !c.reading {
		c.out = append(c.out, v...)
		return
	}
	copy(v, c.take(uint64(len(v))))
}

// maxReserve is the highest number of list items for which memory is allocated before they are
// read.
const maxReserve = lease.MaxHistory

// list reads or writes a slice; an empty one is read as nil. It allocates memory as it reads the
// items, because the stored length may be broken.
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

// optional reads or writes a pointer that may be nil.
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

// table reads or writes a map; an empty one is read as nil. The order of the keys does not matter,
// because nobody compares the bytes of records.
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

// version is the version of records that this program writes. It reads all versions up to it.
// Version n came with format n of the store; there are no versions 4 and 8.
const version = 10

// put writes the fields of v as a sealed value under key, directly into the memory of the batch.
func put[T any](b *store.Batch, ks store.Keyspace, key []byte, v *T, fields func(*codec, *T)) {
	c := writer(b.BeginSealed(ks, key))
	fields(c, v)
	b.EndSealed(version, c.out)
	c.release()
}

// read reads the record under key; nil if there is none.
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
		err = store.Corrupt(ks, key, "the record does not fit its fields")
	}
	c.release()
	return err
}

// open returns the version and the payload of a sealed value. The payload is memory of the store.
func open(ks store.Keyspace, key, value []byte) (ver byte, payload []byte, err error) {
	ver, payload, err = store.Open(ks, key, value)
	if err == nil && (ver == 0 || ver > version) {
		err = store.Corrupt(ks, key, "the record has a version that this version of Lessor does not know")
	}
	return ver, payload, err
}
