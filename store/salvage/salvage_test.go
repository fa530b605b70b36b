package salvage_test

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/boltstore"
	"github.com/lessor-dev/lessor/store/records"
	"github.com/lessor-dev/lessor/store/salvage"
)

// The world has records of every keyspace that is in use, so that the other tests damage all of
// them.
func TestWorldHasAllKeyspaces(t *testing.T) {
	_, before := soundStore(t)
	for ks := range store.Keyspace(store.NumKeyspaces) {
		unused := ks == store.Line || ks == store.Idempotency // of older formats
		if n := len(before.records[ks]); (n == 0) != unused {
			t.Errorf("%d records in %v, want some: %t", n, ks, !unused)
		}
	}
}

// Of a sound store nothing is left out, whatever its format.
func TestSoundStoreIsKeptWhole(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	sound, before := soundStore(t)
	files := map[string][]byte{"the world": sound}
	for format := 1; format <= 10; format++ {
		name := fmt.Sprintf("../../coordinator/engine/testdata/format%d.db.gz", format)
		files[name] = unpacked(t, name)
	}
	for name, file := range files {
		s, err := salvageFile(t, dir, file)
		if err != nil || len(s.items) > 0 {
			t.Errorf("%s: %v, left out: %s; want nothing", name, err, text(s.items))
		}
		if name == "the world" {
			s.requireTrue(t, before)
		}
		if len(s.tasks) == 0 || int(s.report.Total) != len(s.tasks) {
			t.Errorf("%s: %d tasks, and the report says %d", name, len(s.tasks), s.report.Total)
		}
		s.requireEndedCounted(t)
		requireServes(t, s.dir)
	}
}

// requireEndedCounted checks that the queues of the new store count all ended tasks by their state,
// also those of older formats.
func (s *salvaged) requireEndedCounted(t *testing.T) {
	t.Helper()
	st, err := boltstore.OpenReadOnly(s.dir, boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = st.Close() }()
	var has, counted [3]uint64
	for _, task := range s.tasks {
		if task.Rest.Final() {
			has[task.Rest-lease.Completed]++
		}
	}
	err = st.View(func(r store.Reader) error {
		return records.Queues(r, func(q records.Queue) error {
			for i, n := range []uint64{q.Completed, q.Failed, q.Cancelled} {
				counted[i] += n
			}
			if q.Older != 0 {
				t.Errorf("queue %q counts %d ended tasks of an older format", q.Name, q.Older)
			}
			return nil
		})
	})
	if err != nil || counted != has {
		t.Errorf("the queues count %d COMPLETED, FAILED and CANCELLED tasks (%v), and there are %d", counted, err, has)
	}
}

func unpacked(t *testing.T, name string) []byte {
	t.Helper()
	file, err := os.Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	r, err := gzip.NewReader(file)
	if err != nil {
		t.Fatal(err)
	}
	content, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return content
}

// requireServes checks that an engine starts on a store, ends the leases, and gives a new task an
// id that was never given out.
func requireServes(t *testing.T, dir string) {
	t.Helper()
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
		f := &filler{t, e}
		before := contentsOf(t, st)
		for _, name := range []engine.Space{home, small} {
			id := f.submit(name, func(*lease.Spec) {})
			if id.Seq < uint64(e.Epoch())<<20 {
				t.Errorf("a new task gets the id %v, which may have been given out before", id)
			}
		}
		synctest.Wait()
		for id, task := range contentsOf(t, st).tasks {
			if task.Lease != nil && before.tasks[id] != nil {
				t.Errorf("task %v still has its lease", id)
			}
		}
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
		requireSound(t, st)
		if err := st.Close(); err != nil {
			t.Error(err)
		}
	})
}

// places returns the offsets of a record in a file, of the present version and of older ones.
func places(file []byte, key, value string) (all []int) {
	for at := 0; ; {
		i := bytes.Index(file[at:], []byte(key+value))
		if i < 0 {
			return all
		}
		all = append(all, at+i)
		at += i + 1
	}
}

// damage changes one byte of a record, counted from the begin of its key.
func damage(file []byte, key, value string, at int) []byte {
	file = bytes.Clone(file)
	for _, place := range places(file, key, value) {
		file[place+at] ^= 0x55
	}
	return file
}

