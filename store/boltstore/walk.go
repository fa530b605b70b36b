package boltstore

import (
	"errors"

	"github.com/lessor-dev/lessor/store"
)

// record is a record as it is in a file.
type record struct {
	ks         store.Keyspace
	key, value []byte
	sum        uint64
	sound      bool // its seal is right, or it is an index entry, which has none
}

// walk goes through the trees of a file of which some may be damaged. It visits no page twice.
type walk struct {
	meta
	data   []byte
	seen   pageSet
	unused pageSet              // pages that are known not to be in use; nil: nobody knows
	record func(record)         // called for each record, in the order of keys as far as the tree has it
	gap    func(store.Keyspace) // called where something cannot be read

	sums       []byte                   // as the last commit wrote them; nil: not found
	buckets    [store.NumKeyspaces]bool // found
	rootBroken bool                     // buckets may be missing
}

// maxDepth is more than the depth of any tree of a sound file.
const maxDepth = 40

func (w *walk) walk() {
	w.seen = newPageSet(w.pages)
	w.bucketsOf(w.root, 0)
}

// bucketsOf goes through the buckets in the root page, or in pages below it.
func (w *walk) bucketsOf(id uint64, depth int) {
	p, ok := w.open(id)
	if !ok || depth > maxDepth {
		w.rootBroken = true
		return
	}
	for i := range p.n {
		if p.branch {
			w.bucketsOf(p.child(i), depth+1)
			continue
		}
		name, value, ok := p.pair(i)
		if !ok || !w.bucketNamed(string(name), value) {
			w.rootBroken = true
		}
	}
}

// bucketNamed goes through a bucket. It returns false if no store has a bucket of that name, or the
// bucket cannot be read.
func (w *walk) bucketNamed(name string, value []byte) bool {
	if len(value) < 16 {
		return false
	}
	if name == sumsBucket {
		if p, ok := w.inline(value); ok && p.n == 1 {
			if key, sums, ok := p.pair(0); ok && string(key) == sumsKey {
				w.sums = sums
			}
		}
		return w.sums != nil
	}
	for ks := range store.Keyspace(store.NumKeyspaces) {
		if w.buckets[ks] || !isName(name, ks.String()) {
			continue
		}
		w.buckets[ks] = true
		if root := order.Uint64(value); root != 0 {
			w.tree(ks, root, span{}, 0)
		} else if p, ok := w.inline(value); ok {
			w.leafOf(ks, p)
		} else {
			w.gap(ks)
		}
		return true
	}
	return false
}

// isName reports whether a name is that of a keyspace, or differs from it in one byte. No two
// keyspaces are that much alike.
func isName(name, of string) bool {
	differ := 0
	for i := range min(len(name), len(of)) {
		if name[i] != of[i] {
			differ++
		}
	}
	return len(name) == len(of) && differ <= 1
}

// inline returns the leaf of a small bucket.
func (w *walk) inline(value []byte) (p node, ok bool) {
	if len(value) < 16+headerSize {
		return p, false
	}
	p, ok = nodeOf(value[16:], 0)
	return p, ok && !p.branch
}

// tree goes through the tree of a keyspace whose root is page id. Its keys should be in the span.
func (w *walk) tree(ks store.Keyspace, id uint64, keys span, depth int) {
	p, ok := w.open(id)
	if ok && depth <= maxDepth && p.n > 0 {
		first, known := p.first(ks)
		if ok = !known || keys.holds(first); !ok {
			w.forget(id) // whatever should be here, it is not this page
		}
	}
	switch {
	case !ok || depth > maxDepth:
		w.gap(ks)
	case !p.branch:
		w.leafOf(ks, p)
	default:
		for i := range p.n {
			w.tree(ks, p.child(i), p.spanOf(i, keys), depth+1)
		}
	}
}

func (w *walk) leafOf(ks store.Keyspace, p node) {
	for i := range p.n {
		rec := record{ks: ks}
		var ok bool
		if rec.key, rec.value, ok = p.pair(i); !ok || !rec.look() {
			w.gap(ks)
			continue
		}
		w.record(rec)
	}
}

// look computes the sum of a record and looks whether the seal is right. It returns false if the
// disk cannot read the record.
func (rec *record) look() bool {
	return catchFaults(func() error {
		rec.sum = hashOf(rec.key, rec.value)
		rec.sound = rec.ks.Index() || store.Sealed(rec.ks, rec.key, rec.value)
		return nil
	}) == nil
}

// open returns page id, and notes that it was seen.
func (w *walk) open(id uint64) (p node, ok bool) {
	if id < 2 || id >= w.pages || w.seen.has(id) || w.unused != nil && w.unused.has(id) {
		return p, false
	}
	page := w.data[id*w.pageSize:]
	pages := uint64(1)
	err := catchFaults(func() error {
		pages += uint64(order.Uint32(page[12:]))
		pages = min(pages, w.pages-id)
		if p, ok = nodeOf(page[:pages*w.pageSize], id); !ok {
			return errors.New("no page of a tree")
		}
		return nil
	})
	if err != nil {
		return p, false
	}
	for n := id; n < id+pages; n++ {
		w.seen.add(n)
	}
	return p, true
}

