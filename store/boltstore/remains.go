package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// Remains are the records of a file that may be damaged: its pages, or its records. bbolt cannot read such a file: a damaged page may lead it into a panic, or
// into an endless recursion. So the pages are read here, as the check reads them, but what is damaged is left out.
//
// The sums tell whether the records of a keyspace are all there. What cannot be certain without them counts only if they prove it: a record with one changed
// byte in its key or in its seal, and pages to which no page leads any more.
type Remains struct {
	path  string
	info  os.FileInfo
	data  []byte
	close func() error

	meta  meta
	older string
	found *survey
}

// Gap is a range of keys in which records may be missing. It does not include its ends; nil means that there is no end.
type Gap struct{ After, Before []byte }

// Holds reports whether a key is in the gap.
func (g Gap) Holds(key []byte) bool {
	return bytes.Compare(key, g.After) > 0 && (g.Before == nil || bytes.Compare(key, g.Before) < 0)
}

// Broken is a record that is not what was written.
type Broken struct {
	Keyspace store.Keyspace
	Key      []byte
	// KeyCertain means that the key is what was written, and only the value is not. Otherwise the record may be any one in the gap.
	KeyCertain bool
	KeyWrong   bool // another key, which differs in one byte, has that seal
	Gap        Gap

	value []byte
}

// Keyspace says how much of a keyspace can be read.
type Keyspace struct {
	// Gaps are where records may be missing beside the broken ones. A Gap without ends means that some are missing, and nobody knows which, or that older ones may
	// be in the place of others.
	Gaps   []Gap
	Broken []Broken
}

// Keyspace says how much of a keyspace can be read.
func (r *Remains) Keyspace(ks store.Keyspace) Keyspace {
	return Keyspace{Gaps: r.found.of[ks].gaps, Broken: r.found.of[ks].broken}
}

// Older says why the records may be those of an older commit than the newest one; empty: they are not.
func (r *Remains) Older() string { return r.older }

// Path is the path of the file.
func (r *Remains) Path() string { return r.path }

// Records calls fn with each record that can be read, and whose seal is right, until fn returns an error. inOrder means that the key is higher than all before
// of its keyspace; a record that is not in order may be there twice, with another value. The slices are memory of the file, which the caller must not change.
func (r *Remains) Records(fn func(ks store.Keyspace, key, value []byte, inOrder bool) error) (err error) {
	w := r.walker()
	var last [store.NumKeyspaces][]byte
	w.record = func(rec record) {
		if err != nil || !rec.sound {
			return
		}
		inOrder := bytes.Compare(rec.key, last[rec.ks]) > 0 || last[rec.ks] == nil
		if inOrder {
			last[rec.ks] = rec.key
		}
		err = fn(rec.ks, rec.key, rec.value, inOrder)
	}
	w.gap = func(store.Keyspace) {}
	w.walk()
	for _, rec := range r.found.proven {
		if err == nil {
			err = fn(rec.ks, rec.key, rec.value, false)
		}
	}
	return err
}

// Salvage makes a store of the newest format in dir, as Restore does, of what can be read of another store: path is the directory of a store, or a file that
// Snapshot wrote. It changes nothing there. fill gets a new, empty store and fills it. The store, and directories that Salvage makes, get the owner of the file.
//
// Errors about path are those of Open, *store.DamagedError if nothing can be read; the others are those of fill, *store.NoRoomError, and *TargetError about dir.
func Salvage(path, dir string, opts Options, fill func(from *Remains, to *Store) error) (err error) {
	from, err := openRemains(path, opts.withDefaults())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, from.close()) }()
	var filled error
	err = makeStore(dir, from.path, func(temp string, made []string) error {
		if err := errors.Join(os.RemoveAll(temp), giveAway(from.info, made), requireRoom(filepath.Dir(temp), from.found.bytes)); err != nil {
			return err
		}
		if err := from.createLike(temp); err != nil {
			return err
		}
		return prepareStore(temp, opts.withDefaults(), func(to *Store) error {
			filled = fill(from, to)
			return filled
		})
	})
	if err != nil && filled == nil {
		err = &TargetError{err}
	}
	return err
}

// createLike makes an empty store with the owner and the mode of the file.
func (r *Remains) createLike(path string) error {
	file, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	mode := r.info.Mode().Perm() | 0o600 // a backup may be read-only
	if err := errors.Join(chownAs(r.info, file.Chown), file.Chmod(mode), file.Close()); err != nil {
		return err
	}
	return initialize(path, store.Current())
}

