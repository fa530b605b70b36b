//go:build faults && !race

package images

import (
	"math/bits"
	"math/rand/v2"
	"testing"
)

// crashes builds the images that a crash can leave: all that was synced is on the disk, and any
// part of what was written since.
type crashes struct {
	rnd *rand.Rand
	sample
}

// of builds images of a crash during a commit, on a disk with all commits before it. The store must
// have the state before the commit or after it; after it only if all of the commit is on the disk.
// The note that the commit before was durable may be on the disk or not.
func (cr crashes) of(before disk, c commit, number int) {
	at := func(kind string, build func() disk, states ...int) {
		if cr.chosen() {
			cr.emit(image{kind: kind, disk: build(), commit: number, states: states})
		}
	}
	d := func() disk {
		d := before.clone()
		if cr.rnd.IntN(2) == 0 {
			clear(d.content[c.meta.at+pageSize/2:][:pageSize/2])
		}
		return d
	}
	cut := d()
	at("cut off between writes", cut.clone, number)
	cut.size = c.size
	for _, w := range c.pages {
		cut.write(w)
		at("cut off between writes", cut.clone, number)
	}
	at("cut off before the sync", func() disk { return cr.with(cut.clone(), c.meta) }, number+1)
	either := func() bool { return cr.rnd.IntN(2) == 0 }
	allButOne := func() func() bool {
		left := cr.rnd.IntN(len(c.pages))
		return func() bool { left--; return left != -1 }
	}
	for range 6 {
		at("some of the pages", func() disk { return cr.some(d(), c, either) }, number)
		at("torn pages", func() disk { return cr.torn(d(), c) }, number)
		if c.first {
			continue
		}
		at("some of the pages, and the meta page", func() disk { return cr.with(cr.some(d(), c, either), c.meta) }, number, number+1)
		at("all pages but one, and the meta page", func() disk { return cr.with(cr.some(d(), c, allButOne()), c.meta) }, number, number+1)
		at("torn pages, and the meta page", func() disk { return cr.with(cr.torn(d(), c), c.meta) }, number, number+1)
	}
	if !c.first {
		none := func() bool { return false }
		at("the meta page alone", func() disk { return cr.with(cr.some(d(), c, none), c.meta) }, number, number+1)
	}
	for range 12 {
		if !cr.chosen() {
			continue
		}
		from := cut
		if !c.first && either() {
			from = cr.some(d(), c, either)
		}
		// one wrong bit: see TestLyingDisk
		if torn := cr.tornMeta(from, c.meta); bitsBetween(torn.area(c.meta)[:metaSize], c.meta.data) != 1 {
			cr.emit(image{kind: "torn meta page", disk: torn, commit: number, states: []int{number, number + 1}})
		}
	}
}

// with adds the meta page.
func (cr crashes) with(d disk, meta write) disk {
	d.write(meta)
	return d
}

// some writes those pages of a commit for which there returns true. The new size of the file is
// synced before anything is written.
func (cr crashes) some(d disk, c commit, there func() bool) disk {
	d.size = c.size
	for _, w := range c.pages {
		if there() {
			d.write(w)
		}
	}
	return d
}

// torn writes some sectors of each page: random ones, or those up to or from a random one.
func (cr crashes) torn(d disk, c commit) disk {
	d.size = c.size
	const sectors = pageSize / sectorSize
	for _, w := range c.pages {
		area, from, to := d.area(w), 0, cr.rnd.IntN(sectors+1)
		if cr.rnd.IntN(2) == 0 {
			from, to = to, sectors
		}
		scattered := cr.rnd.IntN(2) == 0
		for s := range sectors {
			if scattered && cr.rnd.IntN(2) == 0 || !scattered && from <= s && s < to {
				copy(area[s*sectorSize:][:sectorSize], w.data[s*sectorSize:])
			}
		}
	}
	return d
}

// metaSize is the length of the part of a meta page that is in use.
const metaSize = 80

// tornMeta writes the meta page up to a random byte, or from it on.
func (cr crashes) tornMeta(d disk, w write) disk {
	d = d.clone()
	area, at := d.area(w), cr.rnd.IntN(metaSize+1)
	if cr.rnd.IntN(4) == 0 {
		copy(area[at:], w.data[at:])
	} else {
		copy(area[:at], w.data)
	}
	return d
}

func bitsBetween(a, b []byte) (n int) {
	for i := range a {
		n += bits.OnesCount8(a[i] ^ b[i])
	}
	return n
}

// TestCrash: whatever part of its last writes a crash leaves, a store opens with all that was
// acknowledged, and with the last commit wholly or not at all (A6).
func TestCrash(t *testing.T) {
	checkImages(t, func(rnd *rand.Rand, rec *recording, s sample) {
		d := rec.start.clone()
		for i, c := range rec.commits {
			crashes{rnd, s}.of(d, c, i)
			d.commit(c)
		}
	}, (*checker).crash)
}
