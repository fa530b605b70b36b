// Package ordered has sets and maps in an order, for a single goroutine.
//
// They are interfaces on purpose. Go compiles the methods of a generic type anew in each package
// that sees a type with one of its instances inside, and a tree has a hundred: with the trees
// themselves in the engine, each package above it, and each test of those, took five seconds longer
// to compile.
package ordered

import (
	"cmp"

	"github.com/tidwall/btree"
)

// Set is a set of items. Two items are the same if neither is less than the other.
type Set[T any] interface {
	// Len is the number of items.
	Len() int
	// Get finds the item that is the same as key.
	Get(key T) (item T, ok bool)
	// Set adds an item. If it replaces one, it returns that.
	Set(item T) (replaced T, ok bool)
	// Delete removes an item and returns it.
	Delete(key T) (removed T, ok bool)
	// Min and Max return the least and the greatest item; ok is false if there is none. PopMin and
	// PopMax also remove it.
	Min() (item T, ok bool)
	Max() (item T, ok bool)
	PopMin() (item T, ok bool)
	PopMax() (item T, ok bool)
	// Next returns the least item that is greater than one. Unlike Scan and Ascend, it allocates
	// nothing.
	Next(than T) (item T, ok bool)
	// Scan calls fn with each item, in order, until it returns false. Ascend begins with the first
	// that is not less than from.
	Scan(fn func(item T) bool)
	Ascend(from T, fn func(item T) bool)
}

// NewSet returns an empty set in the order of less.
func NewSet[T any](less func(a, b T) bool) Set[T] {
	return set[T]{btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})}
}

type set[T any] struct{ *btree.BTreeG[T] }

func (s set[T]) Next(than T) (item T, ok bool) {
	s.Ascend(than, func(at T) bool {
		if ok = s.Less(than, at); ok {
			item = at
		}
		return !ok
	})
	return item, ok
}

// Map has a value for each of its keys. Its methods are like those of [Set].
type Map[K cmp.Ordered, V any] interface {
	Len() int
	Get(key K) (value V, ok bool)
	Set(key K, value V) (replaced V, ok bool)
	Delete(key K) (removed V, ok bool)
	Min() (key K, value V, ok bool)
	Scan(fn func(key K, value V) bool)
	Ascend(from K, fn func(key K, value V) bool)
}

// NewMap returns an empty map.
func NewMap[K cmp.Ordered, V any]() Map[K, V] { return new(btree.Map[K, V]) }
