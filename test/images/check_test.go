//go:build faults && !race

package images

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/verify"
)

var (
	least    = flag.Int("images", 2_500, "images of each test, at least")
	oneOf    = flag.Int("one-of", 0, "of how many images one is checked, drawn by chance; 0: so many that -images are found in one store")
	perLife  = flag.Int("commits", 320, "commits of each store that is recorded, at least")
	seedFlag = flag.Uint64("seed", 0, "of what is drawn by chance; 0 draws one")
)

// image is the content of a file that a disk could hold.
type image struct {
	kind string
	disk disk
	// commit is the number of the commit during which the machine crashed, or after which the disk
	// lied. states are the states that the store may have, as numbers of commits.
	commit int
	states []int
}

// tally counts images by their kind and the outcome.
type tally struct {
	mu     sync.Mutex
	images int
	by     map[string]map[string]int
}

// image counts an image.
func (c *tally) image(kind, outcome string) {
	c.note(kind, outcome)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.images++
}

// note counts an outcome, and returns how often this kind had it.
func (c *tally) note(kind, outcome string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.by[kind] == nil {
		c.by[kind] = map[string]int{}
	}
	c.by[kind][outcome]++
	return c.by[kind][outcome]
}

func (c *tally) log(t *testing.T) {
	t.Helper()
	for _, kind := range slices.Sorted(maps.Keys(c.by)) {
		var parts []string
		sum := 0
		for _, outcome := range slices.Sorted(maps.Keys(c.by[kind])) {
			sum += c.by[kind][outcome]
			parts = append(parts, fmt.Sprintf("%d %s", c.by[kind][outcome], outcome))
		}
		t.Logf("%6d of %s: %s", sum, kind, strings.Join(parts, ", "))
	}
	t.Logf("%6d images", c.images)
}

// checker opens images, one after the other.
type checker struct {
	t      *testing.T
	dir    string
	rec    *recording
	counts *tally
	bolt   *boltCheck
	sound  map[state]bool // states that verify has checked
	seen   int
}

// sample is for those who build images: only one of some is built, which chosen draws before, and
// given to emit.
type sample struct {
	chosen func() bool
	emit   func(image)
}

// imagesPerCommit is how many images can be built of each commit, or somewhat less. Some stores
// need five times as many commits as others until they have had records of every keyspace.
const imagesPerCommit = 30

// checkImages records one workload after the other, and builds images of each. Several checkers,
// one for each processor, check the images.
func checkImages(t *testing.T, build func(*rand.Rand, *recording, sample), check func(*checker, image)) {
	t.Helper()
	counts := &tally{by: map[string]map[string]int{}}
	for seed := cmp.Or(*seedFlag, uint64(time.Now().UnixNano())); counts.images < *least && !t.Failed(); seed++ {
		t.Logf("seed %d", seed)
		rnd := rand.New(rand.NewPCG(seed, 0))
		rec := recordWorkload(t, rnd, *perLife)
		one := cmp.Or(*oneOf, max(1, len(rec.commits)*imagesPerCommit / *least))
		images := make(chan image, 16)
		var checkers sync.WaitGroup
		for range runtime.GOMAXPROCS(0) {
			v := &checker{t: t, dir: memory(t), rec: rec, counts: counts, bolt: &boltCheck{t: t}, sound: map[state]bool{}}
			checkers.Go(func() {
				defer v.bolt.close()
				for im := range images {
					check(v, im)
				}
			})
		}
		build(rnd, rec, sample{
			chosen: func() bool { return rnd.IntN(one) == 0 },
			emit:   func(im image) { images <- im },
		})
		close(images)
		checkers.Wait()
		t.Logf("%d commits, the file has up to %d pages", len(rec.commits), rec.pages())
	}
	counts.log(t)
}

// memory makes a directory in memory if the machine has one: only the content of the images
// matters, not how it gets to a disk.
func memory(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "lessor-images-") //nolint:usetesting // t.TempDir is not in memory
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

func (r *recording) pages() (n int64) {
	for _, c := range r.commits {
		for _, w := range c.pages {
			n = max(n, w.at/pageSize+1)
		}
	}
	return n
}

// put writes an image to the checker's directory.
func (v *checker) put(im image) (path string) {
	v.t.Helper()
	path = filepath.Join(v.dir, fileName)
	_ = os.Remove(path) // the one before
	if err := errors.Join(os.WriteFile(path, im.disk.content, 0o600), os.Truncate(path, im.disk.size)); err != nil {
		v.t.Error(err)
	}
	return path
}

// fail fails the test, and keeps the first few images of each kind.
func (v *checker) fail(im image, format string, args ...any) {
	v.t.Helper()
	const maxFailures = 5
	if v.seen++; v.counts.note(im.kind, "FAILED") > maxFailures {
		return
	}
	name := filepath.Join(v.t.ArtifactDir(), fmt.Sprintf("image-%d-%d.db", im.commit, v.seen))
	if err := errors.Join(os.WriteFile(name, im.disk.content, 0o600), os.Truncate(name, im.disk.size)); err != nil {
		v.t.Error(err)
	}
	v.t.Errorf("%s, commit %d: %s; kept as %s", im.kind, im.commit, fmt.Sprintf(format, args...), name)
}

