package boltstore

import (
	"bytes"
	"errors"
	"os"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// tornError says what is wrong with a newest commit that a loss of power may have cut off.
type tornError struct{ error }

var errIncomplete = errors.New("a part of its last commit is missing")

// checkPrevious checks the commit before the newest. It returns the checker of that commit if the
// commit is whole and a loss of power may have cut off the newest. Otherwise it returns nil, and an
// error if a newer version wrote the store. The commit before can be whole because no commit
// overwrites its pages. A store without sums is never whole in this sense, because only the sums
// show that no record is missing.
func (c *checker) checkPrevious() (whole *checker, newer error) {
	m, ok := parseMeta(c.data[c.otherPage(c.data)*c.pageSize:])
	if !ok || m.tx+1 != c.tx || m.pageSize != c.pageSize || m.pages > c.pages {
		return nil, nil
	}
	if c.hasNote() {
		return nil, nil
	}
	before := &checker{meta: m, data: c.data}
	problem := before.check()
	if newer = before.newerFormat(); newer != nil {
		return nil, newer
	}
	if problem != nil || before.stored == nil || !hasSingleFlush(before.format) {
		return nil, nil
	}
	return before, nil
}

// hasNote reports whether the file has the note that the newest commit is durable.
func (c *checker) hasNote() bool {
	return bytes.HasPrefix(c.data[noteAt(c.tx, int(c.pageSize)):], encodeNote(c.tx))
}

// hasSingleFlush reports whether, in a store of that format, one flush makes a commit durable.
func hasSingleFlush(format []byte) bool {
	const since = 5
	n, err := store.ParseFormat(format)
	return err == nil && n >= since
}

// takeBack removes the newest commit from the file for good. The caller has checked that the commit
// before, number n, is whole. takeBack replaces the meta page of the newest by a copy of that of
// commit n with number n-1, as in a copy that Snapshot wrote. The next commit overwrites it.
func takeBack(file *os.File) error {
	data, err := mapFile(file)
	if err != nil {
		return err
	}
	m, _ := newestMeta(data)
	other := m.otherPage(data)
	page := bytes.Clone(data[other*m.pageSize:][:m.pageSize])
	if err := syscall.Munmap(data); err != nil {
		return err
	}
	newest := 1 - other
	order.PutUint64(page, newest)
	fields := page[headerSize:][:metaSize]
	order.PutUint64(fields[txAt:], m.tx-2)
	order.PutUint64(fields[sumAt:], metaSum(fields))
	copy(page[noteOffset(int(m.pageSize)):], encodeNote(m.tx-1))
	if _, err := file.WriteAt(page, int64(newest*m.pageSize)); err != nil {
		return err
	}
	return file.Sync()
}

// otherPage is the page number, 0 or 1, of the meta page that is not in force.
func (m meta) otherPage(file []byte) uint64 {
	if first, ok := parseMeta(file); ok && first.tx == m.tx {
		return 1
	}
	return 0
}
