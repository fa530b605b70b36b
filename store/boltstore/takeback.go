package boltstore

import (
	"bytes"
	"errors"
	"os"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// tornError is what is wrong with a newest commit that may have been cut off by a loss of power.
type tornError struct{ error }

var errHalf = errors.New("a part of its last commit is missing")

// before has checked the commit before the newest: it is whole, and the newest may have been cut off. Else it is nil, with an error where a newer version wrote it. Commits are
// never written over pages of the one before, and without sums nothing would tell.
func (c *checker) before() (whole *checker, newer error) {
	m, ok := parseMeta(c.data[c.other(c.data)*c.pageSize:])
	if !ok || m.tx+1 != c.tx || m.pageSize != c.pageSize || m.pages > c.pages {
		return nil, nil
	}
	if c.noted() {
		return nil, nil
	}
	before := &checker{meta: m, data: c.data}
	problem := before.check()
	if newer = before.newer(); newer != nil {
		return nil, newer
	}
	if problem != nil || before.kept == nil || !flushedOnce(before.format) {
		return nil, nil
	}
	return before, nil
}

// noted reports whether the newest commit was durable.
func (c *checker) noted() bool {
	return bytes.HasPrefix(c.data[noteAt(c.tx, int(c.pageSize)):], note(c.tx))
}

// flushedOnce reports whether commits to a store of that format are one flush.
func flushedOnce(format []byte) bool {
	const since = 5
	n, err := store.ParseFormat(format)
	return err == nil && n >= since
}

// takeBack makes the commit before the newest the newest one, for good. It was found whole. The meta page of the newest becomes one of the commit before, with the root of the
// one that counts from now on, as in a copy that Snapshot wrote; the next commit is written over it.
func takeBack(file *os.File) error {
	data, err := mapFile(file)
	if err != nil {
		return err
	}
	m, _ := newestMeta(data)
	other := m.other(data)
	page := bytes.Clone(data[other*m.pageSize:][:m.pageSize])
	if err := syscall.Munmap(data); err != nil {
		return err
	}
	newest := 1 - other
	order.PutUint64(page, newest)
	fields := page[headerSize:][:metaSize]
	order.PutUint64(fields[txAt:], m.tx-2)
	order.PutUint64(fields[sumAt:], metaSum(fields))
	copy(page[noteOffset(int(m.pageSize)):], note(m.tx-1))
	if _, err := file.WriteAt(page, int64(newest*m.pageSize)); err != nil {
		return err
	}
	return file.Sync()
}

// other is the number of the meta page that is not in force.
func (m meta) other(file []byte) uint64 {
	if first, ok := parseMeta(file); ok && first.tx == m.tx {
		return 1
	}
	return 0
}