// One damaged byte in a value costs at most the task whose record it is, or a part of it, and that
// is said. Everything else is as it was.
func TestOneDamagedValue(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	for ks := range store.Keyspace(store.NumKeyspaces) {
		n := 0
		for key, value := range before.records[ks] {
			if ks.Index() || ks == store.Meta {
				continue
			}
			if n++; n > 2 {
				break
			}
			what := fmt.Sprintf("%v %x", ks, key)
			s, err := salvageFile(t, dir, damage(file, key, value, len(key)+store.SealSize+(len(value)-store.SealSize)/2))
			if err != nil {
				t.Errorf("%s: %v", what, err)
				continue
			}
			s.requireTrue(t, before)
			id, _ := store.TaskOf(ks, []byte(key))
			lost := 0
			want := ""
			switch ks {
			case store.Spec, store.Task, store.Lease, store.Output, store.Checkpoint:
				lost, want = 1, salvage.KindTask
			case store.Failure, store.Feedback, store.Discarded:
				want = partKinds[ks]
			case store.Ledger:
				if before.tasks[id] != nil {
					want = salvage.KindReport
				}
			case store.KeyLog:
				if before.tasks[id] != nil {
					want = salvage.KindKey
				}
			}
			if want != "" && !s.has(id, want) {
				t.Errorf("%s: no %s is named for %v, only %s", what, want, id, text(s.items))
			}
			if len(before.tasks)-len(s.tasks) != lost || int(s.report.LeftOut) != lost {
				t.Errorf("%s: %d tasks of %d, and %d are said to be left out; want %d left out: %s",
					what, len(s.tasks), len(before.tasks), s.report.LeftOut, lost, text(s.items))
			}
			if len(s.items) > 1 || len(s.items) == 0 && ks != store.TimerLog && ks != store.KeyLog && ks != store.KeySegment && ks != store.Ledger && ks != store.Queue {
				t.Errorf("%s: %s; want one item", what, text(s.items))
			}
			if n == 1 {
				requireServes(t, s.dir)
			}
		}
	}
}

// Damage of one byte of a key or a seal costs nothing, because the sums prove what the byte was.
// Nor does damage of an index.
func TestDamageThatCostsNothing(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	for ks := range store.Keyspace(store.NumKeyspaces) {
		n := 0
		for key, value := range before.records[ks] {
			if n++; n > 1 {
				break
			}
			for _, at := range []int{len(key) - 1, len(key), len(key) + 2} {
				if at >= len(key) && ks.Index() {
					continue
				}
				s, err := salvageFile(t, dir, damage(file, key, value, at))
				if err != nil || len(s.items) > 0 {
					t.Errorf("%v %x, byte %d: %v, left out: %s; want nothing", ks, key, at, err, text(s.items))
				}
				s.requireTrue(t, before)
			}
		}
	}
}

// Damage of one byte in the header of a page, or in the name of a bucket, costs nothing: both can
// be told otherwise.
func TestDamageOfStructure(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	page := os.Getpagesize()
	for n := 2; n < len(file)/page; n++ {
		const typeAt, countAt, free = 8, 10, 0x10
		if binary.NativeEndian.Uint64(file[n*page:]) != uint64(n) || file[n*page+typeAt] == free {
			continue // it belongs to the page before, or is the list of free pages
		}
		damaged := bytes.Clone(file)
		damaged[n*page+[]int{0, typeAt, countAt}[n%3]] ^= 0x40
		s, err := salvageFile(t, dir, damaged)
		if err != nil || len(s.items) > 0 {
			t.Errorf("page %d: %v, left out: %s; want nothing", n, err, text(s.items))
		}
		s.requireTrue(t, before)
	}
	for _, name := range []string{"feedback", "discarded"} {
		s, err := salvageFile(t, dir, bytes.ReplaceAll(file, []byte(name), []byte("F"+name[1:])))
		if err != nil || len(s.items) > 0 {
			t.Errorf("bucket %s: %v, left out: %s; want nothing", name, err, text(s.items))
		}
	}
}

// If all leases are lost, the tasks that wait are known to have none, because the index of waiting
// tasks has them.
func TestLostLeases(t *testing.T) {
	t.Parallel()
	file, before := soundStore(t)
	leased := 0
	for key, value := range before.records[store.Lease] {
		leased++
		for _, at := range places(file, key, value) {
			clear(file[at:][:len(key)+len(value)])
		}
	}
	s, err := salvageFile(t, t.TempDir(), file)
	if err != nil || len(before.tasks)-len(s.tasks) != leased {
		t.Errorf("%v, %d tasks of %d; want those without the %d leased ones", err, len(s.tasks), len(before.tasks), leased)
	}
	s.requireTrue(t, before)
}