// openRemains locks a file and finds out what can be read of it.
func openRemains(path string, opts Options) (_ *Remains, err error) {
	info, err := os.Stat(path)
	if err == nil && info.IsDir() {
		if err := refuseUnfinished(path); err != nil {
			return nil, err
		}
		path = filepath.Join(path, fileName)
		info, err = os.Stat(path)
	}
	switch {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, damaged(path, errors.New("it is not a regular file"))
	}
	file, err := openLocked(path, os.O_RDONLY, 0, syscall.LOCK_SH, opts.LockTimeout)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, file.Close())
		}
	}()
	if info, err = file.Stat(); err != nil {
		return nil, err
	}
	forgetPages(file)
	data, err := mapFile(file)
	if err != nil {
		return nil, err
	}
	r := &Remains{path: path, info: info, data: data}
	r.close = func() error { return errors.Join(syscall.Munmap(data), file.Close()) }
	if err := r.find(); err != nil {
		return nil, errors.Join(err, syscall.Munmap(data))
	}
	return r, nil
}

// find finds the newest commit and surveys its records.
func (r *Remains) find() error {
	problem := checkData(r.data)
	if errors.As(problem, new(*store.NewerFormatError)) {
		return problem
	}
	var found bool
	if err := catchFaults(func() error { found = r.findMeta(errors.As(problem, new(tornError))); return nil }); err != nil || !found {
		return damaged(r.path, cmp.Or(err, errors.New("it has no valid meta page")))
	}
	r.meta, r.found = r.surveyOf(r.meta)
	if r.found.rootLoss > 0 {
		r.tryCommitBefore()
	}
	if r.found.rootLoss == unreadable {
		return damaged(r.path, errors.New("neither the root of its newest commit nor that of the commit before can be read"))
	}
	if have, err := store.ParseFormat(r.found.format); err == nil && have > store.Current().Format() {
		return &store.NewerFormatError{Have: have, Want: store.Current().Format()}
	}
	if r.older == "" {
		r.older = r.found.doubt
	}
	return nil
}

// surveyOf surveys the records of the commit with that meta page.
func (r *Remains) surveyOf(m meta) (meta, *survey) {
	m.pages = min(m.pages, uint64(len(r.data))/m.pageSize)
	of := &Remains{data: r.data, meta: m}
	found := of.surveyWith(of.readFree())
	if found.free != nil && !found.whole() {
		if other := of.surveyWith(nil); other.whole() { // the list of free pages itself is damaged
			found = other
		}
	}
	return m, found
}

// tryCommitBefore takes the commit before the newest if its root leads to more. That commit is still in the file: the pages that a commit replaces become free
// only for the next one (flush.go).
func (r *Remains) tryCommitBefore() {
	var other meta
	valid := false
	_ = catchFaults(func() error {
		if at := r.meta.otherPage(r.data) * r.meta.pageSize; at < uint64(len(r.data)) {
			other, valid = parseMeta(r.data[at:])
		}
		return nil
	})
	if !valid || other.pageSize != r.meta.pageSize || other.tx >= r.meta.tx || other.root == r.meta.root {
		return
	}
	if m, found := r.surveyOf(other); found.rootLoss < r.found.rootLoss {
		r.meta, r.found = m, found
		r.older = "the root of its newest commit cannot be read, so everything is as the commit before left it"
	}
}

// findMeta finds the meta page of the newest commit; if that commit was cut off by a loss of power, that of the commit before. A meta page with one changed byte
// is read as it was, which its checksum proves.
func (r *Remains) findMeta(torn bool) (found bool) {
	newest, found := newestMeta(r.data)
	sizes := []uint64{newest.pageSize}
	if !found {
		sizes = []uint64{4 << 10, 8 << 10, 16 << 10, 64 << 10}
	}
	if torn {
		r.meta, found = parseMeta(r.data[newest.otherPage(r.data)*newest.pageSize:])
		return found
	}
	r.meta = newest
	for _, size := range sizes {
		for page := range uint64(2) {
			at := page*size + headerSize
			if at+metaSize > uint64(len(r.data)) {
				continue
			}
			fields := r.data[at:][:metaSize]
			if _, valid := readMeta(fields); valid {
				continue
			}
			m, mended := mendMeta(fields)
			switch {
			case mended && m.pageSize == size && (!found || m.tx > r.meta.tx):
				r.meta, found = m, true
			case !mended && found:
				r.older = r.whyOlder(fields)
			}
		}
	}
	return found
}

