package boltstore

import (
	"encoding/binary"
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

// newestMeta looks for meta pages where bbolt does: at 0, and at every page size that it knows.
func newestMeta(file []byte) (newest meta, found bool) {
	const minPage, maxPage = 1 << 10, 16 << 20
	for at := uint64(0); at <= maxPage && at < uint64(len(file)); at = max(2*at, minPage) {
		m, ok := parseMeta(file[at:])
		if ok && (at == 0 || at == m.pageSize) && (!found || m.tx > newest.tx) {
			newest, found = m, true
		}
	}
	return newest, found
}

// parseMeta reads a meta page: behind the header come magic, version, page size and flags (4 bytes each), then root and
// sequence of the root bucket, free list, pages, transaction, and a checksum over all before it (8 bytes each).
func parseMeta(page []byte) (m meta, ok bool) {
	const (
		size           = 64
		magic, version = 0xED0CDAED, 2
	)
	if len(page) < headerSize+size {
		return meta{}, false
	}
	fields := page[headerSize:]
	sum := fnv.New64a()
	_, _ = sum.Write(fields[:size-8]) // never fails
	if order.Uint32(fields) != magic || order.Uint32(fields[4:]) != version || order.Uint64(fields[56:]) != sum.Sum64() {
		return meta{}, false
	}
	m = meta{
		pageSize: uint64(order.Uint32(fields[8:])),
		root:     order.Uint64(fields[16:]),
		free:     order.Uint64(fields[32:]),
		pages:    order.Uint64(fields[40:]),
		tx:       order.Uint64(fields[48:]),
	}
	return m, m.pageSize > 0
}
