package engine

// lanes holds what waits, a lane for each key, and gives it out lane by lane in turn: whoever has much waiting delays another's one item by
// one turn (T12). Within a lane the order stays.
type lanes[V any] struct {
	byKey map[string]*lane[V]
	ring  []*lane[V] // those that hold something
	next  int        // of ring: whose turn it is
	len   int        // of all items
	spare *lane[V]   // the last one that became empty, for its memory
}

type lane[V any] struct {
	key   string
	items []V
	first int // of items that is still there
}

func newLanes[V any]() *lanes[V] { return &lanes[V]{byKey: map[string]*lane[V]{}} }

// waiting is how many items a lane holds.
func (l *lanes[V]) waiting(key string) int {
	in := l.byKey[key]
	if in == nil {
		return 0
	}
	return len(in.items) - in.first
}

func (l *lanes[V]) push(key string, v V) {
	in := l.byKey[key]
	if in == nil {
		in = l.open(key)
	}
	in.items = append(in.items, v)
	l.len++
}

func (l *lanes[V]) open(key string) *lane[V] {
	in := l.spare
	if in == nil {
		in = &lane[V]{}
	}
	l.spare, in.key = nil, key
	l.byKey[key] = in
	l.ring = append(l.ring, in)
	return in
}

// pop takes the next item of the lane whose turn it is.
func (l *lanes[V]) pop() (v V, ok bool) { return l.popBy(nil) }

// popBy takes of that lane the least item by compare, the first of those that are alike; nil: the first of all.
func (l *lanes[V]) popBy(compare func(a, b V) int) (v V, ok bool) {
	if l.len == 0 {
		return v, false
	}
	if l.next >= len(l.ring) {
		l.next = 0
	}
	in := l.ring[l.next]
	if compare != nil {
		in.advance(compare)
	}
	v = in.shift()
	l.len--
	if len(in.items) > 0 {
		l.next++
		return v, true
	}
	delete(l.byKey, in.key)
	l.ring = append(l.ring[:l.next], l.ring[l.next+1:]...)
	l.spare = in
	return v, true
}

// advance moves the least item to the first place. The others keep their order.
func (in *lane[V]) advance(compare func(a, b V) int) {
	items, best := in.items[in.first:], 0
	for i := range items {
		if compare(items[i], items[best]) < 0 {
			best = i
		}
	}
	v := items[best]
	copy(items[1:], items[:best])
	items[0] = v
}

// shift takes the first item. The memory of those before it is used again once they are the larger part.
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
