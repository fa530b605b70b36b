package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"runtime/debug"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// checkFile checks all pages of a file that are in use. The caller holds the lock. The errors are
//   - a *store.DamagedError if the pages are not a sound tree, or do not hold the whole newest
//     commit;
//   - a *store.TornError instead of it if the commit before is whole and the newest one may have
//     been cut off;
//   - a *store.NewerFormatError if either commit says that a newer version wrote the store.
//
// bbolt checks less, in a goroutine of its own: if that goroutine reads a lost page or beyond the
// end of the file, it panics, and nobody can recover the panic. Also, a bbolt.Open that fails keeps
// the lock.
//
// checkFile reads what is on the disk. It first flushes what a killed process has written, and
// removes the pages of the file from the page cache.
func checkFile(file *os.File) (err error) {
	// a read-only file needs no flush
	if err := file.Sync(); err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) {
		return err
	}
	forgetPages(file)
	data, err := mapFile(file)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, syscall.Munmap(data)) }()
	problem := checkData(data)
	switch {
	case errors.As(problem, new(tornError)):
		return &store.TornError{Path: file.Name(), Problem: problem.Error()}
	case errors.As(problem, new(*store.NewerFormatError)):
		return problem
	}
	return damaged(file.Name(), problem)
}

func mapFile(file *os.File) ([]byte, error) {
	info, err := file.Stat()
	if err != nil {
		return nil, err
	}
	if info.Size() == 0 {
		return nil, damaged(file.Name(), errors.New("it is empty"))
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, int(info.Size()), syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map %s: %w", file.Name(), err)
	}
	return data, nil
}

// damaged makes a *store.DamagedError of a problem; nil if there is no problem.
func damaged(path string, problem error) error {
	if problem == nil {
		return nil
	}
	return &store.DamagedError{Path: path, Problem: problem.Error()}
}

// checkData checks the content of a file as checkFile does. It returns a tornError in place of a
// *store.TornError, and other problems without the path.
func checkData(data []byte) error {
	return catchFaults(func() error {
		c, err := newChecker(data)
		if err != nil {
			return err
		}
		problem := catchFaults(c.check) // after a loss of power, a sector that was being written may be unreadable
		if problem == nil && c.stored != nil && c.broken == 0 {
			return nil
		}
		before, newer := c.checkPrevious()
		if newer = cmp.Or(c.newerFormat(), newer); newer != nil {
			return newer
		}
		if before != nil && (problem != nil || c.stored == nil || c.broken > before.broken) {
			return tornError{cmp.Or(problem, errIncomplete)}
		}
		// nil if the store has no sums, or if only values are broken and a torn commit does not
		// explain it: reading such a value fails
		return problem
	})
}

// catchFaults calls check, which reads a mapped file, and returns its error. If the disk cannot
// read a page, the memory access faults; catchFaults returns that fault as an error.
func catchFaults(check func() error) (problem error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if fault := recover(); fault != nil {
			problem = fmt.Errorf("it cannot be read: %v", fault)
		}
	}()
	return check()
}

// checker walks the trees of a file.
type checker struct {
	meta
	data []byte
	seen pageSet
	pace func() error // if not nil, called for each page; an error ends the walk
	tally
}

var errNoFormat = errors.New("it has no record of its format")

// newChecker checks the meta pages of a file and returns a checker of its newest commit.
func newChecker(data []byte) (*checker, error) {
	m, found := newestMeta(data)
	switch {
	case !found:
		return nil, errors.New("it has no valid meta page")
	case uint64(len(data))/m.pageSize < m.pages:
		return nil, errors.New("it was cut off")
	}
	if err := m.checkOther(data); err != nil {
		return nil, err
	}
	return &checker{meta: m, data: data}, nil
}

// check reads all pages that are in use, and compares the records with their sums.
func (c *checker) check() error {
	if err := c.walk(); err != nil {
		return err
	}
	if c.format == nil { // every store has it from its first commit on: this root is a page from before that
		return errNoFormat
	}
	return c.compare(c.tx)
}

// walk checks the tree of all buckets and the list of free pages.
func (c *checker) walk() error {
	c.seen = newPageSet(c.pages)
	if err := c.tree(c.root, span{}); err != nil {
		return err
	}
	return c.freeList()
}

// span is the range of keys [from, to) that a page may hold; nil means no limit.
type span struct{ from, to []byte }

func (s span) holds(key []byte) bool {
	return bytes.Compare(key, s.from) >= 0 && (s.to == nil || bytes.Compare(key, s.to) < 0)
}

// freeList checks the list of free pages, if the file has one, against the pages that the walk has
// seen in use.
func (c *checker) freeList() error {
	if c.free == noFreePage {
		return nil
	}
	page, err := c.page(c.free)
	if err != nil {
		return err
	}
	if pageType(page) != freePage {
		return fmt.Errorf("page %d is not a list of free pages", c.free)
	}
	n, list := listOf(page)
	if n > uint64(len(list)/8) {
		return fmt.Errorf("page %d: %d free pages do not fit", c.free, n)
	}
	last := uint64(1) // page 0 and 1 are never free
	for i := range n {
		id := order.Uint64(list[8*i:])
		switch {
		case id <= last || id >= c.pages:
			return fmt.Errorf("page %d: free page %d is out of order", c.free, i)
		case c.seen.has(id): // a commit would overwrite it
			return fmt.Errorf("page %d is in use and in the list of free pages", id)
		}
		last = id
	}
	return nil
}