// number returns after how many commits the store had a state; -1 if it never had it.
func (v *checker) number(s state) int { return slices.Index(v.rec.states, s) }

// crash checks that an image opens in one of its states.
func (v *checker) crash(im image) {
	v.put(im)
	st, err := boltstore.Open(v.dir, boltstore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		v.fail(im, "the store does not open: %v", err)
		return
	}
	defer func() { _ = st.Close() }()
	s, err := stateOf(st)
	at := slices.IndexFunc(im.states, func(n int) bool { return v.rec.states[n] == s })
	switch {
	case err != nil:
		v.fail(im, "%v", err)
		return
	case at < 0:
		v.fail(im, "the store has the state of commit %d (%v), want that of one of %v", v.number(s), s, im.states)
		return
	}
	outcome := "as before the commit"
	if im.states[at] > im.commit {
		outcome = "as after it"
	}
	v.counts.image(im.kind, outcome)
	v.verify(im, st, s)
	if v.seen++; v.seen%continueEvery == 0 {
		v.checkContinues(im, st, s)
	}
}

// verify verifies the store, once for each state.
func (v *checker) verify(im image, st *boltstore.Store, s state) {
	if v.sound[s] {
		return
	}
	v.sound[s] = true
	if found, err := findings(st); err != nil || len(found) > 0 {
		v.fail(im, "verify found %q, error %v, want nothing", found, err)
	}
}

func findings(st *boltstore.Store) (all []string, err error) {
	err = st.View(func(r store.Reader) error {
		_, err := verify.Store(r, func(f verify.Finding) { all = append(all, fmt.Sprintf("%v %x: %s", f.Keyspace, f.Key, f.Problem)) })
		return err
	})
	return all, err
}

// continueEvery says that one image in so many is written to.
const continueEvery = 20

// checkContinues commits to an image and opens it again, to check that what a crash left of the
// commit before does no harm.
func (v *checker) checkContinues(im image, st *boltstore.Store, want state) {
	var b store.Batch
	key, value := []byte("later"), make([]byte, 30_000)
	b.Put(store.Output, key, value)
	if err := errors.Join(st.Commit(v.t.Context(), &b), st.Close()); err != nil {
		v.fail(im, "the next commit failed: %v", err)
		return
	}
	st, err := boltstore.Open(v.dir, boltstore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		v.fail(im, "after another commit the store does not open: %v", err)
		return
	}
	defer func() { _ = st.Close() }()
	want.records++
	want.sum += hash(store.Output, key, value)
	if s, err := stateOf(st); err != nil || s != want {
		v.fail(im, "after another commit the store has the state %v (%v), want %v", s, err, want)
	}
	v.counts.note("these, gone on with", "as they should be")
}

// Outcomes of an image of a lying disk.
const (
	refused  = "refused at the start"
	found    = "found by verify"
	harmless = "harmless"
	back     = "one commit back"
	silent   = "silently wrong"
)

// lie checks that an image is refused, or has its state, or is found damaged by verify.
func (v *checker) lie(im image) {
	path := v.put(im)
	outcome, s, err := v.judge(im)
	switch {
	case err != nil:
		v.fail(im, "%v", err)
		return
	case outcome == silent && (im.kind == lostMeta || im.kind == lostNote) && s == v.rec.states[im.commit]:
		outcome = back
	case outcome == silent:
		v.fail(im, "neither the start nor verify noticed that the store has the state of commit %d (%v)", v.number(s), s)
		return
	}
	v.counts.image(im.kind, outcome)
	const asked = 8 // one in so many: bbolt's process dies of most of them
	if v.seen++; outcome != harmless && v.seen%asked == 0 {
		v.counts.note("these, for bbolt's own check", v.bolt.says(path))
	}
}

// judge opens an image as the coordinator does, and verifies it as lessor verify does.
func (v *checker) judge(im image) (outcome string, s state, err error) {
	st, err := boltstore.Open(v.dir, boltstore.Options{Logger: slog.New(slog.DiscardHandler)})
	damaged, corrupt := new(store.DamagedError), new(store.CorruptError)
	switch {
	case errors.As(err, &damaged), errors.As(err, &corrupt):
		return refused, s, nil
	case err != nil:
		return "", s, fmt.Errorf("it is refused without a name for what is wrong: %w", err)
	}
	defer func() { err = errors.Join(err, st.Close()) }()
	if s, err = stateOf(st); err != nil {
		return "", s, err
	}
	if s == v.rec.states[im.states[0]] {
		if v.seen%continueEvery == 0 {
			v.checkContinues(im, st, s)
		}
		return harmless, s, nil
	}
	wrong, err := findings(st)
	if errors.As(err, &corrupt) || len(wrong) > 0 {
		return found, s, nil
	}
	return silent, s, err
}
