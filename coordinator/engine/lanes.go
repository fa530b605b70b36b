package engine

import "slices"

// lanes holds items in one lane for each key. The lanes take turns (round robin), so a key with
// many items delays the single item of another key by one turn only (T12). Within a lane the items
// are ordered by less, or first in, first out.
type lanes[V any] struct {
	less  func(a, b V) bool // order within a lane; nil: first in, first out
	byKey map[string]*lane[V]
	ring  []*lane[V] // the lanes that hold something
	next  int        // index in ring of the lane whose turn it is; len(ring) means the first
	len   int        // number of items in all lanes
	spare *lane[V]   // the lane that became empty last, to use its memory again
}

type lane[V any] struct {
	key   string
	items []V
	first int // index of the first item; the items before it were taken out
}

func newLanes[V any](less func(a, b V) bool) *lanes[V] {
	return &lanes[V]{less: less, byKey: map[string]*lane[V]{}}
}

func (in *lane[V]) len() int { return len(in.items) - in.first }

func (l *lanes[V]) push(key string, v V) {
	in := l.byKey[key]
	if in == nil {
		in = l.open(key)
	}
	if l.len++; l.less != nil {
		in.pushHeap(v, l.less)
		return
	}
	in.items = append(in.items, v)
}

func (l *lanes[V]) open(key string) *lane[V] {
	in := l.spare
	if in == nil {
		in = &lane[V]{}
	}
	l.spare, in.key = nil, key
	l.byKey[key] = in
	// its turn comes after those of all other lanes: the key may have had a turn a moment ago
	l.ring = slices.Insert(l.ring, l.next, in)
	l.next++
	return in
}

// pop takes the next item of the lane whose turn it is.
func (l *lanes[V]) pop() (v V, ok bool) {
	if l.len == 0 {
		return v, false
	}
	if l.next >= len(l.ring) {
		l.next = 0
	}
	in := l.ring[l.next]
	if l.less != nil {
		v = in.popLeast(l.less)
	} else {
		v = in.shift()
	}
	l.len--
	if len(in.items) > 0 {
		l.next++
		return v, true
	}
	delete(l.byKey, in.key)
	l.ring = slices.Delete(l.ring, l.next, l.next+1)
	l.spare = in
	return v, true
}

// pushHeap puts an item into a lane that is a heap.
func (in *lane[V]) pushHeap(v V, less func(a, b V) bool) {
	in.items = append(in.items, v)
	for i := len(in.items) - 1; i > 0; {
		parent := (i - 1) / 2
		if !less(in.items[i], in.items[parent]) {
			return
		}
		in.items[i], in.items[parent] = in.items[parent], in.items[i]
		i = parent
	}
}

// popLeast takes the least item out of a lane that is a heap.
func (in *lane[V]) popLeast(less func(a, b V) bool) V {
	var zero V
	least, last := in.items[0], len(in.items)-1
	in.items[0], in.items[last] = in.items[last], zero
	in.items = in.items[:last]
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < last && less(in.items[child+1], in.items[child]) {
			child++
		}
		if child >= last || !less(in.items[child], in.items[i]) {
			return least
		}
		in.items[i], in.items[child] = in.items[child], in.items[i]
		i = child
	}
}

// shift takes the first item out. When at least half of the slice is free in front, shift moves the
// remaining items to its beginning.
func (in *lane[V]) shift() V {
	var zero V
	v := in.items[in.first]
	in.items[in.first] = zero
	if in.first++; 2*in.first >= len(in.items) {
		left := copy(in.items, in.items[in.first:])
		clear(in.items[left:])
		in.items, in.first = in.items[:left], 0
	}
	return v
}
