package boltstore

import (
	"fmt"
	"strings"

	"github.com/lessor-dev/lessor/store"
)

// tally computes the sums of a file anew while its pages are checked, and finds what it says they are.
type tally struct {
	sums sums
	kept []byte // nil in a store from before there were any
	// broken counts values that are not what was sealed: the sums have the seal alone, which may be on another page or sector than the rest. Who reads
	// such a value is told; here it matters in the newest commit only, see checkData.
	broken int
	format []byte // the record that tells the format of the store

	in   *uint64 // sum of the bucket under check; nil of what has none
	ks   store.Keyspace
	here bool // it is the bucket of the sums
}

// enter begins a bucket of the root.
func (t *tally) enter(bucket string) {
	t.in, t.here = nil, bucket == sumsBucket
	for ks := range t.sums {
		if store.Keyspace(ks).String() == bucket {
			t.in, t.ks = &t.sums[ks], store.Keyspace(ks)
		}
	}
}

func (t *tally) add(key, value []byte) {
	switch {
	case t.in != nil:
		*t.in += hashOf(key, value)
		if t.ks == store.Meta && string(key) == store.MetaFormat {
			t.format = value
		}
		if len(value) > 0 && !store.Sealed(t.ks, key, value) {
			t.broken++
		}
	case t.here && string(key) == sumsKey:
		t.kept = value
	}
}

// newer is the error of a store of a format that this program does not know, if the walk came as far as to read that. What seems wrong with one may be right by the rules of
// its format: that is for a program to say that knows them.
func (t *tally) newer() error {
	have, err := store.ParseFormat(t.format)
	if known := store.Current().Format(); err == nil && have > known {
		return &store.NewerFormatError{Have: have, Want: known}
	}
	return nil
}

// compare tells what was lost since transaction tx, the newest, wrote the sums. In a copy that Snapshot wrote, the older meta page has the root of the newest one, and the sums
// are those of the transaction after it. They are nowhere else: no transaction writes to pages of the one before.
func (t *tally) compare(tx uint64) error {
	if t.kept == nil {
		return nil
	}
	want, wrote, ok := decodeSums(t.kept)
	switch {
	case !ok:
		return errSums
	case wrote != tx && wrote != tx+1:
		return fmt.Errorf("its newest commit is number %d, but its records are of number %d: the disk lost data that was written", tx, wrote)
	}
	var differ []string
	for ks := range want {
		if want[ks] != t.sums[ks] {
			differ = append(differ, store.Keyspace(ks).String())
		}
	}
	if differ == nil {
		return nil
	}
	return fmt.Errorf("the records of %s are not those of its newest commit: some are missing, or older ones are in their place", strings.Join(differ, ", "))
}
