package boltstore

import (
	"bytes"
	"cmp"
	"errors"
	"os"
	"path/filepath"
	"syscall"

	"github.com/lessor-dev/lessor/store"
)

// Remains are the records of a file that may be damaged: its pages, or its records. bbolt cannot
// read such a file: a damaged page may lead it into a panic, or into an endless recursion. So the
// pages are read here, as the check reads them, but what is damaged is left out.
//
// The sums tell whether the records of a keyspace are all there. What cannot be certain without
// them counts only if they prove it: a record with one changed byte in its key or in its seal, and
// pages to which no page leads any more.
type Remains struct {
	path  string
	info  os.FileInfo
	data  []byte
	close func() error

	meta  meta
	older string
	found *survey
}

// Gap is a range of keys in which records may be missing. It does not include its ends; nil means
// that there is no end.
type Gap struct{ After, Before []byte }

// Holds reports whether a key is in the gap.
func (g Gap) Holds(key []byte) bool {
	return bytes.Compare(key, g.After) > 0 && (g.Before == nil || bytes.Compare(key, g.Before) < 0)
}

// Broken is a record that is not what was written.
type Broken struct {
	Keyspace store.Keyspace
	Key      []byte
	// KeyCertain means that the key is what was written, and only the value is not. Otherwise the
	// record may be any one in the gap.
	KeyCertain bool
	KeyWrong   bool // another key, which differs in one byte, has that seal
	Gap        Gap

	value []byte
}

// Keyspace says how much of a keyspace can be read.
type Keyspace struct {
	// Gaps are where records may be missing beside the broken ones. A Gap without ends means that
	// some are missing, and nobody knows which, or that older ones may be in the place of others.
	Gaps   []Gap
	Broken []Broken
}

// Keyspace says how much of a keyspace can be read.
func (r *Remains) Keyspace(ks store.Keyspace) Keyspace {
	return Keyspace{Gaps: r.found.of[ks].gaps, Broken: r.found.of[ks].broken}
}

// Older says why the records may be those of an older commit than the newest one; empty: they are
// not.
func (r *Remains) Older() string { return r.older }

// Path is the path of the file.
func (r *Remains) Path() string { return r.path }

// Records calls fn with each record that can be read, and whose seal is right, until fn returns an
// error. inOrder means that the key is higher than all before of its keyspace; a record that is not
// in order may be there twice, with another value. The slices are memory of the file, which the
// caller must not change.
func (r *Remains) Records(fn func(ks store.Keyspace, key, value []byte, inOrder bool) error) (err error) {
	w := r.walker(r.found.free)
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

func (r *Remains) walker(unused pageSet) *walk {
	return &walk{meta: r.meta, data: r.data, unused: unused}
}

// Salvage makes a store of the newest format in dir, as Restore does, of what can be read of
// another store: path is the directory of a store, or a file that Snapshot wrote. It changes
// nothing there. fill gets a new, empty store and fills it. The store, and directories that Salvage
// makes, get the owner of the file.
//
// Errors about path are those of Open, *store.DamagedError if nothing can be read; the others are
// those of fill, *store.NoRoomError, and *TargetError about dir.
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

// tryCommitBefore takes the commit before the newest if its root leads to more. That commit is
// still in the file: the pages that a commit replaces become free only for the next one (flush.go).
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

// findMeta finds the meta page of the newest commit; if that commit was cut off by a loss of power,
// that of the commit before. A meta page with one changed byte is read as it was, which its
// checksum proves.
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

// whyOlder says whether a meta page that cannot be read, with these fields, may have been that of a
// newer commit than the one that can be read.
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