// The identity, the serving clock, the workspaces and the counts are made anew if they are damaged.
func TestWhatIsMadeAnew(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	for _, c := range []struct {
		ks   store.Keyspace
		key  string
		kind string
	}{
		{store.Meta, store.MetaIdentity, salvage.KindIdentity},
		{store.Meta, store.MetaClock, salvage.KindClock},
		{store.Meta, store.MetaBackups, salvage.KindBackups},
		{store.Meta, store.MetaFormat, ""},
		{store.Space, string(store.AppendTenantKey(nil, "acme", "home")), salvage.KindWorkspace},
		{store.Queue, string(store.AppendNameKey(nil, 2, "q")), salvage.KindQueue},
		{store.Settings, string(store.AppendNameKey(nil, 2, "q")), salvage.KindSettings},
		{store.Settings, string(store.AppendNameKey(nil, 1, "other")), salvage.KindSettings},
	} {
		value, ok := before.records[c.ks][c.key]
		if !ok {
			t.Fatalf("no %v %q", c.ks, c.key)
		}
		s, err := salvageFile(t, dir, damage(file, c.key, value, len(c.key)+len(value)-1))
		if err != nil {
			t.Errorf("%v %q: %v", c.ks, c.key, err)
			continue
		}
		s.requireTrue(t, before)
		if len(s.tasks) != len(before.tasks) {
			t.Errorf("%v %q: tasks are left out", c.ks, c.key)
		}
		if c.kind != "" && (len(s.items) != 1 || s.items[0].Kind != c.kind) || c.kind == "" && len(s.items) > 0 {
			t.Errorf("%v %q: %s; want one item, %s", c.ks, c.key, text(s.items), c.kind)
		}
		requireServes(t, s.dir)
	}
}

// Whatever page cannot be read: no task is invented or changed, and what is left out is named.
func TestEachPageLost(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, _ := soundStore(t)
	newest, last := served(t, file)
	// whether the newest commit is lost
	before := map[bool]contents{false: soundContents(t, newest), true: soundContents(t, withoutNewest(newest))}
	page := os.Getpagesize()
	kept := 0
	for at := 0; at < len(newest); at += page {
		damaged := bytes.Clone(newest)
		for i := range page {
			damaged[at+i] = byte(i * 7)
		}
		s, err := salvageFile(t, dir, damaged)
		if err != nil {
			t.Errorf("page %d: %v", at/page, err)
			continue
		}
		s.requireTrue(t, before[s.older && s.tasks[last] == nil])
		s.requireNew(t, before[false])
		if s.older || at/page%8 == 0 { // to serve each of them takes long
			requireServes(t, s.dir)
		}
		kept += len(s.tasks)
		if t.Failed() {
			t.Fatalf("page %d: %s", at/page, text(s.items))
		}
	}
	if average := kept / (len(newest) / page); average < len(before[false].tasks)*8/10 {
		t.Errorf("%d of %d tasks are kept on average, want at least 80 %%", average, len(before[false].tasks))
	}
}

var rounds = flag.Int("rounds", 40, "how many files TestRandomDamage damages")

// Whatever bytes of a file are damaged: a salvage does not panic, no task is invented or changed,
// and what is left out is named.
func TestRandomDamage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	for round := range *rounds {
		rnd := rand.New(rand.NewPCG(uint64(round), 1))
		damaged := bytes.Clone(file)
		for range 1 + rnd.IntN(1+round%40) {
			damaged[rnd.IntN(len(damaged))] ^= byte(1 + rnd.IntN(255))
		}
		s, err := salvageFile(t, dir, damaged)
		switch {
		case errors.As(err, new(*store.DamagedError)):
			continue
		case err != nil:
			t.Errorf("round %d: %v", round, err)
		case !s.older: // otherwise tasks may be as they were before the last commit
			s.requireTrue(t, before)
		}
		if t.Failed() {
			t.Fatalf("round %d: %s", round, text(s.items))
		}
	}
}

// A file that was cut off is read as far as it goes.
func TestCutOff(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	for _, part := range []int{2, 3, 4} {
		s, err := salvageFile(t, dir, file[:len(file)-len(file)/part/4096*4096])
		if err != nil && !errors.As(err, new(*store.DamagedError)) {
			t.Errorf("without 1/%d: %v", part, err)
		}
		if err == nil {
			s.requireTrue(t, before)
		}
	}
}