// whyOlder says whether a meta page that cannot be read, with these fields, may have been that of a newer commit than the one that can be read.
func (r *Remains) whyOlder(fields []byte) string {
	if at := noteAt(r.meta.tx+1, int(r.meta.pageSize)); bytes.HasPrefix(r.data[at:], encodeNote(r.meta.tx+1)) {
		return "the meta page of its newest commit is damaged"
	}
	sound := r.data[noteAt(r.meta.tx+1, int(r.meta.pageSize))/int64(r.meta.pageSize)*int64(r.meta.pageSize)+headerSize:]
	if r.meta.torn(fields, sound) {
		return ""
	}
	return "one of its two meta pages is damaged, which may be that of its newest commit"
}

// mendMeta looks for the one byte whose change makes a meta page valid.
func mendMeta(fields []byte) (m meta, mended bool) {
	fields = bytes.Clone(fields)
	for i, was := range fields {
		for by := 1; by < 256; by++ {
			fields[i] = was + byte(by)
			if m, ok := readMeta(fields); ok {
				return m, true
			}
		}
		fields[i] = was
	}
	return meta{}, false
}

// readFree returns the pages in the list of free pages; nil if there is no list that can be read.
func (r *Remains) readFree() (free pageSet) {
	if r.meta.free >= r.meta.pages { // also noFreePage
		return nil
	}
	c := &checker{meta: r.meta, data: r.data, seen: newPageSet(r.meta.pages)}
	if catchFaults(c.freeList) != nil {
		return nil
	}
	free = newPageSet(r.meta.pages)
	page := r.data[r.meta.free*r.meta.pageSize:]
	n, list := uint64(count(page)), page[headerSize:]
	if n == 0xFFFF {
		n, list = order.Uint64(list), list[8:]
	}
	for i := range n {
		free.add(order.Uint64(list[8*i:]))
	}
	return free
}

// survey is what a walk through the file has found.
type survey struct {
	free   pageSet
	of     [store.NumKeyspaces]*state
	bytes  int64  // of the records that can be read, in a file
	format []byte // record of the format

	stale    bool     // the root is that of another commit
	rootLoss int      // keyspaces to which the root does not lead and that cannot be computed
	doubt    string   // why records may be older ones; empty: they are not
	proven   []record // records that only the sums prove
}

// state is how much of a keyspace was found.
type state struct {
	sum    uint64 // of all records, as they are
	last   []byte
	after  *[]byte // last key before something that cannot be read; nil: nothing since
	gaps   []Gap
	broken []Broken
	open   int // number of broken records whose gap has no end yet
	known  bool
	want   uint64 // if known: sum as the newest commit wrote it
}

// whole reports whether all records are there, as far as anybody knows.
func (s *state) whole() bool {
	if s.known {
		return s.sum == s.want
	}
	return len(s.gaps) == 0 && len(s.broken) == 0
}

func (s *survey) whole() bool {
	return !slices.ContainsFunc(s.of[:], func(st *state) bool { return !st.whole() })
}

func (r *Remains) walker() *walk {
	return &walk{checker: checker{meta: r.meta, data: r.data}, free: r.found.free}
}

// surveyWith walks through the file. free are the pages that are known not to be in use.
func (r *Remains) surveyWith(free pageSet) *survey {
	s := &survey{free: free}
	for ks := range s.of {
		s.of[ks] = &state{}
	}
	w := &walk{checker: checker{meta: r.meta, data: r.data}, free: free}
	w.record = s.add
	w.gap = func(ks store.Keyspace) { s.of[ks].lose() }
	w.walk()
	s.setSums(w)
	s.judgeRoot(w)
	for ks, st := range s.of {
		st.end()
		if !st.whole() {
			s.prove(store.Keyspace(ks), w)
		}
		switch {
		case st.known && st.whole():
			st.gaps = nil
			for i := range st.broken {
				st.broken[i].KeyCertain = true
			}
		case st.known && len(st.gaps) == 0 && len(st.broken) == 0:
			st.gaps = []Gap{{}}
		}
	}
	return s
}

// setSums reads the sums, and which keyspaces they should have.
func (s *survey) setSums(w *walk) {
	format, err := store.ParseFormat(s.format)
	if err != nil {
		format = store.Current().Format()
	}
	stored, ok := decodeSumsOf(format, w.sums)
	w.rootBroken = w.rootBroken || w.sums == nil && format >= sumsSince // it may be a part of a root
	switch {
	case ok && stored.tx != w.tx && stored.tx != w.tx+1: // in a copy that Snapshot wrote, and after a commit was taken back, one more
		s.stale = true
		s.doubt = "the root of its newest commit is damaged or lost"
	case !ok && format >= sumsSince:
		s.doubt = "the sums of its newest commit cannot be read, so nobody can tell whether records are older ones"
	}
	if !ok {
		for ks, st := range s.of {
			if !w.buckets[ks] && w.rootBroken { // it may have been there
				st.gaps = []Gap{{}}
			}
		}
		return
	}
	for ks, st := range s.of {
		st.known, st.want = true, stored.sums[ks]
	}
}

