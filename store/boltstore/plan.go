package boltstore

import (
	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// plan groups the changes of a batch by keyspace, so that each bucket is fetched once. Within a
// keyspace, the changes keep their order: measurements showed that sorting them by key costs as
// much time as it saves, whatever their order was. Each commit reuses the memory of the plan.
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

// fillOf returns how full a page of ks may be, as a fraction of its size, when bbolt splits it. If
// keys are added more or less in rising order, full pages halve the size of the file. If keys are
// added in random order, full pages would soon have to be split again.
//
// The records of the ledger are small. They are written when their tasks are deleted, which is
// almost, but not quite, the order of their keys. With full pages, each of the few late records
// would split a page and leave a new page with two records. Runs, too, grow in rising order, but in
// many places at once: measured with runs of 3 to 10,000 tasks, a task takes 52 to 59 bytes at 0.7,
// up to 73 at 0.5, and 37 to 326 at 1.
func fillOf(ks store.Keyspace) float64 {
	switch ks {
	case store.Spec, store.Task, store.Lease, store.Ready, store.Timer,
		store.Output, store.Failure, store.Checkpoint, store.Discarded, store.Parked, store.Feedback,
		store.KeyLog, store.KeySegment, store.TimerLog:
		return 1
	case store.Ledger, store.Run:
		return 0.7
	}
	return bbolt.DefaultFillPercent
}
