package boltstore

import (
	"encoding/binary"
	"errors"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// sums is a checksum over each keyspace, kept up to date by every commit: the sum of a hash of each of its records. A seal shows that a record
// was written as it is; the sums show that it is the newest one, and that none is missing. They notice a disk that lost one page of a commit and
// kept the others, where an older version of the page is as good as the lost one by all that it says of itself.
type sums [store.NumKeyspaces]uint64

// The sums lie in a bucket of their own, which is so small that bbolt keeps it in the root page: no commit writes a page more for it. With them
// lies the number of the transaction that wrote them, which is that of the meta page, or else the root page itself is an older one.
const (
	sumsBucket = "sums"
	sumsKey    = "all"
	sumsSince  = 4 // the format that came with them
)

var errSums = errors.New("its sums cannot be read")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashOf is the hash of one record: over its key and the seal of its value, which is a checksum of the rest.
func hashOf(key, value []byte) uint64 {
	sum := crc32.Update(0, castagnoli, key)
	return spread(crc32.Update(sum, castagnoli, value[:min(len(value), store.SealSize)]))
}

// spread makes 64 bits of 32, one to one, so that sums of them seldom agree by chance: the end of splitmix64.
func spread(n uint32) uint64 {
	h := (uint64(n) + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (s *sums) encode(tx uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, 8+8*len(s)), tx)
	for _, sum := range s {
		b = binary.BigEndian.AppendUint64(b, sum)
	}
	return b
}

// decodeSums reads what encode wrote, also where it knew fewer keyspaces.
func decodeSums(b []byte) (s sums, tx uint64, ok bool) {
	if len(b) < 8 || len(b)%8 != 0 || len(b) > 8+8*len(s) {
		return s, 0, false
	}
	for i := range len(b)/8 - 1 {
		s[i] = binary.BigEndian.Uint64(b[8+8*i:])
	}
	return s, binary.BigEndian.Uint64(b), true
}

// readSums returns the sums as the last commit left them; it computes them for a store that has none yet.
func readSums(tx *bbolt.Tx) (*sums, error) {
	if bucket := tx.Bucket([]byte(sumsBucket)); bucket != nil {
		s, _, ok := decodeSums(bucket.Get([]byte(sumsKey)))
		if !ok {
			return nil, errSums
		}
		return &s, nil
	}
	return computeSums(tx)
}

func computeSums(tx *bbolt.Tx) (*sums, error) {
	s := new(sums)
	for ks := range s {
		bucket := tx.Bucket([]byte(store.Keyspace(ks).String()))
		if bucket == nil {
			continue
		}
		err := bucket.ForEach(func(key, value []byte) error {
			s[ks] += hashOf(key, value)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return s, nil
}

// put keeps the sums in the transaction that they are right for.
func (s *sums) put(tx *bbolt.Tx) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(sumsBucket))
	if err != nil {
		return err
	}
	return bucket.Put([]byte(sumsKey), s.encode(uint64(tx.ID())))
}

// requireSums refuses a store that has no sums although its format has them.
func (s *Store) requireSums() error {
	return s.View(func(r store.Reader) error {
		format, err := store.ReadFormat(r)
		if err != nil || format < sumsSince || r.(*reader).tx.Bucket([]byte(sumsBucket)) != nil {
			return err
		}
		return &store.DamagedError{Path: s.path, Problem: errSums.Error()}
	})
}
