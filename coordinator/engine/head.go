package engine

import "github.com/tidwall/btree"

// head is the beginning of an ordered index that may be too long for memory. It holds every entry up to a bound, and knows whether
// there are more behind it.
type head[K any] struct {
	entries *btree.BTreeG[K]
	less    func(a, b K) bool
	max     int
	bound   K    // every entry of the index that is not greater is in memory
	more    bool // there may be entries beyond bound, on disk only
}

func newHead[K any](max int, less func(a, b K) bool) *head[K] {
	return &head[K]{entries: btree.NewBTreeGOptions(less, btree.Options{NoLocks: true}), less: less, max: max}
}

// unread makes an empty head of an index of which nothing is in memory; least is not greater than any entry.
func (h *head[K]) unread(least K) { h.bound, h.more = least, true }

// insert takes a new entry of the index. One beyond the bound stays on disk: far.
func (h *head[K]) insert(k K) (far bool) {
	if h.beyond(k) {
		return true
	}
	h.entries.Set(k)
	for h.entries.Len() > h.max {
		h.entries.PopMax()
		h.bound, _ = h.entries.Max()
		h.more = true
	}
	return h.beyond(k)
}

// beyond reports whether an entry is not among those in memory.
func (h *head[K]) beyond(k K) bool { return h.more && h.less(h.bound, k) }

func (h *head[K]) remove(k K) { h.entries.Delete(k) }

// first returns the smallest entry in memory. Where dry is true there may be smaller ones than none: the head must be refilled.
func (h *head[K]) first() (K, bool) { return h.entries.Min() }

// dry reports whether the next entry, if there is one, is on disk only.
func (h *head[K]) dry() bool { return h.more && h.entries.Len() == 0 }

// empty reports whether the whole index is empty.
func (h *head[K]) empty() bool { return !h.more && h.entries.Len() == 0 }

// refill takes the entries that follow bound on disk, in order; more tells whether there are others behind them.
func (h *head[K]) refill(keys []K, more bool) {
	for _, k := range keys {
		h.entries.Set(k)
	}
	h.more = more
	if n := len(keys); n > 0 {
		h.bound = keys[n-1]
	}
}
