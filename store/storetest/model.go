package storetest

import (
	"bytes"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/store"
)

// model is the simplest possible store: a map for each keyspace.
type model [store.NumKeyspaces]map[string]string

func (m *model) apply(b *store.Batch) {
	for i := range b.Len() {
		op := b.At(i)
		if m[op.Keyspace] == nil {
			m[op.Keyspace] = make(map[string]string)
		}
		if op.Delete {
			delete(m[op.Keyspace], string(op.Key))
		} else {
			m[op.Keyspace][string(op.Key)] = string(op.Value)
		}
	}
}

// scan returns what the function scan returns for a store with the same contents.
func (m *model) scan(ks store.Keyspace, from, to string) string {
	var entries bytes.Buffer
	for _, key := range slices.Sorted(maps.Keys(m[ks])) {
		if key >= from && key < to {
			entries.WriteString(key + "=" + m[ks][key] + " ")
		}
	}
	return entries.String()
}

// testModel applies the same random batches to a store and a model, and compares them after each by
// random scans and reads. Now and then it reopens the store.
func (be Backend) testModel(t *testing.T) {
	const steps = 150
	seed := rand.Uint64()
	rnd := rand.New(rand.NewPCG(seed, 0))
	defer func() {
		if t.Failed() {
			t.Logf("seed %d", seed)
		}
	}()
	s := be.New(t)
	var m model
	var b store.Batch
	for step := range steps {
		b.Reset()
		randomBatch(rnd, &b)
		if err := s.Commit(t.Context(), &b); err != nil {
			t.Fatalf("step %d: Commit: %v", step, err)
		}
		m.apply(&b)
		if rnd.IntN(20) == 0 {
			s = be.Reopen(t, s)
		}
		compare(t, rnd, s, &m)
		if t.Failed() {
			t.Fatalf("the store differs from the model after step %d", step)
		}
	}
}

// modelKeyspaces are the keyspaces that testModel uses. Package boltstore fills the pages of the
// last one less than those of the others.
var modelKeyspaces = []store.Keyspace{store.Spec, store.Task, store.Ready, store.Idempotency}

const modelKeys = 400

func randomKey(rnd *rand.Rand) string { return fmt.Sprintf("%03d", rnd.IntN(modelKeys)) }

// randomBatch fills b with changes that mostly add records or mostly delete some, so that pages
// split and merge.
func randomBatch(rnd *rand.Rand, b *store.Batch) {
	deletes := 20 + 60*rnd.IntN(2) // percent
	for range rnd.IntN(200) {
		ks := modelKeyspaces[rnd.IntN(len(modelKeyspaces))]
		key := []byte(randomKey(rnd))
		if rnd.IntN(100) < deletes {
			b.Delete(ks, key)
			continue
		}
		b.Put(ks, key, bytes.Repeat([]byte{byte('a' + rnd.IntN(26))}, rnd.IntN(300)))
	}
}

func compare(t *testing.T, rnd *rand.Rand, s store.Store, m *model) {
	t.Helper()
	for _, ks := range modelKeyspaces {
		from, to := randomKey(rnd), randomKey(rnd)
		if got, want := scan(t, s, ks, []byte(from), []byte(to)), m.scan(ks, from, to); got != want {
			t.Errorf("scan %v [%s, %s) =\n%s\nwant\n%s", ks, from, to, got, want)
		}
		key := randomKey(rnd)
		want, exists := m[ks][key]
		if got, found := get(t, s, ks, key); got != want || found != exists {
			t.Errorf("get %v %s = %q %v, want %q %v", ks, key, got, found, want, exists)
		}
	}
}
