package boltstore

import (
	"fmt"
	"strings"

	"github.com/lessor-dev/lessor/store"
)

// tally computes the sums of the records that the checker reads, and keeps the sums that the file
// itself contains.
type tally struct {
	sums   sums   // computed
	stored []byte // as the last commit wrote them; nil if the store has no sums
	// broken counts the values that do not match their seals. The sums do not show them: they cover
	// only the seal of a value, and the rest may be on another page or sector. Reading such a value
	// returns an error. The check only needs to know whether the newest commit broke it, see
	// checkData.
	broken int
	format []byte // the record that contains the format of the store

	sum    *uint64        // sum of the bucket under check; nil if the bucket is not a keyspace
	ks     store.Keyspace // of the bucket under check
	inSums bool           // the bucket under check holds the sums
}

// enterBucket begins a bucket.
func (t *tally) enterBucket(bucket string) {
	t.sum, t.inSums = nil, bucket == sumsBucket
	for ks := range t.sums {
		if store.Keyspace(ks).String() == bucket {
			t.sum, t.ks = &t.sums[ks], store.Keyspace(ks)
		}
	}
}

// add adds a record of the bucket under check.
func (t *tally) add(key, value []byte) {
	switch {
	case t.sum != nil:
		*t.sum += hashOf(key, value)
		if t.ks == store.Meta && string(key) == store.MetaFormat {
			t.format = value
		}
		if len(value) > 0 && !store.Sealed(t.ks, key, value) {
			t.broken++
		}
	case t.inSums && string(key) == sumsKey:
		t.stored = value
	}
}

// newerFormat returns a *store.NewerFormatError if the walk has read a format that this program
// does not know. It takes precedence over other problems: what seems wrong may be right in that
// format.
func (t *tally) newerFormat() error {
	have, err := store.ParseFormat(t.format)
	if known := store.Current().Format(); err == nil && have > known {
		return &store.NewerFormatError{Have: have, Want: known}
	}
	return nil
}

// compare compares the computed sums with those in the file, and returns an error that says what
// was lost. The sums in the file are those of transaction tx, the newest. In a copy that Snapshot
// wrote they may be those of transaction tx+1, because its older meta page has the root of the
// newest one. In other files this cannot be, because no transaction overwrites pages of the one
// before.
func (t *tally) compare(tx uint64) error {
	if t.stored == nil {
		return nil
	}
	format, err := store.ParseFormat(t.format)
	if err != nil {
		format = store.Current().Format()
	}
	want, ok := decodeSumsOf(format, t.stored)
	switch {
	case !ok:
		return errSums
	case want.tx != tx && want.tx != tx+1:
		return fmt.Errorf("its newest commit is number %d, but its records are of number %d: the disk lost data that was written", tx, want.tx)
	}
	var differ []string
	for ks, sum := range want.sums {
		if sum != t.sums[ks] {
			differ = append(differ, store.Keyspace(ks).String())
		}
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("the records of %s are not those of its newest commit: some are missing, or older ones are in their place", strings.Join(differ, ", "))
}
