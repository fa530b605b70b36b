//go:build faults && !race

package images

import (
	"encoding/binary"
	"fmt"
	"hash/maphash"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// state stands for the content of a store: the sum of the hashes of all records, and their number.
// It is computed from outside, not by the store.
type state struct {
	sum     uint64
	records int
}

func (s state) String() string { return fmt.Sprintf("%d records (%016x)", s.records, s.sum) }

var seed = maphash.MakeSeed()

func hash(ks store.Keyspace, key, value []byte) uint64 {
	var h maphash.Hash
	h.SetSeed(seed)
	head := binary.BigEndian.AppendUint64([]byte{byte(ks)}, uint64(len(key)))
	for _, part := range [][]byte{head, key, value} {
		_, _ = h.Write(part) // never fails
	}
	return h.Sum64()
}

// stateOf reads a whole store.
func stateOf(st store.Store) (s state, err error) {
	err = scan(st, func(ks store.Keyspace, key, value []byte) {
		s.records++
		s.sum += hash(ks, key, value)
	})
	return s, err
}

func scan(st store.Store, fn func(ks store.Keyspace, key, value []byte)) error {
	return st.View(func(r store.Reader) error {
		for ks := range store.Keyspace(store.NumKeyspaces) {
			err := r.Scan(ks, nil, nil, func(key, value []byte) bool {
				fn(ks, key, value)
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
}

// model is what a store should hold, in a map.
type model struct {
	state
	records map[entry][]byte
	put     [store.NumKeyspaces]int // how many records were put and deleted in each keyspace
	deleted [store.NumKeyspaces]int
}

type entry struct {
	keyspace store.Keyspace
	key      string
}

func read(t *testing.T, st store.Store) *model {
	t.Helper()
	m := &model{records: map[entry][]byte{}}
	err := scan(st, func(ks store.Keyspace, key, value []byte) {
		m.set(entry{ks, string(key)}, append([]byte{}, value...))
	})
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func (m *model) apply(b *store.Batch) {
	for i := range b.Len() {
		op := b.At(i)
		r := entry{op.Keyspace, string(op.Key)}
		if op.Delete {
			m.remove(r)
		} else {
			m.set(r, append([]byte{}, op.Value...))
		}
	}
}

func (m *model) set(r entry, value []byte) {
	m.forget(r)
	m.records[r] = value
	m.state.records++
	m.sum += hash(r.keyspace, []byte(r.key), value)
	m.put[r.keyspace]++
}

func (m *model) remove(r entry) {
	if m.forget(r) {
		m.deleted[r.keyspace]++
	}
}

func (m *model) forget(r entry) (found bool) {
	value, found := m.records[r]
	if found {
		m.state.records--
		m.sum -= hash(r.keyspace, []byte(r.key), value)
		delete(m.records, r)
	}
	return found
}
