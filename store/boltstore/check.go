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

// checkFile reads all pages of a file that are in use, and returns a *store.DamagedError if they are not a sound tree, or not all of the newest commit; a *store.TornError
// where the commit before that is whole; and a *store.NewerFormatError where either says that a newer version wrote it. bbolt looks at less of them, in a goroutine of its own, where a lost page or the end of the file is a panic that nobody can recover,
// and a failed Open keeps the lock. The caller holds the lock.
//
// What it reads is on the disk: what a process wrote that was killed gets there first, and what the kernel takes for written is read anew.
func checkFile(file *os.File) (err error) {
	if err := file.Sync(); err != nil && !errors.Is(err, syscall.EROFS) && !errors.Is(err, syscall.EINVAL) { // where nothing can be written, nothing waits for it
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

// damaged is nil where there is no problem.
func damaged(path string, problem error) error {
	if problem == nil {
		return nil
	}
	return &store.DamagedError{Path: path, Problem: problem.Error()}
}

// checkData is checkFile on the bytes of the file.
func checkData(data []byte) error {
	return reading(func() error {
		c, err := newChecker(data)
		if err != nil {
			return err
		}
		problem := reading(c.check) // a sector that was being written may be one that cannot be read
		if problem == nil && c.kept != nil && c.broken == 0 {
			return nil
		}
		before, newer := c.before()
		if newer = cmp.Or(c.newer(), newer); newer != nil {
			return newer
		}
		if before != nil && (problem != nil || c.kept == nil || c.broken > before.broken) {
			return tornError{cmp.Or(problem, errHalf)}
		}
		return problem // none in a store from before there were sums, nor where a value was broken before
	})
}

// reading runs what reads a mapped file: what the disk cannot read is a fault of the memory map.
func reading(check func() error) (problem error) {
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
	pace func() error // called for each page; may be nil. Its error ends the walk
	tally
}

// newChecker looks at the meta pages.
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

// check walks all pages, and compares the records with their sums.
func (c *checker) check() error {
	if err := c.walk(); err != nil {
		return err
	}
	return c.compare(c.tx)
}

func (c *checker) walk() error {
	c.seen = newPageSet(c.pages)
	if err := c.tree(c.root, span{}); err != nil {
		return err
	}
	return c.freeList()
}

// span is the range of keys [from, to) that a page may hold; nil is no limit.
type span struct{ from, to []byte }

func (s span) holds(key []byte) bool {
	return bytes.Compare(key, s.from) >= 0 && (s.to == nil || bytes.Compare(key, s.to) < 0)
}

// freeList checks the list of free pages, where there is one, after all others are known. It is a count and as many numbers of pages (8 bytes each) in
// rising order; the count is that of the page's elements, or, when it has no place there, the first of the numbers.
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
	const elsewhere = 0xFFFF
	n, list := uint64(count(page)), page[headerSize:]
	if n == elsewhere {
		n, list = order.Uint64(list), list[8:]
	}
	if n > uint64(len(list)/8) {
		return fmt.Errorf("page %d: %d free pages do not fit", c.free, n)
	}
	last := uint64(1) // page 0 and 1 are never free
	for i := range n {
		id := order.Uint64(list[8*i:])
		switch {
		case id <= last || id >= c.pages:
			return fmt.Errorf("page %d: free page %d is out of order", c.free, i)
		case c.seen.has(id): // a commit would be written over it
			return fmt.Errorf("page %d is in use and in the list of free pages", id)
		}
		last = id
	}
	return nil
}

// page returns page id with all that belongs to it. Each may be asked for once.
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

// tree checks the tree that begins at page id.
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

// branch checks a page of children. An element is the place and the size of the child's first key (4 bytes each), and the
// child's page (8 bytes).
func (c *checker) branch(page []byte, keys span) error {
	n := count(page)
	if n == 0 {
		return errors.New("it has no children")
	}
	first := make([][]byte, n+1) // and where the last child's keys end
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

// leaf checks a page of keys and values. An element is its flags, the place of the key, and the sizes of key and value (4
// bytes each); the value follows the key.
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
		c.enter(string(key))
		if err := c.bucket(value); err != nil {
			return fmt.Errorf("bucket %q: %w", key, err)
		}
	}
	return nil
}

// bucket checks a bucket in the value of a leaf: the page of its tree and a sequence (8 bytes each). A small bucket has no
// page of its own, 0, and its only leaf follows.
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
	if own := order.Uint64(inline); own != 0 { // bbolt would give that page back at the next commit
		return fmt.Errorf("its leaf says that it is page %d", own)
	}
	return c.elements(inline, span{})
}

// element returns the key of element i and the extra bytes behind it. Its place, counted from the element, and its size lie
// at field.
func element(page []byte, i, field int, extra uint64) ([]byte, error) {
	at := headerSize + elementSize*i
	from := uint64(at) + uint64(order.Uint32(page[at+field:]))
	to := from + uint64(order.Uint32(page[at+field+4:])) + extra
	if to > uint64(len(page)) {
		return nil, fmt.Errorf("element %d extends beyond its page", i)
	}
	return page[from:to], nil
}

func split(pair []byte, keySize uint32) (key, value []byte) { return pair[:keySize], pair[keySize:] }
