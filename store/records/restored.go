package records

import (
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
)

// MakeIndependent adds to b what makes a copy of a store independent of the original. It sets a new
// epoch, so that the first start ends the leases of the copy (A11). In each space, it skips the
// sequences that the original may have used after the copy was made. It marks all rate limits as
// used up, because nobody knows what was granted since (T13). The position becomes the last one of
// the lineage: no standby can go on from it, and those that have later ones have what the copy
// lacks. MakeIndependent returns the new epoch. A store that was never served has no epoch; then
// MakeIndependent adds nothing and returns 0.
func MakeIndependent(b *store.Batch, r store.Reader, now lease.Wall) (epoch uint32, err error) {
	identity, found, err := ReadIdentity(r)
	if !found {
		return 0, err
	}
	if err := endLineage(b, r); err != nil {
		return 0, err
	}
	identity.Epoch = lease.RestoredEpoch(identity.Epoch, now)
	identity.KnownFrom = identity.Epoch
	PutIdentity(b, identity)
	serving, err := ServingClock(r)
	if err != nil {
		return 0, err
	}
	err = Spaces(r, func(s Space) error {
		// if they are the same, the copy was made independent before, and has given out nothing
		// since: it still lacks what it lacked then
		if s.NextSeq != s.LostTo {
			s.LostFrom = s.NextSeq
		}
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

// endLineage moves the position, if there is one, to the lineage.
func endLineage(b *store.Batch, r store.Reader) error {
	at, _, err := PositionOf(r)
	if err != nil || at == (Position{}) {
		return err
	}
	lineage, err := Lineage(r)
	if err != nil {
		return err
	}
	PutLineage(b, Descend(lineage, at))
	b.Delete(store.Meta, []byte(store.MetaPosition))
	return nil
}
