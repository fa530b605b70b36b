package store_test

import (
	"bytes"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// Open returns what was sealed under the key. It refuses any other bytes, unless they are exactly
// what a Batch writes for some payload.
func FuzzSeal(f *testing.F) {
	f.Add([]byte("key"), []byte("payload"), []byte{})
	f.Add([]byte{}, []byte{}, []byte{1, 2, 3, 4, 5})
	f.Add([]byte("k"), storetest.Seal(store.Task, []byte("k"), 1, []byte("p")), []byte("x"))
	f.Fuzz(func(t *testing.T, key, payload, noise []byte) {
		sealed := storetest.Seal(store.Task, key, 1, payload)
		if _, got, err := store.Open(store.Task, key, sealed); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("payload %x is read back as %x, error %v", payload, got, err)
		}
		if _, got, err := store.Open(store.Task, key, noise); err == nil && !bytes.Equal(storetest.Seal(store.Task, key, noise[0], got), noise) {
			t.Errorf("Open accepts %x as the sealed payload %x, but a Batch writes %x",
				noise, got, storetest.Seal(store.Task, key, noise[0], got))
		}
	})
}
