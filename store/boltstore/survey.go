package boltstore

import (
	"bytes"
	"slices"

	"github.com/lessor-dev/lessor/store"
)

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
	n, list := listOf(r.data[r.meta.free*r.meta.pageSize:])
	for i := range n {
		free.add(order.Uint64(list[8*i:]))
	}
	return free
}

// surveyWith walks through the file. free are the pages that are known not to be in use.
func (r *Remains) surveyWith(free pageSet) *survey {
	s := &survey{free: free}
	for ks := range s.of {
		s.of[ks] = &state{}
	}
	w := r.walker(free)
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
	case ok && stored.tx != w.tx && stored.tx != w.tx+1:
		// in a copy that Snapshot wrote, and after a commit was taken back, one more
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
		st.broken = append(st.broken, Broken{
			Keyspace: rec.ks,
			Key:      rec.key,
			Gap:      Gap{After: st.last},
			value:    rec.value,
		})
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

// prove looks for what is missing in a keyspace: broken records of which only one byte of the key
// or the seal is wrong, and pages to which no page leads. It takes them if the sum of the keyspace
// is right with them.
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

// mend looks for the one byte of the key or of the seal of a broken record whose change makes the
// seal right.
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
