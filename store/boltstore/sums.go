package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// sums holds a checksum for each keyspace: the sum of the hashes of all its records. Every commit
// updates them. The seal of a record shows that the record was written like this; the sums show
// that it is the newest version and that no record is missing. So the sums detect a disk that lost
// one page of a commit and kept the others. The older version of that page is valid by itself, so
// no other check detects it.
type sums [store.NumKeyspaces]uint64

// The sums are in a bucket of their own, which is so small that bbolt keeps it in the root page. So
// the sums cost no commit an additional page. Beside them is the number of the transaction that
// wrote them. If it differs from the number in the meta page, the root page itself is an older
// version. Before both is a checksum of them: a loss of power may leave some sectors of an older
// root page, and without the checksum an old sum of a keyspace would match the old pages of that
// keyspace.
const (
	sumsBucket   = "sums"
	sumsKey      = "all"
	sumsSealSize = 4 // of the checksum, in bytes
	sumsSince    = 4 // the first format with sums
	sealSince    = 7 // the first format in which the sums have a checksum
)

var errSums = errors.New("its sums cannot be read")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// hashOf returns the hash of a record. It covers the key and the seal of the value; the seal is a
// checksum of the rest of the value.
func hashOf(key, value []byte) uint64 {
	sum := crc32.Update(0, castagnoli, key)
	return mix(crc32.Update(sum, castagnoli, value[:min(len(value), store.SealSize)]))
}

// mix maps 32 bits to 64 bits, one to one, so that two sums of such numbers are hardly ever equal
// by chance. It is the last step of splitmix64.
func mix(n uint32) uint64 {
	h := (uint64(n) + 0x9e3779b97f4a7c15) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func (s *sums) encode(tx uint64) []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, sumsSealSize, sumsSealSize+8+8*len(s)), tx)
	for _, sum := range s {
		b = binary.BigEndian.AppendUint64(b, sum)
	}
	sealSums(b)
	return b
}

// sealSums fills in the checksum of encoded sums.
func sealSums(b []byte) { binary.BigEndian.PutUint32(b, crc32.Checksum(b[sumsSealSize:], castagnoli)) }

// storedSums are the sums as a commit wrote them.
type storedSums struct {
	sums
	tx     uint64 // the number of the transaction
	sealed bool   // they have a checksum
}

// decodeSums reads what encode wrote, even in an older version with fewer keyspaces. Versions
// before format 7 wrote no checksum.
func decodeSums(b []byte) (s storedSums, ok bool) {
	if s.sealed = len(b)%8 == sumsSealSize; s.sealed {
		if binary.BigEndian.Uint32(b) != crc32.Checksum(b[sumsSealSize:], castagnoli) {
			return s, false
		}
		b = b[sumsSealSize:]
	}
	if len(b) < 8 || len(b)%8 != 0 || len(b) > 8+8*len(s.sums) {
		return s, false
	}
	s.tx = binary.BigEndian.Uint64(b)
	for i := range len(b)/8 - 1 {
		s.sums[i] = binary.BigEndian.Uint64(b[8+8*i:])
	}
	return s, true
}

// renumbered returns encoded sums with another number of the transaction, in the same form.
func renumbered(b []byte, tx uint64) (_ []byte, ok bool) {
	s, ok := decodeSums(b)
	switch b = bytes.Clone(b); {
	case !ok:
		return nil, false
	case s.sealed:
		binary.BigEndian.PutUint64(b[sumsSealSize:], tx)
		sealSums(b)
	default:
		binary.BigEndian.PutUint64(b, tx)
	}
	return b, true
}

// decodeSumsOf reads the sums of a store of that format. It refuses sums that lack the checksum of
// their format.
func decodeSumsOf(format uint32, b []byte) (s storedSums, ok bool) {
	s, ok = decodeSums(b)
	return s, ok && (s.sealed || format < sealSince)
}

// readSums returns the sums that the last commit wrote. If the store has no sums yet, readSums
// computes them.
func readSums(tx *bbolt.Tx) (*sums, error) {
	if bucket := tx.Bucket([]byte(sumsBucket)); bucket != nil {
		s, ok := decodeSums(bucket.Get([]byte(sumsKey)))
		if !ok {
			return nil, errSums
		}
		return &s.sums, nil
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

// put writes the sums in tx, whose records they are the sums of.
func (s *sums) put(tx *bbolt.Tx) error {
	bucket, err := tx.CreateBucketIfNotExists([]byte(sumsBucket))
	if err != nil {
		return err
	}
	return bucket.Put([]byte(sumsKey), s.encode(uint64(tx.ID())))
}

// requireSums returns a *store.DamagedError if the format of the store requires sums and the store
// has none that can be read: no commit could update them.
func (s *Store) requireSums() error {
	return s.View(func(r store.Reader) error {
		format, err := store.ReadFormat(r)
		if err != nil || format < sumsSince {
			return err
		}
		if bucket := r.(*reader).tx.Bucket([]byte(sumsBucket)); bucket != nil {
			if _, ok := decodeSumsOf(format, bucket.Get([]byte(sumsKey))); ok {
				return nil
			}
		}
		return &store.DamagedError{Path: s.path, Problem: errSums.Error()}
	})
}
