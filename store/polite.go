package store

import "runtime"

// readsPerTurn is after how many reads a polite Reader gives up the processor. A read takes about a microsecond.
const readsPerTurn = 32

// Polite returns a Reader that gives up the processor after every few reads, for calls that may read much: Go's scheduler would let each of them compute for
// 10 ms before a goroutine that others wait for has its turn (docs/decisions/0031-long-calls-yield.md).
func Polite(r Reader) Reader { return &politeReader{Reader: r} }

type politeReader struct {
	Reader
	reads int
}

// Get returns the value under key.
func (r *politeReader) Get(ks Keyspace, key []byte) []byte {
	r.count()
	return r.Reader.Get(ks, key)
}

// Scan calls fn with each key in [from, to).
func (r *politeReader) Scan(ks Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return r.Reader.Scan(ks, from, to, func(key, value []byte) bool {
		r.count()
		return fn(key, value)
	})
}

func (r *politeReader) count() {
	if r.reads++; r.reads%readsPerTurn == 0 {
		runtime.Gosched()
	}
}
