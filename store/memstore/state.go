package memstore

import (
	"bytes"

	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/store"
)

// state is the content of a store. A committed state never changes; the next state shares what is
// equal with it.
type state struct {
	keyspaces [store.NumKeyspaces]*btree.Map[string, []byte] // nil is empty
}

// with returns the state after the changes of b.
func (s *state) with(b *store.Batch) *state {
	next := *s
	var copied [store.NumKeyspaces]bool
	for i := range b.Len() {
		op := b.At(i)
		if !copied[op.Keyspace] {
			next.keyspaces[op.Keyspace] = copyOnWrite(s.keyspaces[op.Keyspace])
			copied[op.Keyspace] = true
		}
		if op.Delete {
			next.keyspaces[op.Keyspace].Delete(string(op.Key))
		} else {
			// never nil, because Get returns nil only for an absent key
			next.keyspaces[op.Keyspace].Set(string(op.Key), append([]byte{}, op.Value...))
		}
	}
	return &next
}

func copyOnWrite(keys *btree.Map[string, []byte]) *btree.Map[string, []byte] {
	if keys == nil {
		return new(btree.Map[string, []byte])
	}
	return keys.Copy() // copy on write
}

// Get implements store.Reader.
func (s *state) Get(ks store.Keyspace, key []byte) []byte {
	if s.keyspaces[ks] == nil {
		return nil
	}
	value, _ := s.keyspaces[ks].Get(string(key))
	return value
}

// Scan implements store.Reader.
func (s *state) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	if s.keyspaces[ks] == nil {
		return nil
	}
	s.keyspaces[ks].Ascend(string(from), func(k string, value []byte) bool {
		key := []byte(k)
		return (to == nil || bytes.Compare(key, to) < 0) && fn(key, value)
	})
	return nil
}

// ScanBack implements store.Reader.
func (s *state) ScanBack(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	if s.keyspaces[ks] == nil {
		return nil
	}
	visit := func(k string, value []byte) bool {
		return k >= string(from) && (k == string(to) && to != nil || fn([]byte(k), value))
	}
	if to == nil {
		s.keyspaces[ks].Reverse(visit)
	} else {
		s.keyspaces[ks].Descend(string(to), visit)
	}
	return nil
}