// unreadable is the rootLoss of a root that leads to nothing.
const unreadable = store.NumKeyspaces

// judgeRoot counts the keyspaces to which the root does not lead.
func (s *survey) judgeRoot(w *walk) {
	switch {
	case !slices.Contains(w.buckets[:], true):
		s.rootLoss = unreadable
		return
	case s.stale: // nobody knows to which
		s.rootLoss = unreadable - 1
		return
	}
	for ks, st := range s.of {
		missing := !w.buckets[ks] && (w.rootBroken || st.known && st.want != 0)
		if ks := store.Keyspace(ks); missing && !ks.Index() && ks != store.TimerLog && ks != store.Line {
			s.rootLoss++
		}
	}
}

func (s *survey) add(rec record) {
	st := s.of[rec.ks]
	st.sum += rec.sum
	if !rec.sound {
		st.broken = append(st.broken, Broken{Keyspace: rec.ks, Key: rec.key, Gap: Gap{After: st.last}, value: rec.value})
		st.open++
		return
	}
	if rec.ks == store.Meta && string(rec.key) == store.MetaFormat {
		s.format = rec.value
	}
	const perRecord = 16
	s.bytes += int64(len(rec.key) + len(rec.value) + perRecord)
	if st.last == nil || bytes.Compare(rec.key, st.last) > 0 {
		st.closeGaps(rec.key)
		st.last = rec.key
	}
}

// lose notes that something could not be read behind the last record.
func (s *state) lose() {
	if s.after == nil {
		last := s.last
		s.after = &last
	}
}

func (s *state) closeGaps(before []byte) {
	if s.after != nil {
		s.gaps = append(s.gaps, Gap{After: *s.after, Before: before})
		s.after = nil
	}
	for ; s.open > 0; s.open-- {
		s.broken[len(s.broken)-s.open].Gap.Before = before
	}
}

func (s *state) end() { s.closeGaps(nil) }

// prove looks for what is missing in a keyspace: broken records of which only one byte of the key or the seal is wrong, and pages to which no page leads. It
// takes them if the sum of the keyspace is right with them.
func (s *survey) prove(ks store.Keyspace, w *walk) {
	st := s.of[ks]
	sum := st.sum
	var found []record
	var left []Broken
	const most = 1000 // of a page or two; if more is broken, it is not for single bytes
	for i, b := range st.broken {
		var rec record
		ok := i < most
		if ok {
			rec, ok = mend(b)
			st.broken[i].KeyWrong = ok && !bytes.Equal(rec.key, b.Key)
		}
		if !ok {
			left = append(left, b)
			continue
		}
		sum += rec.sum - hashOf(b.Key, b.value)
		found = append(found, rec)
	}
	if st.known && sum != st.want && s.free != nil {
		for _, rec := range w.orphans() {
			if rec.ks == ks {
				sum += rec.sum
				found = append(found, rec)
			}
		}
	}
	if st.known && sum == st.want {
		st.sum, st.broken = sum, left
		s.proven = append(s.proven, found...)
	}
}

// mend looks for the one byte of the key or of the seal of a broken record whose change makes the seal right.
func mend(b Broken) (rec record, ok bool) {
	const most = 64 << 10 // bytes of a value for which thousands of checksums do not take long
	if len(b.value) < store.SealSize || len(b.value) > most {
		return rec, false
	}
	key, value := bytes.Clone(b.Key), bytes.Clone(b.value)
	for _, part := range [][]byte{key, value[:1]} {
		for i, was := range part {
			for by := 1; by < 256; by++ {
				if part[i] = was + byte(by); store.Sealed(b.Keyspace, key, value) {
					return record{ks: b.Keyspace, key: key, value: value, sum: hashOf(key, value), sound: true}, true
				}
			}
			part[i] = was
		}
	}
	var proper store.Batch
	proper.PutSealed(b.Keyspace, b.Key, value[0], value[store.SealSize:])
	right, differ := proper.At(0).Value, 0
	for i := 1; i < store.SealSize; i++ {
		if right[i] != value[i] {
			differ++
		}
	}
	return record{ks: b.Keyspace, key: key, value: right, sum: hashOf(key, right), sound: true}, differ == 1
}
