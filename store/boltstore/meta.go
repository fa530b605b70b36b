package boltstore

import (
	"encoding/binary"
	"hash/fnv"
	"io"
	"os"

	"github.com/lessor-dev/lessor/store"
)

// boltMeta is what bbolt's meta page says of its file. The newer of the two valid ones is in force.
type boltMeta struct {
	pageSize int64
	pages    int64 // in use, from the start of the file
	tx       uint64
}

// checkMeta refuses a file that bbolt would take for a database and then crash on: one that is shorter than it claims
// faults when it is read through the memory map, in a goroutine of bbolt's own that nobody can recover. It is safe while
// another process writes to the file: of the two meta pages one is always whole.
func checkMeta(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer func() { _ = file.Close() }() // only read
	info, err := file.Stat()
	if err != nil {
		return err
	}
	meta, found := newestMeta(file)
	switch {
	case !found:
		return &store.DamagedError{Path: path, Problem: "it has no valid meta page"}
	case info.Size()/meta.pageSize < meta.pages:
		return &store.DamagedError{Path: path, Problem: "it was cut off"}
	}
	return nil
}

// newestMeta looks for meta pages where bbolt does: at 0, and at every page size that it knows.
func newestMeta(file io.ReaderAt) (newest boltMeta, found bool) {
	const minPage, maxPage = 1 << 10, 16 << 20
	for at := int64(0); at <= maxPage; at = max(2*at, minPage) {
		meta, ok := readMeta(file, at)
		if ok && (at == 0 || at == meta.pageSize) && (!found || meta.tx > newest.tx) {
			newest, found = meta, true
		}
	}
	return newest, found
}

// readMeta reads the meta page at an offset, in bbolt's form: the page's header, then magic, version, page size, flags (4
// bytes each), root and sequence of the root bucket, free list, pages, transaction and a checksum over all before it (8
// bytes each), in the byte order of the machine.
func readMeta(file io.ReaderAt, at int64) (meta boltMeta, ok bool) {
	const (
		header, size   = 16, 64
		magic, version = 0xED0CDAED, 2
	)
	var page [header + size]byte
	if _, err := file.ReadAt(page[:], at); err != nil {
		return boltMeta{}, false
	}
	fields, order := page[header:], binary.NativeEndian
	sum := fnv.New64a()
	_, _ = sum.Write(fields[:size-8]) // never fails
	if order.Uint32(fields) != magic || order.Uint32(fields[4:]) != version || order.Uint64(fields[56:]) != sum.Sum64() {
		return boltMeta{}, false
	}
	meta = boltMeta{
		pageSize: int64(order.Uint32(fields[8:])),
		pages:    int64(order.Uint64(fields[40:])),
		tx:       order.Uint64(fields[48:]),
	}
	return meta, meta.pageSize > 0
}
