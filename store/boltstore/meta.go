package boltstore

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
)

// The layout of a bbolt file, in the byte order of the machine. A file consists of pages of one
// size. A page begins with a header: its number (8 bytes), its type and the count of its elements
// (2 bytes each), and the number of its overflow pages, which follow it (4 bytes). Pages 0 and 1
// are meta pages; commits write them in turn.
const (
	headerSize = 16
	branchPage = 0x01
	leafPage   = 0x02
	freePage   = 0x10 // the stored list of free pages
)

var order = binary.NativeEndian

// meta is the content of a meta page. The meta page of the newest commit is in force: bbolt reads
// the file as that page says.
type meta struct {
	pageSize uint64
	root     uint64 // page of the root bucket
	free     uint64 // page of the list of free pages, or noFreePage
	pages    uint64 // number of pages of the file that were ever used
	tx       uint64 // number of the transaction that wrote the meta page
}

const noFreePage = 1<<64 - 1

// newestMeta returns the meta page of the newest commit. It looks for the two meta pages where
// bbolt does. The first contains the page size, and so tells where the second is. If the first is
// invalid, newestMeta looks for the second at each page size that bbolt supports. It begins with
// the smallest, because the pages behind the meta pages hold stored data, which anybody can make
// look like a meta page.
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

// metaAt reads the second meta page of a file whose pages have that size.
func metaAt(file []byte, size uint64) (m meta, ok bool) {
	if size >= uint64(len(file)) {
		return meta{}, false
	}
	m, ok = parseMeta(file[size:])
	return m, ok && m.pageSize == size
}

// The fields of a meta page follow the page header: magic, version, page size and flags (4 bytes
// each), then page and sequence of the root bucket, page of the list of free pages, number of
// pages, transaction, and a checksum over all fields before it (8 bytes each).
const (
	metaSize  = 64
	fixedSize = 16 // the fields that never change: magic to flags
	txAt      = 48
	sumAt     = 56
)

// parseMeta reads a meta page; ok is false if it is not valid.
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

// readMeta reads the fields of a meta page; ok is false if they are not valid.
func readMeta(fields []byte) (m meta, ok bool) {
	const magic, version = 0xED0CDAED, 2
	if order.Uint32(fields) != magic || order.Uint32(fields[4:]) != version ||
		order.Uint64(fields[sumAt:]) != metaSum(fields) {
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

// checkOther checks the meta page that is not in force, which bbolt does not do. That page belongs
// to the commit before, or it is torn because a crash interrupted the next commit. In any other
// case the disk has lost or changed it, and it may have been the meta page of the last acknowledged
// commit.
func (m meta) checkOther(file []byte) error {
	for page := range uint64(2) {
		if own := order.Uint64(file[page*m.pageSize:]); own != page {
			return fmt.Errorf("page %d says that it is page %d", page, own)
		}
		fields := file[page*m.pageSize+headerSize:][:metaSize]
		sound := file[(1-page)*m.pageSize+headerSize:]
		// Commits write the two pages in turn, so the other page is one commit older. In a copy
		// that Snapshot wrote, page 0 always has the newest number, and page 1 has the number
		// before it, but the same root. The next commit may overwrite page 0; then page 1 is two
		// commits older.
		const inTurn = 1
		switch other, whole := readMeta(fields); {
		case whole && other.tx+inTurn+page < m.tx:
			return fmt.Errorf("its meta pages are of commits %d and %d: the disk lost data that was written",
				other.tx, m.tx)
		case !whole && !m.torn(fields, sound):
			return errors.New("one of its meta pages was changed; it may be that of its last commit")
		}
	}
	return nil
}

// torn reports whether fields can be what is left if a crash interrupted the write of the next meta
// page after m over an older one. Both of these pages have the fixed fields of sound, which is the
// valid meta page, and transaction numbers near that of m. If one flipped bit explains the
// difference from a valid page, it is damage by the disk, because a crash does not flip a single
// bit.
func (m meta) torn(fields, sound []byte) bool {
	return bytes.Equal(fields[:fixedSize], sound[:fixedSize]) && m.isNear(fields[txAt:sumAt]) && !m.isOneBitOff(fields)
}

// isNear reports whether each byte of number is the same byte of a transaction number that differs
// from that of m by at most reach.
func (m meta) isNear(number []byte) bool {
	// the meta pages are written in turn; in a copy that Snapshot wrote, one may be two commits
	// older, see checkOther
	const reach = 2
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

// isOneBitOff reports whether flipping one bit of fields makes them a valid meta page that is newer
// than m. With the root of m, as in a copy that Snapshot wrote, such a page does not count: then m
// has the same records.
func (m meta) isOneBitOff(fields []byte) bool {
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
