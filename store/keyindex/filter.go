package keyindex

import (
	"encoding/binary"
	"math/bits"

	"github.com/lessor-dev/lessor/store"
)

// filter says which hashes a segment may have: a Bloom filter whose bits for one hash are in one
// cache line. It says yes to about one in a thousand of the hashes that the segment does not have,
// so that a look-up that asks a hundred of them seldom reads a segment in vain.
type filter []line

// line is a cache line.
type line [8]uint64

// Sizes of a filter.
const (
	bitsOfHash = 16 // bits of the filter for each hash that it has
	bitsSet    = 7  // bits that are set for a hash, each chosen by 9 bits of the hash
)

// newFilter returns a filter that has no hashes yet, for n.
func newFilter(n int) filter { return make(filter, 1+n*bitsOfHash/512) }

// at returns the line of a hash, and the numbers of its bits in the line, 9 bits each.
func (f filter) at(hash store.KeyHash) (of *line, numbers uint64) {
	number, _ := bits.Mul64(binary.BigEndian.Uint64(hash[:]), uint64(len(f))) // hashes are evenly spread
	return &f[number], binary.BigEndian.Uint64(hash[8:])
}

func (f filter) add(hash store.KeyHash) {
	l, numbers := f.at(hash)
	for range bitsSet {
		l[numbers>>6&7] |= 1 << (numbers & 63)
		numbers >>= 9
	}
}

// has reports whether the hash may have been added. A nil filter may have any.
func (f filter) has(hash store.KeyHash) bool {
	if f == nil {
		return true
	}
	l, numbers := f.at(hash)
	for range bitsSet {
		if l[numbers>>6&7]&(1<<(numbers&63)) == 0 {
			return false
		}
		numbers >>= 9
	}
	return true
}
