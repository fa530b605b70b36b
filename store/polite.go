package store

import "github.com/lessor-dev/lessor/internal/turn"

// readsPerTurn is after how many reads a polite Reader gives up the processor. A read takes about a
// microsecond.
const readsPerTurn = 32

// Polite returns a Reader that gives up the processor after every few reads, for calls that may
// read much; see package turn.
func Polite(r Reader) Reader { return &politeReader{Reader: r} }

type politeReader struct {
	Reader
	reads turn.Counter
}

// Get returns the value under key.
func (r *politeReader) Get(ks Keyspace, key []byte) []byte {
	r.reads.Every(readsPerTurn)
	return r.Reader.Get(ks, key)
}

// Scan calls fn with each key in [from, to).
func (r *politeReader) Scan(ks Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return r.Reader.Scan(ks, from, to, r.each(fn))
}

// ScanBack is Scan in reverse order.
func (r *politeReader) ScanBack(ks Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return r.Reader.ScanBack(ks, from, to, r.each(fn))
}

func (r *politeReader) each(fn func(key, value []byte) bool) func(key, value []byte) bool {
	return func(key, value []byte) bool {
		r.reads.Every(readsPerTurn)
		return fn(key, value)
	}
}
