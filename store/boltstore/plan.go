package boltstore

import (
	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// plan groups the changes of a batch by keyspace, so that each bucket is fetched once. Within a keyspace they keep their
// order: sorting them by key was measured to cost as much as it saves, whatever order they come in. The memory is kept
// from commit to commit.
type plan struct {
	byKeyspace [store.NumKeyspaces][]int // indexes into the batch
}

func (p *plan) apply(to *writers, b *store.Batch) error {
	p.group(b)
	for ks, changes := range p.byKeyspace {
		if len(changes) == 0 {
			continue
		}
		w, err := to.open(store.Keyspace(ks))
		if err != nil {
			return err
		}
		for _, i := range changes {
			if err := w.apply(b.At(i)); err != nil {
				return err
			}
		}
	}
	return nil
}

func (p *plan) group(b *store.Batch) {
	for ks, changes := range p.byKeyspace {
		p.byKeyspace[ks] = changes[:0]
	}
	for i := range b.Len() {
		ks := b.At(i).Keyspace
		p.byKeyspace[ks] = append(p.byKeyspace[ks], i)
	}
}

func openBucket(tx *bbolt.Tx, ks store.Keyspace) (*bbolt.Bucket, error) {
	bucket, err := tx.CreateBucketIfNotExists([]byte(ks.String()))
	if err == nil {
		bucket.FillPercent = fillOf(ks)
	}
	return bucket, err
}

// fillOf returns how full the pages of ks become before they are split. If its keys come in rising order, more or less, pages that are filled to the
// end halve the file; if they come at random, full pages would have to be split again.
//
// The records of the ledger are small, and come when their tasks are deleted: nearly, but not quite, in the order of their keys. In pages that are filled
// to the end, those few that come late would each split one, for two records.
func fillOf(ks store.Keyspace) float64 {
	switch ks {
	case store.Spec, store.Task, store.Lease, store.Ready, store.Timer,
		store.Output, store.Failure, store.Checkpoint, store.Discarded, store.Parked, store.Feedback:
		return 1
	case store.Ledger:
		return 0.7
	}
	return bbolt.DefaultFillPercent
}
