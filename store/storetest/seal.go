package storetest

import "github.com/lessor-dev/lessor/store"

// Seal returns the value that a Batch writes for a payload under a key.
func Seal(ks store.Keyspace, key []byte, version byte, payload []byte) []byte {
	var b store.Batch
	b.PutSealed(ks, key, version, payload)
	return b.At(0).Value
}
