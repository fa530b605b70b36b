package boltstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/bbolt"

	"github.com/lessor-dev/lessor/store"
)

// damageLeaf clears the first leaf page of keyspace Spec in the file of a store. Open does not read
// that page, unless it checks the store.
func damageLeaf(t *testing.T, dir string) {
	t.Helper()
	content := readFile(t, dir)
	m, _ := newestMeta(content)
	branch := content[order.Uint64(rootOf(t, content, "spec"))*m.pageSize:]
	clear(content[order.Uint64(branch[headerSize+8:])*m.pageSize:][:m.pageSize])
	overwrite(t, dir, content)
}

func hasMark(dir string) bool { return fileExists(filepath.Join(dir, markName)) }

// While a store is checked in the background, it has no mark: if bbolt kills the process because of
// a damaged page, the next start must check the store before it serves. The mark is set when the
// check has ended, or when the store is closed earlier.
func TestNoMarkUntilTheCheckHasEnded(t *testing.T) {
	dir := markedStore(t)
	file, err := os.OpenFile(filepath.Join(dir, fileName), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	var o opening
	if err := o.check(file); err != nil || o.background == nil {
		t.Fatalf("check = %v, and it runs in the background: %v; want no error and true", err, o.background != nil)
	}
	if hasMark(dir) {
		t.Error("the store has a mark during the check, want none")
	}
	if err := errors.Join(o.release(), file.Close()); err != nil { // what the system does when a process dies
		t.Fatal(err)
	}
	for _, c := range []struct {
		name  string
		later bool
	}{{"after a start that died", false}, {"after a store that was closed at once", true}, {"after another one that was closed at once", true}} {
		s := mustOpen(t, dir)
		if (s.background != nil) != c.later {
			t.Errorf("%s: the check runs in the background: %v, want %v", c.name, s.background != nil, c.later)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := mustOpen(t, dir)
	s.background.done.Wait()
	if !hasMark(dir) {
		t.Error("the store has no mark after the check")
	}
}

// After a failed commit the store has no mark, whether the check in the background ends before or
// after the failure.
func TestFailedStoreIsNotMarked(t *testing.T) {
	dir := markedStore(t)
	s := mustOpen(t, dir)
	s.background.done.Wait()
	_ = s.fail(io.ErrUnexpectedEOF)
	if hasMark(dir) {
		t.Error("the store has a mark after the check and then a failure, want none")
	}
	s.mark(lockedFile(s))
	if hasMark(dir) {
		t.Error("the store has a mark after a failure and then the end of the check, want none")
	}
}

// bbolt trusts the list of free pages. So Open checks the list before bbolt reads it, even if
// everything else is checked in the background.
func TestDamagedFreeListIsRefusedAtOnce(t *testing.T) {
	dir := markedStore(t)
	content := readFile(t, dir)
	m, _ := newestMeta(content)
	clear(content[m.free*m.pageSize:][:m.pageSize])
	overwrite(t, dir, content)
	if _, err := Open(dir, Options{}); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("Open = %v, want a DamagedError", err)
	}
}

// With a mark, Open reads the format and the sums before the check in the background begins. If it
// meets a damaged page, it refuses the store, and does not end the process.
func TestDamagedPageOfTheFormatIsRefused(t *testing.T) {
	for name, damage := range map[string]func(content []byte){
		"page of the buckets": func(content []byte) { // bbolt panics
			m, _ := newestMeta(content)
			copy(content[m.root*m.pageSize:][:m.pageSize], bytes.Repeat([]byte{0xa5}, int(m.pageSize)))
		},
		"page of the format far behind the end of the file": func(content []byte) { rootOf(t, content, "meta")[3] ^= 1 },
	} {
		t.Run(name, func(t *testing.T) {
			dir := markedStore(t)
			content := readFile(t, dir)
			damage(content)
			overwrite(t, dir, content)
			if _, err := Open(dir, Options{}); !errors.As(err, new(*store.DamagedError)) || hasMark(dir) {
				t.Errorf("Open = %v, and the store has a mark: %v; want a DamagedError and no mark", err, hasMark(dir))
			}
		})
	}
}

// A store is checked before it is upgraded, also if it has a mark, because an upgrade cannot be
// undone. After the upgrade it is not checked again.
func TestUpgradeChecksFirst(t *testing.T) {
	dir := markedStore(t)
	damageLeaf(t, dir)
	was := readFile(t, dir)
	if _, err := open(dir, Options{}.withDefaults(), nextMigrations); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("open = %v, want a DamagedError", err)
	}
	if !bytes.Equal(readFile(t, dir), was) {
		t.Error("open changed a damaged store")
	}

	dir = markedStore(t)
	s, err := open(dir, Options{}.withDefaults(), nextMigrations)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if s.background != nil || !hasMark(dir) {
		t.Errorf("after the upgrade the store is checked again: %v, and it has a mark: %v; want false and true",
			s.background != nil, hasMark(dir))
	}
}

// If Open refuses a store because of damage that is found before the check in the background
// begins, the store does not get its mark back: the next Open checks it first.
func TestRefusalOfADamagedStoreRemovesTheMark(t *testing.T) {
	var format store.Batch
	store.Current().Stamp(&format)
	for name, record := range map[string]func(*bbolt.Tx) []byte{ // as bbolt writes it: the key and then the value
		"the format": func(*bbolt.Tx) []byte { return slices.Concat(format.At(0).Key, format.At(0).Value) },
		"the sums": func(tx *bbolt.Tx) []byte {
			return slices.Concat([]byte(sumsKey), tx.Bucket([]byte(sumsBucket)).Get([]byte(sumsKey)))
		},
	} {
		dir := markedStore(t)
		s := mustOpen(t, dir)
		var lost []byte
		err := s.db.View(func(tx *bbolt.Tx) error { lost = record(tx); return nil })
		if err := errors.Join(err, s.Close()); err != nil {
			t.Fatal(err)
		}
		content := readFile(t, dir)
		for at := bytes.Index(content, lost); at >= 0; at = bytes.Index(content, lost) {
			content[at] ^= 1
		}
		overwrite(t, dir, content)
		if _, err := Open(dir, Options{}); err == nil || hasMark(dir) {
			t.Errorf("%s: Open = %v, and the store has a mark: %v; want an error and no mark", name, err, hasMark(dir))
		}
	}
}

// An upgrade is logged, with the old and the new format, because earlier versions cannot open the
// store any more. A start without an upgrade logs nothing.
func TestUpgradeIsLogged(t *testing.T) {
	dir := markedStore(t)
	formats := fmt.Sprintf("from=%d to=%d", store.Current().Format(), nextMigrations.Format())
	for _, want := range []string{formats, ""} {
		var log strings.Builder
		s, err := open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))}.withDefaults(), nextMigrations)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if (want == "") != (log.String() == "") || !strings.Contains(log.String(), want) {
			t.Errorf("the log of the start is %q, want it to contain %q, or to be empty if that is empty", log.String(), want)
		}
	}
}