// forget makes page id one that was not seen.
func (w *walk) forget(id uint64) { w.seen[id/64] &^= 1 << (id % 64) }

// orphans returns the sound records on leaves that are in use and to which no page leads. Only with
// the list of free pages it is known which pages are in use.
func (w *walk) orphans() (all []record) {
	seen := append(pageSet{}, w.seen...)
	defer func() { w.seen = seen }()
	last := store.Keyspace(0)
	for id := uint64(2); id < w.pages; id++ {
		if id == w.free {
			continue
		}
		p, ok := w.open(id)
		if !ok || p.branch {
			continue
		}
		for i := range p.n {
			key, value, ok := p.pair(i)
			if !ok || len(value) == 0 {
				continue
			}
			for n := range store.Keyspace(store.NumKeyspaces) {
				rec := record{ks: (last + n) % store.Keyspace(store.NumKeyspaces), key: key, value: value}
				if !rec.ks.Index() && rec.look() && rec.sound {
					last = rec.ks
					all = append(all, rec)
					break
				}
			}
		}
	}
	return all
}

// node is a page of a tree.
type node struct {
	page   []byte
	branch bool
	n      int // elements
}

// nodeOf reads the header of page id. The header says three things that can be known otherwise: the
// number of the page, its type, and the count of its elements, right behind which the first key is.
// One of them may be wrong.
func nodeOf(page []byte, id uint64) (p node, ok bool) {
	wrong := 0
	if order.Uint64(page) != id {
		wrong++
	}
	p = node{page: page, n: count(page), branch: pageType(page) == branchPage}
	known := p.branch || pageType(page) == leafPage
	switch leafSays, branchSays := elementsIn(page, leafKeyAt), elementsIn(page, branchKeyAt); {
	case known && !p.branch && (p.n == 0 || p.n == leafSays), known && p.branch && p.n == branchSays:
	case p.n > 0 && p.n == leafSays:
		p.branch = false
		wrong++
	case p.n > 0 && p.n == branchSays:
		p.branch = true
		wrong++
	case known && !p.branch && leafSays > 0:
		p.n = leafSays
		wrong++
	case known && p.branch && branchSays > 0:
		p.n = branchSays
		wrong++
	default:
		return p, false
	}
	return p, wrong <= 1 && len(page) >= headerSize+elementSize*p.n && (!p.branch || p.n > 0)
}

// Where an element has the offset of its key.
const (
	leafKeyAt   = 4
	branchKeyAt = 0
)

// elementsIn returns how many elements are before the first key of a page; 0 if that cannot be.
func elementsIn(page []byte, keyAt int) int {
	if len(page) < headerSize+elementSize {
		return 0
	}
	at := int(order.Uint32(page[headerSize+keyAt:]))
	if at%elementSize != 0 || headerSize+at > len(page) {
		return 0
	}
	return at / elementSize
}

// pair returns the key and the value of an element of a leaf.
func (p node) pair(i int) (key, value []byte, ok bool) {
	err := catchFaults(func() error {
		at := headerSize + elementSize*i
		pair, err := element(p.page, i, leafKeyAt, uint64(order.Uint32(p.page[at+12:])))
		if err == nil {
			key, value = split(pair, order.Uint32(p.page[at+8:]))
		}
		return err
	})
	return key, value, err == nil
}

// first returns the first key of a page of a keyspace that is not damaged, as far as anybody can
// tell.
func (p node) first(ks store.Keyspace) (key []byte, known bool) {
	if p.branch {
		return p.key(0)
	}
	for i := range p.n {
		rec := record{ks: ks}
		var ok bool
		if rec.key, rec.value, ok = p.pair(i); ok && rec.look() && rec.sound {
			return rec.key, true
		}
	}
	return nil, false
}

// key returns the key of an element.
func (p node) key(i int) (key []byte, ok bool) {
	field := leafKeyAt
	if p.branch {
		field = branchKeyAt
	}
	err := catchFaults(func() (err error) {
		key, err = element(p.page, i, field, 0)
		return err
	})
	return key, err == nil
}

// child returns the page of an element of a branch.
func (p node) child(i int) (id uint64) {
	_ = catchFaults(func() error {
		id = order.Uint64(p.page[headerSize+elementSize*i+8:])
		return nil
	})
	return id // 0, which is no page of a tree, if it cannot be read
}

// spanOf returns the keys that the child of an element may have, by those keys of the branch that
// can be right.
func (p node) spanOf(i int, all span) span {
	keys := all
	for j := i; j >= 0; j-- {
		if key, ok := p.key(j); ok && all.holds(key) {
			keys.from = key
			break
		}
	}
	for j := i + 1; j < p.n; j++ {
		if key, ok := p.key(j); ok && all.holds(key) && keys.holds(key) {
			keys.to = key
			break
		}
	}
	return keys
}
