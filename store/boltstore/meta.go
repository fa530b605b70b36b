package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// The form of a bbolt file, in the byte order of the machine. A file is pages of one size; a page begins with its number
// (8 bytes), its type and the count of its elements (2 bytes each), and the number of pages that follow as part of it (4
// bytes). Pages 0 and 1 are meta pages, written in turn.
const (
	headerSize = 16
	branchPage = 0x01
	leafPage   = 0x02
	freePage   = 0x10 // the stored list of free pages
)

var order = binary.NativeEndian

// meta is what the meta page in force says of its file.
type meta struct {
	pageSize uint64
	root     uint64 // page of the root bucket
	free     uint64 // page of the list of free pages, or noFreePage
	pages    uint64 // in use, from the start of the file
	tx       uint64 // that wrote it
}

const noFreePage = 1<<64 - 1

// newestMeta looks for the two meta pages where bbolt does. The first tells the size of a page, and so where the second is; where it is torn, the second is looked for at every page size that bbolt
// knows, the smallest first: what lies behind it may be made of what others have stored, and look like a meta page.
func newestMeta(file []byte) (newest meta, found bool) {
	if first, ok := parseMeta(file); ok {
		second, ok := metaAt(file, first.pageSize)
		if ok && second.tx > first.tx {
			return second, true
		}
		return first, true
	}
	const minPage, maxPage = 1 << 10, 16 << 20
	for size := uint64(minPage); size <= maxPage; size *= 2 {
		if m, ok := metaAt(file, size); ok {
			return m, true
		}
	}
	return meta{}, false
}

// metaAt reads the second meta page of a file with pages of that size.
func metaAt(file []byte, size uint64) (m meta, ok bool) {
	if size >= uint64(len(file)) {
		return meta{}, false
	}
	m, ok = parseMeta(file[size:])
	return m, ok && m.pageSize == size
}

// Meta data behind the header of its page: magic, version, page size and flags (4 bytes each), then root and sequence of the root bucket, free list, pages,
// transaction, and a checksum over all before it (8 bytes each).
const (
	metaSize  = 64
	fixedSize = 16 // what never changes
	txAt      = 48
	sumAt     = 56
)

// parseMeta reads a meta page.
func parseMeta(page []byte) (m meta, ok bool) {
	if len(page) < headerSize+metaSize {
		return meta{}, false
	}
	return readMeta(page[headerSize:][:metaSize])
}

func metaSum(fields []byte) uint64 {
	sum := fnv.New64a()
	_, _ = sum.Write(fields[:sumAt]) // never fails
	return sum.Sum64()
}

func readMeta(fields []byte) (m meta, ok bool) {
	const magic, version = 0xED0CDAED, 2
	if order.Uint32(fields) != magic || order.Uint32(fields[4:]) != version || order.Uint64(fields[sumAt:]) != metaSum(fields) {
		return meta{}, false
	}
	m = meta{
		pageSize: uint64(order.Uint32(fields[8:])),
		root:     order.Uint64(fields[16:]),
		free:     order.Uint64(fields[32:]),
		pages:    order.Uint64(fields[40:]),
		tx:       order.Uint64(fields[txAt:]),
	}
	return m, m.pageSize > 0
}

// checkOther looks at the meta page that is not in force, for bbolt would not. It is of the commit before, or a crash has torn it when the next one was written. If it is anything else, then the disk
// has lost or changed it, and it may have been the one of the last commit that was acknowledged.
func (m meta) checkOther(file []byte) error {
	for page := range uint64(2) {
		if own := order.Uint64(file[page*m.pageSize:]); own != page {
			return fmt.Errorf("page %d says that it is page %d", page, own)
		}
		fields := file[page*m.pageSize+headerSize:][:metaSize]
		sound := file[(1-page)*m.pageSize+headerSize:]
		// Commits write the two in turn. In a copy that Snapshot wrote, the newest is always page 0, whatever its number, and the other one is of the commit before, but
		// with the root of the newest: the next commit may be written over the newest.
		const inTurn = 1
		switch other, whole := readMeta(fields); {
		case whole && other.tx+inTurn+page < m.tx:
			return fmt.Errorf("its meta pages are of commits %d and %d: the disk lost data that was written", other.tx, m.tx)
		case !whole && !m.torn(fields, sound):
			return errors.New("one of its meta pages was changed; it may be that of its last commit")
		}
	}
	return nil
}

// torn reports whether fields can be a part of the next meta page after m, written over an older one. The two agree in what never changes, which sound has, and the
// numbers of their transactions are near that of m. What differs from another commit's page in a single bit has rotted: no crash is as fine as that.
func (m meta) torn(fields, sound []byte) bool {
	return bytes.Equal(fields[:fixedSize], sound[:fixedSize]) && m.near(fields[txAt:sumAt]) && !m.rotten(fields)
}

// near reports whether each byte of number is that of a number that is hardly apart from that of m.
func (m meta) near(number []byte) bool {
	const reach = 2 // two pages in turn, and one more in a copy
	for i, n := range number {
		found := false
		for tx := m.tx - min(m.tx, reach); tx <= m.tx+reach; tx++ {
			found = found || n == order.AppendUint64(nil, tx)[i]
		}
		if !found {
			return false
		}
	}
	return true
}

func (m meta) rotten(fields []byte) bool {
	flipped := bytes.Clone(fields)
	for bit := range 8 * metaSize {
		flipped[bit/8] ^= 1 << (bit % 8)
		if next, ok := readMeta(flipped); ok && next.tx > m.tx && next.root != m.root {
			return true
		}
		flipped[bit/8] ^= 1 << (bit % 8)
	}
	return false
}
