package boltstore

import (
	"bytes"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// reader reads one transaction. It caches each bucket that it has used, because finding a bucket is
// a search of its own. For Get it also caches a cursor of each bucket, because a new cursor
// allocates memory.
type reader struct {
	tx      *bbolt.Tx
	buckets [store.NumKeyspaces]*bbolt.Bucket
	cursors [store.NumKeyspaces]*bbolt.Cursor
}

var _ store.Summer = (*reader)(nil)

// bucket returns nil for a keyspace that was never written.
func (r *reader) bucket(ks store.Keyspace) *bbolt.Bucket {
	if r.buckets[ks] == nil {
		r.buckets[ks] = r.tx.Bucket([]byte(ks.String()))
	}
	return r.buckets[ks]
}

// Get implements store.Reader.
func (r *reader) Get(ks store.Keyspace, key []byte) []byte {
	if r.cursors[ks] == nil {
		bucket := r.bucket(ks)
		if bucket == nil {
			return nil
		}
		r.cursors[ks] = bucket.Cursor()
	}
	if found, value := r.cursors[ks].Seek(key); bytes.Equal(found, key) {
		return value
	}
	return nil
}

// Scan implements store.Reader.
func (r *reader) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	bucket := r.bucket(ks)
	if bucket == nil {
		return nil
	}
	cursor := bucket.Cursor()
	for key, value := cursor.Seek(from); key != nil; key, value = cursor.Next() {
		if to != nil && bytes.Compare(key, to) >= 0 || !fn(key, value) {
			return nil
		}
	}
	return nil
}

// ScanBack implements store.Reader.
func (r *reader) ScanBack(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	bucket := r.bucket(ks)
	if bucket == nil {
		return nil
	}
	cursor := bucket.Cursor()
	for key, value := lastBefore(cursor, to); key != nil && bytes.Compare(key, from) >= 0; key, value = cursor.Prev() {
		if !fn(key, value) {
			return nil
		}
	}
	return nil
}

// lastBefore moves a cursor to the last key before to, of all keys if to is nil.
func lastBefore(cursor *bbolt.Cursor, to []byte) (key, value []byte) {
	if to != nil {
		if behind, _ := cursor.Seek(to); behind != nil {
			return cursor.Prev()
		}
	}
	return cursor.Last()
}

// Sums implements store.Summer. It reads the sums that the last commit wrote.
func (r *reader) Sums() ([store.NumKeyspaces]uint64, error) {
	s, err := readSums(r.tx)
	if err != nil {
		return [store.NumKeyspaces]uint64{}, err
	}
	return *s, nil
}
