package boltstore

import (
	"bytes"
	"slices"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// plan is the order in which a batch is applied: by keyspace, so that each bucket is fetched once; by key, which bbolt
// likes best (DESIGN: see the benchmark); and of several changes to one key only the last. Its memory is kept from commit to commit.
type plan struct {
	byKeyspace [store.NumKeyspaces][]store.Op
}

func (p *plan) apply(tx *bbolt.Tx, b *store.Batch) error {
	defer p.reset()
	for i := range b.Len() {
		op := b.At(i)
		p.byKeyspace[op.Keyspace] = append(p.byKeyspace[op.Keyspace], op)
	}
	for ks, ops := range p.byKeyspace {
		if len(ops) == 0 {
			continue
		}
		if err := applyTo(tx, store.Keyspace(ks), inOrder(ops)); err != nil {
			return err
		}
	}
	return nil
}

// reset lets go of the batch, whose memory the caller will change.
func (p *plan) reset() {
	for ks, ops := range p.byKeyspace {
		clear(ops)
		p.byKeyspace[ks] = ops[:0]
	}
}

// inOrder sorts ops by key and leaves the last op of each key.
func inOrder(ops []store.Op) []store.Op {
	byKey := func(a, b store.Op) int { return bytes.Compare(a.Key, b.Key) }
	if !slices.IsSortedFunc(ops, byKey) {
		slices.SortStableFunc(ops, byKey)
	}
	kept := ops[:0]
	for i, op := range ops {
		if i+1 < len(ops) && bytes.Equal(op.Key, ops[i+1].Key) {
			continue
		}
		kept = append(kept, op)
	}
	return kept
}

func applyTo(tx *bbolt.Tx, ks store.Keyspace, ops []store.Op) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(ks.String()))
	if err != nil {
		return err
	}
	if appended(ks) {
		bucket.FillPercent = 1
	}
	for i := range ops {
		if err := applyOp(bucket, &ops[i]); err != nil {
			return err
		}
	}
	return nil
}

func applyOp(bucket *bbolt.Bucket, op *store.Op) error {
	if op.Delete {
		return bucket.Delete(op.Key)
	}
	return bucket.Put(op.Key, op.Value)
}

// appended tells whether the keys of ks come in rising order, so that a page that is full will not be inserted into.
func appended(ks store.Keyspace) bool {
	switch ks {
	case store.Spec, store.Task, store.Ledger, store.Output, store.Failure, store.Checkpoint, store.Ready:
		return true
	}
	return false
}
