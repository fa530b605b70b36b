package session

import (
	"hash/maphash"
	"slices"
)

// maxRecent is how many frames a session remembers (W6). Refused ones are not among them.
const maxRecent = 1024

// recent remembers the newest frames by id and corr, so that a frame that is sent twice has an
// effect only once (W6), also with another seq or with none.
type recent struct {
	hashes []uint64 // a ring once it is full
	oldest int
}

var recentSeed = maphash.MakeSeed()

// sumOf returns a hash that identifies a frame. Its seed is random, so a worker cannot make two
// frames with the same hash on purpose.
func sumOf(id, corr string) uint64 { return maphash.Comparable(recentSeed, [2]string{id, corr}) }

func (r *recent) has(sum uint64) bool { return slices.Contains(r.hashes, sum) }

func (r *recent) add(sum uint64) {
	if len(r.hashes) < maxRecent {
		r.hashes = append(r.hashes, sum)
		return
	}
	r.hashes[r.oldest] = sum
	r.oldest = (r.oldest + 1) % maxRecent
}
