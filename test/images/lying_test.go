//go:build faults && !race

package images

import (
	"bytes"
	"math/rand/v2"
	"testing"
)

// lies builds the images that a disk can hold that answered every sync with success, and lied.
type lies struct {
	rnd *rand.Rand
	sample
	old map[int64][][]byte // versions of each page, oldest first; the last one is on the disk
}

// keptVersions is how many versions are kept of a page.
const keptVersions = 8

// recordVersions notes the pages of a commit that is on the disk.
func (l *lies) recordVersions(d disk, c commit) {
	for _, w := range append(c.pages[:len(c.pages):len(c.pages)], c.meta) {
		if l.old[w.at] == nil && int(w.at) < len(d.content) {
			l.old[w.at] = [][]byte{bytes.Clone(d.content[w.at:][:pageSize])}
		}
		l.old[w.at] = append(l.old[w.at], w.data)
		if all := l.old[w.at]; len(all) > keptVersions {
			l.old[w.at] = all[1:]
		}
	}
}

// of builds images of the disk after a commit. Everything is on the disk and was synced, except for
// one lie.
func (l *lies) of(d disk, c commit, number int) {
	lie := func(kind string, tell func(d *disk)) {
		if !l.chosen() {
			return
		}
		changed := d.clone()
		if tell(&changed); bytes.Equal(changed.content, d.content) {
			return // the lie changed nothing
		}
		l.emit(image{kind: kind, disk: changed, commit: number, states: []int{number + 1}})
	}
	for _, w := range c.pages {
		lie("a page of the last commit is lost", func(d *disk) { l.lose(d, w.at) })
	}
	lie("a sector of the last commit is lost", func(d *disk) {
		w := c.pages[l.rnd.IntN(len(c.pages))]
		before, s := l.before(w.at), l.rnd.IntN(pageSize/sectorSize)*sectorSize
		copy(d.area(w)[s:][:sectorSize], before[s:])
	})
	for range 6 {
		lie("an old version of a page", func(d *disk) { l.restoreOldVersion(d) })
		lie("a flipped bit", func(d *disk) { l.flip(d, 2*pageSize, len(d.content)) })
	}
	for range 2 {
		lie("a page of zeros", func(d *disk) { clear(l.page(d)) })
		lie("two pages swapped", func(d *disk) { swap(l.page(d), l.page(d)) })
		lie("a page in the place of another", func(d *disk) { copy(l.page(d), l.page(d)) })
		lie("a flipped bit in the newest meta page", func(d *disk) { l.flip(d, int(c.meta.at), int(c.meta.at)+metaSize) })
	}
	other := pageSize - c.meta.at
	lie("a flipped bit in the older meta page", func(d *disk) { l.flip(d, int(other), int(other)+metaSize) })
	lie("the newest meta page of zeros", func(d *disk) { clear(d.area(c.meta)) })
	lie("the older meta page of zeros", func(d *disk) { clear(d.content[other:][:pageSize]) })
	lie("the meta pages swapped", func(d *disk) { swap(d.content[:pageSize], d.content[pageSize:2*pageSize]) })
	if all := l.old[c.meta.at]; len(all) > 2 {
		lie("a meta page of long ago", func(d *disk) { copy(d.area(c.meta), all[l.rnd.IntN(len(all)-2)]) })
	}
	if !c.first {
		for range 2 {
			lie(lostNote, func(d *disk) {
				clear(d.area(c.note))
				l.lose(d, c.pages[l.rnd.IntN(len(c.pages))].at)
			})
		}
	}
	lie(lostMeta, func(d *disk) { l.lose(d, c.meta.at) })
}

// In these cases nothing in the file shows that it was not a crash before the last sync. The store
// then has the whole state before the last commit.
const (
	lostMeta = "the last meta page is lost"
	lostNote = "a page of the last commit is lost, and the note that it was durable"
)

// before returns the last version but one of a page.
func (l *lies) before(at int64) []byte {
	if all := l.old[at]; len(all) > 1 {
		return all[len(all)-2]
	}
	return make([]byte, pageSize)
}

func (l *lies) lose(d *disk, at int64) { copy(d.content[at:], l.before(at)) }

// page returns a random page that is no meta page.
func (l *lies) page(d *disk) []byte {
	n := 2 + l.rnd.IntN(len(d.content)/pageSize-2)
	return d.content[n*pageSize:][:pageSize]
}

// restoreOldVersion replaces a random page by an older version of it.
func (l *lies) restoreOldVersion(d *disk) {
	for {
		at := int64(2+l.rnd.IntN(len(d.content)/pageSize-2)) * pageSize
		if all := l.old[at]; len(all) > 1 {
			copy(d.content[at:], all[l.rnd.IntN(len(all)-1)])
			return
		}
	}
}

func (l *lies) flip(d *disk, from, to int) {
	d.content[from+l.rnd.IntN(to-from)] ^= 1 << l.rnd.IntN(8)
}

func swap(a, b []byte) {
	was := bytes.Clone(a)
	copy(a, b)
	copy(b, was)
}

// TestLyingDisk: a disk lost, changed or exchanged what it had said to be written. The store is
// refused, or lessor verify finds the damage, or what is read is all that was acknowledged (A6).
func TestLyingDisk(t *testing.T) {
	checkImages(t, func(rnd *rand.Rand, rec *recording, s sample) {
		d := rec.start.clone()
		l := &lies{rnd: rnd, sample: s, old: map[int64][][]byte{}}
		for i, c := range rec.commits {
			l.recordVersions(d, c)
			d.commit(c)
			l.of(d, c, i)
		}
	}, (*checker).lie)
}
