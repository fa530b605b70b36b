package engine

import "github.com/lessor-dev/lessor/internal/ordered"

// head is the beginning of an ordered index that may be too long for memory. It holds every entry
// of the index up to a bound, and knows whether there may be more entries beyond the bound, which
// are on disk only.
type head[K any] struct {
	entries ordered.Set[K]
	less    func(a, b K) bool
	max     int
	// bound: every entry of the index that is not greater is in entries. It means nothing unless
	// more is set.
	bound K
	more  bool // there may be entries beyond bound
	// changedIn is the last batch that changes the index. A scan on disk must wait for it; see
	// pipeline.flushTo.
	changedIn batchNumber
}

func newHead[K any](max int, less func(a, b K) bool) *head[K] {
	return &head[K]{entries: ordered.NewSet(less), less: less, max: max}
}

// unread marks an empty head: the whole index is on disk only. least must not be greater than any
// entry.
func (h *head[K]) unread(least K) { h.bound, h.more = least, true }

// insert adds a new entry of the index. If the entry lies beyond the bound it stays on disk, and
// onDisk is true.
func (h *head[K]) insert(k K) (onDisk bool) {
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

// beyond reports whether an entry lies beyond the bound, so that it is on disk only.
func (h *head[K]) beyond(k K) bool { return h.more && h.less(h.bound, k) }

func (h *head[K]) remove(k K) { h.entries.Delete(k) }

// first returns the smallest entry of the index; ok is false if no entry is in memory. If the head
// is dry, there may still be entries on disk: the caller must then refill the head and call first
// again.
func (h *head[K]) first() (k K, ok bool) { return h.entries.Min() }

// dry reports whether nothing is in memory and there may be entries on disk.
func (h *head[K]) dry() bool { return h.more && h.entries.Len() == 0 }

// empty reports whether the whole index is empty.
func (h *head[K]) empty() bool { return !h.more && h.entries.Len() == 0 }

// refill adds the entries that follow bound on disk, in order; more says whether there are more
// entries after them.
func (h *head[K]) refill(keys []K, more bool) {
	for _, k := range keys {
		h.entries.Set(k)
	}
	h.more = more
	if n := len(keys); n > 0 {
		h.bound = keys[n-1]
	}
}