// listOf returns the list of free pages on their page: n page numbers (8 bytes each) in rising
// order, which may not fit if the page is damaged. Their count is the element count of the page; a
// count that does not fit there is the first number of the list.
func listOf(page []byte) (n uint64, list []byte) {
	const elsewhere = 0xFFFF
	n, list = uint64(count(page)), page[headerSize:]
	if n == elsewhere {
		return order.Uint64(list), list[8:]
	}
	return n, list
}

// page returns page id together with its overflow pages, which follow it. A sound file uses each
// page once, so a second call for a page returns an error.
func (c *checker) page(id uint64) ([]byte, error) {
	if id < 2 || id >= c.pages {
		return nil, fmt.Errorf("page %d is outside of the file", id)
	}
	page := c.data[id*c.pageSize:]
	if own := order.Uint64(page); own != id {
		return nil, fmt.Errorf("page %d says that it is page %d", id, own)
	}
	end := id + 1 + uint64(order.Uint32(page[12:]))
	if end > c.pages {
		return nil, fmt.Errorf("page %d extends beyond the end of the file", id)
	}
	for n := id; n < end; n++ {
		if c.seen.has(n) {
			return nil, fmt.Errorf("page %d is used twice", n)
		}
		c.seen.add(n)
	}
	if c.pace != nil {
		if err := c.pace(); err != nil {
			return nil, err
		}
	}
	return page[:(end-id)*c.pageSize], nil
}

// tree checks the tree whose root is page id. All its keys must be in the span.
func (c *checker) tree(id uint64, keys span) error {
	page, err := c.page(id)
	if err != nil {
		return err
	}
	if err := c.elements(page, keys); err != nil {
		return fmt.Errorf("page %d: %w", id, err)
	}
	return nil
}

// elements checks the elements of a branch or leaf page.
func (c *checker) elements(page []byte, keys span) error {
	if size := headerSize + elementSize*count(page); len(page) < size {
		return fmt.Errorf("%d elements do not fit", count(page))
	}
	switch pageType(page) {
	case branchPage:
		return c.branch(page, keys)
	case leafPage:
		return c.leaf(page, keys)
	}
	return fmt.Errorf("unknown type %#x", pageType(page))
}

// pageSet has a bit for each page.
type pageSet []uint64

func newPageSet(pages uint64) pageSet { return make(pageSet, pages/64+1) }

func (s pageSet) has(page uint64) bool { return s[page/64]&(1<<(page%64)) != 0 }

func (s pageSet) add(page uint64) { s[page/64] |= 1 << (page % 64) }

const elementSize = 16

func pageType(page []byte) uint16 { return order.Uint16(page[8:]) }

func count(page []byte) int { return int(order.Uint16(page[10:])) }

// branch checks a branch page. An element is the offset and the size of the first key of a child (4
// bytes each), and the page number of the child (8 bytes).
func (c *checker) branch(page []byte, keys span) error {
	n := count(page)
	if n == 0 {
		return errors.New("it has no children")
	}
	first := make([][]byte, n+1) // first key of each child, and then the limit of the last child's keys
	first[n] = keys.to
	for i := range n {
		var err error
		if first[i], err = element(page, i, 0, 0); err != nil {
			return err
		}
	}
	for i := range n {
		child := span{first[i], first[i+1]}
		if !keys.holds(child.from) || !child.holds(child.from) {
			return fmt.Errorf("key %d is out of order", i)
		}
		if err := c.tree(order.Uint64(page[headerSize+elementSize*i+8:]), child); err != nil {
			return err
		}
	}
	return nil
}

// leaf checks a leaf page. An element is its flags, the offset of the key, the size of the key and
// the size of the value (4 bytes each); the value follows the key.
func (c *checker) leaf(page []byte, keys span) error {
	var last []byte
	for i := range count(page) {
		at := headerSize + elementSize*i
		pair, err := element(page, i, 4, uint64(order.Uint32(page[at+12:])))
		if err != nil {
			return err
		}
		key, value := split(pair, order.Uint32(page[at+8:]))
		if !keys.holds(key) || i > 0 && bytes.Compare(key, last) <= 0 {
			return fmt.Errorf("key %d is out of order", i)
		}
		last = key
		const isBucket = 1
		if order.Uint32(page[at:])&isBucket == 0 {
			c.add(key, value)
			continue
		}
		c.enterBucket(string(key))
		if err := c.bucket(value); err != nil {
			return fmt.Errorf("bucket %q: %w", key, err)
		}
	}
	return nil
}

// bucket checks a bucket, given its value in a leaf: the page number of its root and a sequence
// number (8 bytes each). For a small bucket the page number is 0, and its only leaf follows in the
// value.
func (c *checker) bucket(value []byte) error {
	if len(value) < 16 {
		return errors.New("it is too short")
	}
	if root := order.Uint64(value); root != 0 {
		return c.tree(root, span{})
	}
	inline := value[16:]
	if len(inline) < headerSize || pageType(inline) != leafPage {
		return errors.New("it has no leaf")
	}
	if own := order.Uint64(inline); own != 0 { // the next commit to the bucket would free the page of that number
		return fmt.Errorf("its leaf says that it is page %d", own)
	}
	return c.elements(inline, span{})
}

// element returns the key of element i and the extra bytes that follow it. The offset of the key,
// counted from the element, and the size of the key are at field.
func element(page []byte, i, field int, extra uint64) ([]byte, error) {
	at := headerSize + elementSize*i
	from := uint64(at) + uint64(order.Uint32(page[at+field:]))
	to := from + uint64(order.Uint32(page[at+field+4:])) + extra
	if to > uint64(len(page)) {
		return nil, fmt.Errorf("element %d extends beyond its page", i)
	}
	return page[from:to], nil
}

// split returns the key and the value of a pair that begins with the key.
func split(pair []byte, keySize uint32) (key, value []byte) { return pair[:keySize], pair[keySize:] }
