package salvage_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"hash/fnv"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/salvage"
)

// Where a meta page has its fields.
const (
	metaAt    = 16
	rootAt    = metaAt + 16
	txAt      = metaAt + 48
	metaSumAt = metaAt + 56
)

// metaPages returns the offsets of the meta pages of the newest commit and of the one before.
func metaPages(file []byte) (newest, before int) {
	page := os.Getpagesize()
	if binary.NativeEndian.Uint64(file[txAt:]) > binary.NativeEndian.Uint64(file[page+txAt:]) {
		return 0, page
	}
	return page, 0
}

// rootOf returns the offset of the root to which a meta page leads.
func rootOf(file []byte, meta int) int {
	return int(binary.NativeEndian.Uint64(file[meta+rootAt:])) * os.Getpagesize()
}

// withoutNewest returns a sound file of the commit before the newest: both meta pages lead to it.
func withoutNewest(file []byte) []byte {
	file = bytes.Clone(file)
	newest, before := metaPages(file)
	own := binary.NativeEndian.Uint64(file[newest:])
	copy(file[newest:][:os.Getpagesize()], file[before:])
	binary.NativeEndian.PutUint64(file[newest:], own)
	binary.NativeEndian.PutUint64(file[newest+txAt:], binary.NativeEndian.Uint64(file[before+txAt:])-1)
	sum := fnv.New64a()
	sum.Write(file[newest+metaAt : newest+metaSumAt])
	binary.NativeEndian.PutUint64(file[newest+metaSumAt:], sum.Sum64())
	return file
}

// served returns the file of a store after a coordinator has served it once more: its last commit
// has a task that the one before has not.
func served(t *testing.T, file []byte) (after []byte, last lease.TaskID) {
	t.Helper()
	dir := t.TempDir()
	path := filepath.Join(dir, "lessor.db")
	write(t, path, file)
	synctest.Test(t, func(t *testing.T) {
		st, err := boltstore.Open(dir, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		e, err := engine.Open(st, engine.Config{})
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- e.Run(ctx) }()
		time.Sleep(time.Minute)
		synctest.Wait()
		last = (&filler{t, e}).submit(home, func(s *lease.Spec) { s.Payload = []byte("the last submit") })
		synctest.Wait()
		if after, err = os.ReadFile(path); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := errors.Join(<-done, st.Close()); err != nil {
			t.Fatal(err)
		}
		after = after[:(len(bytes.TrimRight(after, "\x00"))/os.Getpagesize()+1)*os.Getpagesize()]
		if soundContents(t, after).tasks[last] == nil || soundContents(t, withoutNewest(after)).tasks[last] != nil {
			t.Fatalf("task %v is not in the last commit alone", last)
		}
	})
	return after, last
}

// Without the root of the newest commit, everything is as the commit before left it, and that is
// said.
func TestNewestRootLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	world, _ := soundStore(t)
	old, _ := metaPages(world)
	file, _ := served(t, world)
	newest, _ := metaPages(file)
	root, page := rootOf(file, newest), os.Getpagesize()
	for name, damage := range map[string]func([]byte){
		"empty":          func(p []byte) { clear(p) },
		"overwritten":    func(p []byte) { copy(p, bytes.Repeat([]byte("\x07garbage"), page)) },
		"its contents":   func(p []byte) { clear(p[16:]) },
		"a page of data": func(p []byte) { copy(p, file[root-page:][:page]) },
		"an older root":  func(p []byte) { copy(p[16:], world[rootOf(world, old)+16:][:page-16]) },
		"its first half": func(p []byte) { clear(p[:page/2]) },
	} {
		damaged := bytes.Clone(file)
		damage(damaged[root:][:page])
		s, err := salvageFile(t, dir, damaged)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if len(s.items) != 1 || s.items[0].Kind != salvage.KindCommit || !s.report.Unknown {
			t.Errorf("%s: %s, and tasks may be missing: %t; want one item, that the newest commit is lost",
				name, text(s.items), s.report.Unknown)
		}
		s.requireTrue(t, soundContents(t, withoutNewest(file)))
		s.requireNew(t, soundContents(t, file))
		requireServes(t, s.dir)
	}
}

// Whatever page is in the place of the root of the newest commit, everything is kept of that commit
// or the one before. It may be a part of that root, which can have several pages.
func TestOtherPageInPlaceOfRoot(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	world, _ := soundStore(t)
	file, last := served(t, world)
	before := map[bool]contents{false: soundContents(t, file), true: soundContents(t, withoutNewest(file))}
	newest, _ := metaPages(file)
	root, page := rootOf(file, newest), os.Getpagesize()
	for at := 2 * page; at < len(file); at += page {
		damaged := bytes.Clone(file)
		copy(damaged[root:][:page], file[at:])
		if at == root || bytes.Equal(damaged, file) {
			continue
		}
		s, err := salvageFile(t, dir, damaged)
		lost := s.tasks[last] == nil
		if err != nil || lost != s.older || len(s.tasks) != len(before[lost].tasks) {
			t.Fatalf("page %d: %v, left out: %s; want one of the two commits", at/page, err, text(s.items))
		}
		if s.requireTrue(t, before[lost]); t.Failed() {
			t.Fatalf("page %d: %s", at/page, text(s.items))
		}
	}
}

