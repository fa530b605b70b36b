package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// Restored adds to b what makes a copy of a store one of its own: a new epoch, by which the first start ends the leases of the copy (A11); sequences that
// were not used after the copy was made; and rate limits that are used up, since nobody knows what was granted after that (T13). It returns the epoch, 0
// where there is none yet because the store was never served.
func Restored(b *store.Batch, r store.Reader, now lease.Wall) (epoch uint32, err error) {
	identity, found, err := ReadIdentity(r)
	if !found {
		return 0, err
	}
	identity.Epoch = lease.RestoredEpoch(identity.Epoch, now)
	PutIdentity(b, identity)
	serving, err := ServingClock(r)
	if err != nil {
		return 0, err
	}
	err = Spaces(r, func(s Space) error {
		s.LostFrom = s.NextSeq
		s.NextSeq = lease.FirstSeq(identity.Epoch, s.NextSeq)
		s.LostTo = s.NextSeq
		PutSpace(b, s)
		return nil
	})
	if err != nil {
		return 0, err
	}
	err = Queues(r, func(q Queue) error {
		if q.Bucket != nil {
			*q.Bucket = lease.UsedUp(serving)
			PutQueue(b, q)
		}
		return nil
	})
	return identity.Epoch, err
}