// What is not a store, or not one that may be read, is refused, and nothing is made.
func TestRefusals(t *testing.T) {
	dir := t.TempDir()
	write(t, filepath.Join(dir, "text"), bytes.Repeat([]byte("text"), 10_000))
	fill := func(*boltstore.Remains, *boltstore.Store) error { t.Error("something was read"); return nil }
	to := filepath.Join(dir, "new")
	if err := boltstore.Salvage(filepath.Join(dir, "text"), to, boltstore.Options{}, fill); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("a text: %v, want a *store.DamagedError", err)
	}
	if err := boltstore.Salvage(filepath.Join(dir, "none"), to, boltstore.Options{}, fill); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v, want that it does not exist", err)
	}
	st, err := boltstore.Open(filepath.Join(dir, "open"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := boltstore.Salvage(filepath.Join(dir, "open"), to, boltstore.Options{}, fill); !errors.As(err, new(*store.InUseError)) {
		t.Errorf("an open store: %v, want a *store.InUseError", err)
	}
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	err = boltstore.Salvage(filepath.Join(dir, "open"), dir, boltstore.Options{}, fill)
	if target, ok := errors.AsType[*boltstore.TargetError](err); !ok || !errors.As(target, new(*store.NotEmptyError)) {
		t.Errorf("into a directory that is not empty: %v, want a *boltstore.TargetError with a *store.NotEmptyError", err)
	}
	if _, err := os.Stat(to); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("%s: %v, want that it does not exist", to, err)
	}
}

// One changed byte of a meta page costs nothing. If the meta page of the newest commit is lost, the
// report says that the records are of an older one.
func TestMetaPages(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file, before := soundStore(t)
	page := os.Getpagesize()
	const header, fields, txAt = 16, 64, 48
	for at := header; at < header+fields; at += 7 {
		for _, n := range []int{0, page} {
			damaged := bytes.Clone(file)
			damaged[n+at] ^= 0x10
			s, err := salvageFile(t, dir, damaged)
			if err != nil || len(s.items) > 0 {
				t.Fatalf("byte %d: %v, left out: %s; want nothing", n+at, err, text(s.items))
			}
			s.requireTrue(t, before)
		}
	}
	older, newer := 0, page
	if binary.NativeEndian.Uint64(file[header+txAt:]) > binary.NativeEndian.Uint64(file[page+header+txAt:]) {
		older, newer = newer, older
	}
	for n, want := range map[int]string{newer: "the meta page of its newest commit is damaged", older: "one of its two meta pages is damaged"} {
		damaged := bytes.Clone(file)
		clear(damaged[n+header:][:fields])
		s, err := salvageFile(t, dir, damaged)
		if err != nil || len(s.items) != 1 || !strings.HasPrefix(s.items[0].Reason, want) {
			t.Errorf("without the meta page at %d: %v, %s; want one item: %s", n, err, text(s.items), want)
		}
	}
	clear(file[:2*page])
	if _, err := salvageFile(t, dir, file); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("without both meta pages: %v, want a *store.DamagedError", err)
	}
}

// A page that the disk has lost, so that an older version is in its place, is noticed by the sums.
// Nobody knows which records it has changed, so the report says that.
func TestLostWriteIsTold(t *testing.T) {
	dir := t.TempDir()
	st, err := boltstore.Open(filepath.Join(dir, "store"), boltstore.Options{})
	if err != nil {
		t.Fatal(err)
	}
	key := store.AppendTenantKey(nil, "acme", "key")
	put := func(secret string) []byte {
		var b store.Batch
		records.PutSigningKey(&b, records.SigningKey{Tenant: "acme", ID: "key", Secret: []byte(secret)})
		// so that the bucket has a page of its own
		records.PutSigningKey(&b, records.SigningKey{Tenant: "acme", ID: "large", Secret: bytes.Repeat([]byte("x"), 3000)})
		if err := st.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
		file, err := os.ReadFile(filepath.Join(dir, "store", "lessor.db"))
		if err != nil {
			t.Fatal(err)
		}
		return file
	}
	old, file := put("old"), put("new")
	if err := st.Close(); err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	pageOf := func(file []byte, secret string) int {
		return bytes.Index(file, append(key, secretRecord(secret)...)) / page * page
	}
	copy(file[pageOf(file, "new")+16:][:page-16], old[pageOf(old, "old")+16:][:page-16])
	s, err := salvageFile(t, dir, file)
	if err != nil || len(s.items) != 1 || s.items[0].Kind != salvage.KindRecords || !strings.Contains(s.items[0].Reason, "older ones may be in their place") {
		t.Errorf("%v, %s; want one item: that older records may be in the place of newer ones", err, text(s.items))
	}
}

// secretRecord is the value of a signing key, as a store has it.
func secretRecord(secret string) []byte {
	var b store.Batch
	records.PutSigningKey(&b, records.SigningKey{Tenant: "acme", ID: "key", Secret: []byte(secret)})
	return b.At(0).Value
}