// Whatever part of the root of the newest commit is damaged, what is kept is that of one commit.
func TestRootDamagedInPart(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	world, _ := soundStore(t)
	file, last := served(t, world)
	before := map[bool]contents{false: soundContents(t, file), true: soundContents(t, withoutNewest(file))}
	newest, _ := metaPages(file)
	root, page := rootOf(file, newest), os.Getpagesize()
	const part = 64
	older := 0
	for at := 0; at < page; at += part {
		damaged := bytes.Clone(file)
		for i := range min(part, page-at) {
			damaged[root+at+i] ^= 0x55
		}
		s, err := salvageFile(t, dir, damaged)
		if err != nil {
			t.Fatalf("byte %d: %v", at, err)
		}
		lost := s.older && s.tasks[last] == nil
		s.requireTrue(t, before[lost])
		s.requireNew(t, before[false])
		if lost {
			older++
		}
		if t.Failed() {
			t.Fatalf("byte %d: %s", at, text(s.items))
		}
	}
	if older == 0 {
		t.Error("the commit before was never taken")
	}
}

// If no root can be read, no store is made.
func TestNoRoot(t *testing.T) {
	dir := t.TempDir()
	file, _ := soundStore(t)
	for _, meta := range []int{0, os.Getpagesize()} {
		clear(file[rootOf(file, meta):][:os.Getpagesize()])
	}
	s, err := salvageFile(t, dir, file)
	if !errors.As(err, new(*store.DamagedError)) || !strings.Contains(err.Error(), "root") {
		t.Errorf("%v, want a *store.DamagedError about the root", err)
	}
	if _, err := os.Stat(s.dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want that it does not exist", s.dir, err)
	}
}

// If a store has no task and no workspace that can be read, but may have had some, no store is made
// of what else there is.
func TestNoTaskNoWorkspace(t *testing.T) {
	dir := t.TempDir()
	file, before := soundStore(t)
	for _, ks := range []store.Keyspace{store.Spec, store.Space} {
		for key, value := range before.records[ks] {
			for _, at := range places(file, key, value) {
				clear(file[at:][:len(key)+len(value)])
			}
		}
	}
	if s, err := salvageFile(t, dir, file); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("%v, %d tasks, left out: %s; want a *store.DamagedError", err, len(s.tasks), text(s.items))
	}
}

// A store that was served has an epoch after a salvage, even if it never had a task.
func TestEpochOfEmptyStore(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		st, err := boltstore.Open(dir, boltstore.Options{})
		if err != nil {
			t.Fatal(err)
		}
		_, err = engine.Open(st, engine.Config{})
		if err := errors.Join(err, st.Close()); err != nil {
			t.Fatal(err)
		}
	})
	file, err := os.ReadFile(filepath.Join(dir, "lessor.db"))
	if err != nil {
		t.Fatal(err)
	}
	before := soundContents(t, file)
	key := store.MetaIdentity
	value := before.records[store.Meta][key]
	s, err := salvageFile(t, dir, damage(file, key, value, len(key)+len(value)-1))
	if err != nil || len(s.tasks)+len(s.next) > 0 {
		t.Fatalf("%v, left out: %s", err, text(s.items))
	}
	s.requireNew(t, before)
}

// Without its identity, a store gets an epoch beyond all that its leases and the ids of its tasks
// tell of, whatever the clock says.
func TestEpochWithoutIdentity(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "restored", "lessor.db")
	file, _ := soundStore(t)
	write(t, filepath.Join(dir, "world.db"), file)
	const epoch = 300_000_000 // of a restore when the clock was years ahead
	err := boltstore.Restore(filepath.Join(dir, "world.db"), filepath.Dir(path), boltstore.Options{}, func(st *boltstore.Store) error {
		var b store.Batch
		err := st.View(func(r store.Reader) error {
			_, err := records.MakeIndependent(&b, r, lease.WallOf(time.Date(2024, 1, 1, 0, 0, epoch, 0, time.UTC)))
			return err
		})
		return errors.Join(err, st.Commit(t.Context(), &b))
	})
	if err != nil {
		t.Fatal(err)
	}
	if file, err = os.ReadFile(path); err != nil {
		t.Fatal(err)
	}
	file, _ = served(t, file)
	before := soundContents(t, file)
	if before.epoch < epoch {
		t.Fatalf("the epoch is %d", before.epoch)
	}
	key := store.MetaIdentity
	value := before.records[store.Meta][key]
	s, err := salvageFile(t, dir, damage(file, key, value, len(key)+len(value)-1))
	if err != nil || !slices.ContainsFunc(s.items, func(i salvage.Item) bool { return i.Kind == salvage.KindIdentity }) {
		t.Fatalf("%v, left out: %s; want the identity", err, text(s.items))
	}
	s.requireTrue(t, before)
}
