package store

// Batch collects changes that a store commits together. They are applied in order: of several
// changes to one key, the last one wins. The zero Batch is empty and ready for use; a batch that is
// reset and used again allocates nothing.
type Batch struct {
	arena []byte // all keys and values, in order
	ops   []op
}

// op says where a change is in the arena. It holds offsets and not slices, because the arena moves
// when it grows.
type op struct {
	start, value, end int
	keyspace          Keyspace
	remove            bool
}

// Op is one change. Key and Value are memory of the batch; they are valid until the next call that
// changes the batch.
type Op struct {
	Keyspace Keyspace
	Key      []byte
	Value    []byte // may be empty; has no meaning for a delete
	Delete   bool
}

// Put sets the value under key. It copies both. A value that is not empty should be sealed (use
// PutSealed): a store on a disk may regard any other value as broken.
func (b *Batch) Put(ks Keyspace, key, value []byte) {
	start := b.addKey(key)
	b.arena = append(b.arena, value...)
	b.addOp(op{keyspace: ks, start: start, value: start + len(key)})
}

// PutSealed seals payload, which is what Open undoes, and sets it under key.
func (b *Batch) PutSealed(ks Keyspace, key []byte, version byte, payload []byte) {
	b.EndSealed(version, append(b.BeginSealed(ks, key), payload...))
}

// BeginSealed begins a PutSealed whose payload the caller writes directly into the memory of the
// batch: append the payload to dst, and pass the result to EndSealed. Nothing else may change the
// batch between the two calls.
func (b *Batch) BeginSealed(ks Keyspace, key []byte) (dst []byte) {
	start := b.addKey(key)
	b.arena = append(b.arena, make([]byte, SealSize)...)
	b.addOp(op{keyspace: ks, start: start, value: start + len(key)})
	return b.arena
}

// EndSealed seals the payload that was appended to the dst of BeginSealed.
func (b *Batch) EndSealed(version byte, dst []byte) {
	b.arena = dst
	o := &b.ops[len(b.ops)-1]
	o.end = len(dst)
	seal(o.keyspace, dst[o.start:o.value], version, dst[o.value:])
}

// Delete removes key. If the key does not exist, that is no error.
func (b *Batch) Delete(ks Keyspace, key []byte) {
	start := b.addKey(key)
	b.addOp(op{keyspace: ks, start: start, value: start + len(key), remove: true})
}

func (b *Batch) addKey(key []byte) (start int) {
	start = len(b.arena)
	b.arena = append(b.arena, key...)
	return start
}

func (b *Batch) addOp(o op) {
	o.end = len(b.arena)
	b.ops = append(b.ops, o)
}

// Append adds the changes of other, after those of b.
func (b *Batch) Append(other *Batch) {
	at := len(b.arena)
	b.arena = append(b.arena, other.arena...)
	for _, o := range other.ops {
		o.start, o.value, o.end = o.start+at, o.value+at, o.end+at
		b.ops = append(b.ops, o)
	}
}

// Join returns a new batch with the changes of all, in order.
func Join(all ...*Batch) *Batch {
	var bytes, ops int
	for _, b := range all {
		bytes += len(b.arena)
		ops += len(b.ops)
	}
	joined := &Batch{arena: make([]byte, 0, bytes), ops: make([]op, 0, ops)}
	for _, b := range all {
		joined.Append(b)
	}
	return joined
}

// Len is the number of changes.
func (b *Batch) Len() int { return len(b.ops) }

// Bytes is the size of all keys and values.
func (b *Batch) Bytes() int { return len(b.arena) }

// At returns change i of Len.
func (b *Batch) At(i int) Op {
	o := &b.ops[i]
	return Op{
		Keyspace: o.keyspace,
		Key:      b.arena[o.start:o.value:o.value],
		Value:    b.arena[o.value:o.end:o.end],
		Delete:   o.remove,
	}
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	b.arena = b.arena[:0]
	b.ops = b.ops[:0]
}
