package store_test

import (
	"bytes"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// Open returns what was sealed under the key. It refuses any other bytes, unless they are exactly what Seal writes for some payload.
func FuzzSeal(f *testing.F) {
	f.Add([]byte("key"), []byte("payload"), []byte{})
	f.Add([]byte{}, []byte{}, []byte{1, 2, 3, 4, 5})
	f.Add([]byte("k"), store.Seal(nil, store.Task, []byte("k"), 1, []byte("p")), []byte("x"))
	f.Fuzz(func(t *testing.T, key, payload, noise []byte) {
		sealed := store.Seal(nil, store.Task, key, 1, payload)
		if _, got, err := store.Open(store.Task, key, sealed); err != nil || !bytes.Equal(got, payload) {
			t.Errorf("payload %x is read back as %x, error %v", payload, got, err)
		}
		if _, got, err := store.Open(store.Task, key, noise); err == nil && !bytes.Equal(store.Seal(nil, store.Task, key, noise[0], got), noise) {
			t.Errorf("Open accepts %x as the sealed payload %x, but Seal writes %x", noise, got, store.Seal(nil, store.Task, key, noise[0], got))
		}
	})
}