// An Open that refuses a marked store for its format changes neither the file nor the mark, and
// releases the lock.
func TestRefusalForTheFormatKeepsTheMark(t *testing.T) {
	dir := markedStore(t)
	s, err := open(dir, Options{}.withDefaults(), nextMigrations)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	was := readFile(t, dir)
	for range 2 {
		if _, err := Open(dir, Options{}); !errors.As(err, new(*store.NewerFormatError)) {
			t.Errorf("Open = %v, want a NewerFormatError", err)
		}
	}
	if !bytes.Equal(readFile(t, dir), was) || !hasMark(dir) {
		t.Errorf("the file is unchanged: %v; it has a mark: %v; want true for both",
			bytes.Equal(readFile(t, dir), was), hasMark(dir))
	}
	if s, err = open(dir, Options{}.withDefaults(), nextMigrations); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Error(err)
	}
}

// If bbolt must map the file again for a commit, the commit waits for reads under way, and so for
// the check in the background. It must succeed when the check ends. Close, which ends the check
// early, must not hang.
func TestRemapDuringTheCheck(t *testing.T) {
	for _, wait := range []bool{true, false} {
		s, err := Open(markedStore(t), Options{MapBytes: 1})
		if err != nil {
			t.Fatal(err)
		}
		done := make(chan error, 1)
		go func() {
			var b store.Batch
			b.Put(store.Output, []byte("k"), make([]byte, 40<<20)) // the file has 16 MiB, and MapBytes leaves no room
			done <- s.Commit(t.Context(), &b)
		}()
		if wait {
			err = <-done
		} else {
			blocks("(*Store).Commit", done)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
		if !wait {
			if err := <-done; err != nil && !errors.Is(err, store.ErrClosed) {
				t.Error(err)
			}
		}
	}
}

// If the newest commit has no note that it was durable, the store is checked before it serves, even
// with a mark: that commit may be incomplete, or have failed. The check then adds the note.
func TestCommitWithoutANoteIsCheckedFirst(t *testing.T) {
	dir := markedStore(t)
	content := readFile(t, dir)
	m, _ := newestMeta(content)
	clear(content[noteAt(m.tx, int(m.pageSize)):][:len(encodeNote(m.tx))])
	overwrite(t, dir, content)
	for _, later := range []bool{false, true} {
		s := mustOpen(t, dir)
		if got := s.background != nil; got != later {
			t.Errorf("the check runs in the background: %v, want %v", got, later)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// A start whose clock is behind the last write of the store is told, since run_at, deadlines and
// credentials follow that clock. Clocks that differ by seconds are not worth a warning.
func TestClockBehindTheStoreIsTold(t *testing.T) {
	for _, c := range []struct {
		ahead time.Duration
		told  bool
	}{{-time.Hour, false}, {30 * time.Second, false}, {2 * time.Hour, true}} {
		dir := markedStore(t)
		written := time.Now().Add(c.ahead)
		if err := os.Chtimes(filepath.Join(dir, fileName), written, written); err != nil {
			t.Fatal(err)
		}
		var log bytes.Buffer
		s, err := Open(dir, Options{Logger: slog.New(slog.NewTextHandler(&log, nil))})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if told := strings.Contains(log.String(), "at a time that has not come yet"); told != c.told {
			t.Errorf("the store was written %v from now, and Open logged %q; want a warning: %v", c.ahead, &log, c.told)
		}
	}
}
