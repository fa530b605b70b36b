package store_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/storetest"
)

// Open returns the version and the payload that a Batch sealed, and a seal has SealSize bytes.
func TestOpenReadsWhatABatchSealed(t *testing.T) {
	for _, payload := range [][]byte{nil, []byte("payload"), make([]byte, 1<<16)} {
		value := storetest.Seal(store.Task, []byte("key"), 3, payload)
		if len(value) != store.SealSize+len(payload) {
			t.Errorf("%d bytes were sealed into %d, want %d", len(payload), len(value), store.SealSize+len(payload))
		}
		version, got, err := store.Open(store.Task, []byte("key"), value)
		if err != nil || version != 3 || !bytes.Equal(got, payload) {
			t.Errorf("Open = %d, %d bytes, %v; want 3 and %d bytes", version, len(got), err, len(payload))
		}
	}
}

// A stored value must stay readable for ever, so the form of a seal must not change. The test
// compares with a value that format 1 wrote.
func TestFormOfASealNeverChanges(t *testing.T) {
	want := "\x01\x00\xfd\xbeupayload"
	if got := storetest.Seal(store.Task, []byte("key"), 1, []byte("payload")); string(got) != want {
		t.Errorf("sealed value = %q, want %q", got, want)
	}
}

// Open refuses a value with any bit flipped, cut off anywhere, or read under another keyspace or
// key than it was sealed for.
func TestOpenRefusesDamage(t *testing.T) {
	key, value := []byte("key"), storetest.Seal(store.Task, []byte("key"), 1, []byte("payload"))
	wantCorrupt := func(what string, ks store.Keyspace, key, value []byte) {
		t.Helper()
		_, _, err := store.Open(ks, key, value)
		if damage := new(store.CorruptError); !errors.As(err, &damage) || damage.Keyspace != ks || !bytes.Equal(damage.Key, key) {
			t.Errorf("%s: %v, want a CorruptError of %v %q", what, err, ks, key)
		}
	}
	for bit := range 8 * len(value) {
		flipped := bytes.Clone(value)
		flipped[bit/8] ^= 1 << (bit % 8)
		wantCorrupt("flipped bit", store.Task, key, flipped)
	}
	for n := range len(value) {
		wantCorrupt("cut off", store.Task, key, value[:n])
	}
	wantCorrupt("absent", store.Task, key, nil)
	wantCorrupt("other keyspace", store.Lease, key, value)
	wantCorrupt("other key", store.Task, []byte("kez"), value)
	wantCorrupt("bytes moved from the key to the payload",
		store.Task, []byte("ke"), append(value[:store.SealSize:store.SealSize], "ypayload"...))
}

// A batch that is reset and used again allocates nothing, and neither does Open.
func TestSealAndBatchDoNotAllocate(t *testing.T) {
	key, payload := []byte("key of a task"), make([]byte, 300)
	var b store.Batch
	allocs := testing.AllocsPerRun(100, func() {
		b.Reset()
		for range 100 {
			b.PutSealed(store.Task, key, 1, payload)
			b.Put(store.Ready, key, nil)
			b.Delete(store.Ready, key)
		}
		for i := range b.Len() {
			op := b.At(i)
			if op.Keyspace == store.Task {
				_, _, _ = store.Open(op.Keyspace, op.Key, op.Value)
			}
		}
	})
	if allocs > 0 {
		t.Errorf("a batch that is used again makes %v allocations, want 0", allocs)
	}
}

// A batch returns its changes in order, counts the bytes of their keys and values, and is empty
// after Reset.
func TestBatch(t *testing.T) {
	var b store.Batch
	b.Put(store.Task, []byte("a"), []byte("value"))
	b.Delete(store.Lease, []byte("b"))
	b.PutSealed(store.Spec, []byte("c"), 2, []byte("payload"))
	want := []store.Op{
		{Keyspace: store.Task, Key: []byte("a"), Value: []byte("value")},
		{Keyspace: store.Lease, Key: []byte("b"), Delete: true},
		{Keyspace: store.Spec, Key: []byte("c"), Value: storetest.Seal(store.Spec, []byte("c"), 2, []byte("payload"))},
	}
	if b.Len() != len(want) || b.Bytes() != 6+1+1+store.SealSize+7 {
		t.Fatalf("%d changes of %d bytes, want %d of %d", b.Len(), b.Bytes(), len(want), 6+1+1+store.SealSize+7)
	}
	for i, op := range want {
		got := b.At(i)
		if got.Keyspace != op.Keyspace || got.Delete != op.Delete || !bytes.Equal(got.Key, op.Key) || !bytes.Equal(got.Value, op.Value) {
			t.Errorf("change %d = %+v, want %+v", i, got, op)
		}
	}
	if b.Reset(); b.Len() != 0 || b.Bytes() != 0 {
		t.Errorf("after Reset: %d changes of %d bytes, want none", b.Len(), b.Bytes())
	}
}
