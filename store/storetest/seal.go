package storetest

import (
	"encoding/binary"

	"github.com/lessor-dev/lessor/store"
)

// Seal returns the value that a Batch writes for a payload under a key.
func Seal(ks store.Keyspace, key []byte, version byte, payload []byte) []byte {
	var b store.Batch
	b.PutSealed(ks, key, version, payload)
	return b.At(0).Value
}

// PutOlderKey adds an idempotency key, of the task with that sequence, where stores of formats
// before 9 have them.
func PutOlderKey(b *store.Batch, space uint32, key string, seq uint64, digest []byte) {
	b.PutSealed(store.Idempotency, store.AppendNameKey(nil, space, key), 1,
		append(binary.AppendUvarint(nil, seq), digest...))
}
