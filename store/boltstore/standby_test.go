package boltstore

import (
	"bytes"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/standby"
	"github.com/lessor-dev/lessor/store/storetest"
)

var _ standby.Place = (*Standby)(nil)

func mustOpenStandby(t *testing.T, dir string) *Standby {
	t.Helper()
	s, err := OpenStandby(dir, "host:7420", Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	return s
}

// A promotion can ask which coordinator the standby followed last.
func TestStandbyKnowsItsSource(t *testing.T) {
	dir := t.TempDir()
	if source := StandbySource(dir); source != "" {
		t.Errorf("the source of a directory of no standby is %q, want none", source)
	}
	for _, source := range []string{"first:7420", "a-second-one:7420", "third:7420"} {
		s, err := OpenStandby(dir, source, Options{})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		if got := StandbySource(dir); got != source {
			t.Errorf("the source is %q, want %q", got, source)
		}
	}
}

// begin begins a new copy with one record.
func begin(t *testing.T, s *Standby, value string) (listing string) {
	t.Helper()
	st, err := s.Empty()
	if err != nil {
		t.Fatal(err)
	}
	commitValue(t, st, value)
	return storetest.Listing(t, st)
}

func commitValue(t *testing.T, st store.Store, value string) {
	t.Helper()
	var b store.Batch
	b.PutSealed(store.Meta, []byte(store.MetaClock), 1, []byte(value))
	if err := st.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
}

// standbyWithCopy returns the directory of a closed standby with a complete copy, and the records
// of that copy.
func standbyWithCopy(t *testing.T) (dir, listing string) {
	t.Helper()
	dir = t.TempDir()
	s := mustOpenStandby(t, dir)
	listing = begin(t, s, "copied")
	if err := errors.Join(s.Replace(), s.Close()); err != nil {
		t.Fatal(err)
	}
	return dir, listing
}

// imageOf returns a directory with copies of the files in dir: what a process leaves that is killed
// now.
func imageOf(t *testing.T, dir string) (image string) {
	t.Helper()
	image = filepath.Join(t.TempDir(), "image")
	if err := os.CopyFS(image, os.DirFS(dir)); err != nil {
		t.Fatal(err)
	}
	return image
}

// wantStandby tests that only a standby opens the directory, and which records its complete copy
// has; none if listing is empty.
func wantStandby(t *testing.T, dir, listing string) {
	t.Helper()
	refused := new(store.StandbyError)
	if _, err := Open(dir, Options{}); !errors.As(err, &refused) || refused.Dir != dir {
		t.Errorf("Open = %v, want a StandbyError of %s", err, dir)
	}
	s, err := OpenStandby(dir, "host:7420", Options{})
	if err != nil {
		t.Fatal(err)
	}
	got := ""
	if st := s.Complete(); st != nil {
		got = storetest.Listing(t, st)
	}
	if got != listing {
		t.Errorf("the complete copy has the records\n%s\nwant\n%s", got, listing)
	}
	if fileExists(filepath.Join(dir, copyingName)) {
		t.Error("the copy that did not finish is still there")
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// A copy takes the place of the complete one by Replace alone. Until then the older one stays, and
// can be committed to, also after a restart. What is committed to either is there after a restart.
func TestStandby(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "not", "there yet")
	s := mustOpenStandby(t, dir)
	if st := s.Complete(); st != nil {
		t.Errorf("Complete of a new standby = %v, want nil", st)
	}
	if err := s.Replace(); err == nil {
		t.Error("Replace without a copy returns no error")
	}
	begin(t, s, "unfinished")
	if st := s.Complete(); st != nil {
		t.Errorf("Complete during the first copy = %v, want nil", st)
	}
	first := begin(t, s, "first") // discards the one before
	if err := s.Replace(); err != nil {
		t.Fatal(err)
	}
	if got := storetest.Listing(t, s.Complete()); got != first {
		t.Errorf("after the first copy, the records are\n%s\nwant\n%s", got, first)
	}
	begin(t, s, "unfinished")
	commitValue(t, s.Complete(), "followed")
	followed := storetest.Listing(t, s.Complete())
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantStandby(t, dir, followed)

	s = mustOpenStandby(t, dir)
	second := begin(t, s, "second")
	if err := s.Replace(); err != nil {
		t.Fatal(err)
	}
	commitValue(t, s.Complete(), "second") // the same
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantStandby(t, dir, second)
}

// A copy that has just become complete is checked in the background, as if it had been served since
// it was made, because its mark comes with it.
func TestReplaceKeepsTheMark(t *testing.T) {
	markedStore(t) // skips where there are no marks
	s := mustOpenStandby(t, t.TempDir())
	for range 2 {
		begin(t, s, "copied")
		if err := s.Replace(); err != nil {
			t.Fatal(err)
		}
		if s.complete.background == nil {
			t.Error("Replace checked the whole copy before it returned")
		}
	}
}

// A process that is killed at any moment of Replace leaves the older copy, or the newer one, and a
// standby.
func TestReplaceThatIsKilled(t *testing.T) {
	for _, older := range []bool{false, true} {
		dir, was := t.TempDir(), ""
		if older {
			dir, was = standbyWithCopy(t)
		}
		s := mustOpenStandby(t, dir)
		newer := begin(t, s, "newer")
		move := func(image, name string) {
			if err := os.Rename(filepath.Join(image, copyingName, name), filepath.Join(image, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				t.Fatal(err)
			}
		}
		wantStandby(t, imageOf(t, dir), was)
		for _, moved := range [][]string{{fileName}, {fileName, markName}} {
			image := imageOf(t, dir)
			for _, name := range moved {
				move(image, name)
			}
			wantStandby(t, image, newer)
		}
		if err := s.Replace(); err != nil {
			t.Fatal(err)
		}
		wantStandby(t, imageOf(t, dir), newer)
	}
}

// A copy that failed does not become the complete one.
func TestFailedCopyIsNotComplete(t *testing.T) {
	dir, was := standbyWithCopy(t)
	s := mustOpenStandby(t, dir)
	begin(t, s, "newer")
	no := errors.New("no")
	_ = s.copying.fail(no)
	if err := s.Replace(); !errors.Is(err, no) {
		t.Errorf("Replace = %v, want the error of the copy", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantStandby(t, dir, was)
}

// A standby takes only a directory that is empty or missing, or one of a standby. It changes no
// other.
func TestStandbyWantsAnEmptyDirectory(t *testing.T) {
	dir := filledStore(t)
	names := fileNames(t, dir)
	if _, err := OpenStandby(dir, "host:7420", Options{}); !errors.As(err, new(*store.NotEmptyError)) {
		t.Errorf("OpenStandby of a store = %v, want a NotEmptyError", err)
	}
	if got := fileNames(t, dir); got != names {
		t.Errorf("files: %s, want %s", got, names)
	}
	mustOpen(t, dir)
	other := t.TempDir()
	if err := os.WriteFile(filepath.Join(other, "other"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := OpenStandby(other, "host:7420", Options{}); !errors.As(err, new(*store.NotEmptyError)) || fileNames(t, other) != "other" {
		t.Errorf("OpenStandby of a directory with a file = %v, want a NotEmptyError; files: %s", err, fileNames(t, other))
	}
}

// While a standby runs, whether it has a complete copy or not, another process can neither run one
// in its directory nor promote it, and learns who has it.
func TestStandbyInUse(t *testing.T) {
	complete, _ := standbyWithCopy(t)
	for _, dir := range []string{complete, t.TempDir()} {
		s := mustOpenStandby(t, dir)
		for what, open := range map[string]func() error{
			"OpenStandby": func() error { _, err := OpenStandby(dir, "host:7420", Options{}); return err },
			"Promote":     func() error { return Promote(dir, Options{}, noCheck) },
		} {
			if inUse := new(store.InUseError); !errors.As(open(), &inUse) || inUse.PID != os.Getpid() {
				t.Errorf("%s = %v, want an InUseError with the pid of this process", what, inUse)
			}
		}
		begin(t, s, "copied")
		if err := errors.Join(s.Replace(), s.Close()); err != nil {
			t.Fatal(err)
		}
		if err := Promote(dir, Options{}, func(*Store) error {
			if _, err := OpenStandby(dir, "host:7420", Options{}); !errors.As(err, new(*store.InUseError)) {
				t.Errorf("OpenStandby during Promote = %v, want an InUseError", err)
			}
			return nil
		}); err != nil {
			t.Error(err)
		}
	}
}

// Until a standby is promoted, its store can be read, but neither served nor compacted, also
// through a symbolic link. No store is made if there is none.
func TestStandbyIsNotServed(t *testing.T) {
	dir, _ := standbyWithCopy(t)
	link, empty := t.TempDir(), t.TempDir()
	if err := errors.Join(os.Symlink(filepath.Join(dir, fileName), filepath.Join(link, fileName)), mustOpenStandby(t, empty).Close()); err != nil {
		t.Fatal(err)
	}
	unfinished := mustOpenStandby(t, t.TempDir())
	begin(t, unfinished, "unfinished")
	if err := unfinished.Close(); err != nil {
		t.Fatal(err)
	}
	for _, dir := range []string{dir, link, empty, filepath.Join(unfinished.dir, copyingName)} {
		names := fileNames(t, dir)
		for what, open := range map[string]func() error{
			"Open":    func() error { _, err := Open(dir, Options{}); return err },
			"Compact": func() error { _, _, err := Compact(dir, Options{}, noCheck); return err },
			"CompactTo": func() error {
				_, _, err := CompactTo(dir, filepath.Join(t.TempDir(), "to"), Options{}, noCheck)
				return err
			},
		} {
			if err := open(); !errors.As(err, new(*store.StandbyError)) {
				t.Errorf("%s = %v, want a StandbyError", what, err)
			}
		}
		if got := fileNames(t, dir); got != names {
			t.Errorf("files: %s, want %s", got, names)
		}
	}
	st, err := OpenReadOnly(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	_ = st.Close()
}

// A start that has found no standby in an empty directory, and makes a store there meanwhile, does
// not serve it if a standby has taken the directory.
func TestStandbyTakesADirectoryDuringAStart(t *testing.T) {
	dir := t.TempDir()
	mustOpenStandby(t, dir)
	if err := createIfMissing(filepath.Join(dir, fileName), store.Current()); !errors.As(err, new(*store.StandbyError)) {
		t.Errorf("the start = %v, want a StandbyError", err)
	}
}

// A standby does not upgrade its copy, and does not open it, because the coordinator has another
// one by now. The copy stays until there is a newer one, and Promote upgrades it.
func TestStandbyKeepsACopyOfAnOlderFormat(t *testing.T) {
	dir, _ := standbyWithCopy(t)
	old := goldenStore(t, int(store.Current().Format())-1)
	if err := os.WriteFile(filepath.Join(dir, fileName), old, 0o600); err != nil {
		t.Fatal(err)
	}
	wantStandby(t, dir, "")
	if !bytes.Equal(readFile(t, dir), old) {
		t.Error("the standby has changed the copy")
	}
	replaced := imageOf(t, dir)
	s := mustOpenStandby(t, replaced)
	if older := s.Older(); older == nil {
		t.Error("Older returns nil, although there is a copy of an older format")
	} else if have, err := store.Current().Check(older); err != nil || have != store.Current().Format()-1 {
		t.Errorf("Older returns a store of format %d (%v), want %d", have, err, store.Current().Format()-1)
	}
	newer := begin(t, s, "newer")
	if err := s.Replace(); err != nil || s.Older() != nil {
		t.Fatalf("Replace = %v, and the older copy is still open: %v", err, s.Older() != nil)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantStandby(t, replaced, newer)

	err := Promote(dir, Options{Logger: slog.New(slog.DiscardHandler)}, func(s *Store) error {
		if have, err := store.Current().Check(s); err != nil || have != store.Current().Format() {
			t.Errorf("prepare gets a store of format %d (%v), want %d", have, err, store.Current().Format())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	mustOpen(t, dir)
}

// A copy of a newer format is refused and stays as it is.
func TestStandbyRefusesANewerFormat(t *testing.T) {
	dir, _ := standbyWithCopy(t)
	newer := readFile(t, newerStore(t))
	if err := os.WriteFile(filepath.Join(dir, fileName), newer, 0o600); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() error{
		"OpenStandby": func() error { _, err := OpenStandby(dir, "host:7420", Options{}); return err },
		"Promote":     func() error { return Promote(dir, Options{}, noCheck) },
	} {
		if err := open(); !errors.As(err, new(*store.NewerFormatError)) {
			t.Errorf("%s = %v, want a NewerFormatError", what, err)
		}
	}
	if !bytes.Equal(readFile(t, dir), newer) {
		t.Error("the copy has changed")
	}
}

// The directory can be served when Promote has returned, with what prepare has committed, and no
// longer be that of a standby. A process that is killed before leaves a standby, which can be
// promoted again, and which nobody serves, although prepare has committed.
func TestPromote(t *testing.T) {
	dir, _ := standbyWithCopy(t)
	begin(t, mustOpenStandby(t, dir), "unfinished")
	dir = imageOf(t, dir)
	var images []string
	prepare := func(s *Store) error {
		images = append(images, imageOf(t, dir))
		commitValue(t, s, "promoted")
		images = append(images, imageOf(t, dir))
		return nil
	}
	if err := Promote(dir, Options{}, prepare); err != nil {
		t.Fatal(err)
	}
	if names := fileNames(t, dir); names != filesOfMarkedStore && names != fileName {
		t.Errorf("files: %s, want %s", names, filesOfMarkedStore)
	}
	want := storetest.Listing(t, mustOpen(t, dir))
	if err := Promote(dir, Options{}, noCheck); !errors.As(err, new(*store.NotStandbyError)) {
		t.Errorf("Promote again = %v, want a NotStandbyError", err)
	}
	for _, image := range images {
		if _, err := Open(image, Options{}); !errors.As(err, new(*store.StandbyError)) {
			t.Errorf("Open after a kill = %v, want a StandbyError", err)
		}
		if err := Promote(image, Options{}, func(s *Store) error { commitValue(t, s, "promoted"); return nil }); err != nil {
			t.Fatal(err)
		}
		if got := storetest.Listing(t, mustOpen(t, image)); got != want {
			t.Errorf("promoted after a kill, the records are\n%s\nwant\n%s", got, want)
		}
	}
}

// After an error of prepare the directory is that of a standby, as it was.
func TestPromoteThatFails(t *testing.T) {
	dir, was := standbyWithCopy(t)
	no := errors.New("no")
	if err := Promote(dir, Options{}, func(*Store) error { return no }); !errors.Is(err, no) {
		t.Errorf("Promote = %v, want the error of prepare", err)
	}
	wantStandby(t, dir, was)
	reader, err := OpenReadOnly(dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if err := Promote(dir, Options{LockTimeout: time.Millisecond}, noCheck); !errors.As(err, new(*store.InUseError)) {
		t.Errorf("Promote while another process reads the copy = %v, want an InUseError", err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	content := readFile(t, dir)
	m, _ := newestMeta(content)
	clear(content[2*m.pageSize:])
	overwrite(t, dir, content)
	if err := Promote(dir, Options{}, func(*Store) error { t.Error("Promote called prepare"); return nil }); !errors.As(err, new(*store.DamagedError)) {
		t.Errorf("Promote of a damaged copy = %v, want a DamagedError", err)
	}
}

// Promote says whether there is no standby, no copy, or only one that did not finish.
func TestPromoteWithoutACopy(t *testing.T) {
	for _, dir := range []string{t.TempDir(), filepath.Join(t.TempDir(), "missing"), filledStore(t)} {
		if err := Promote(dir, Options{}, noCheck); !errors.As(err, new(*store.NotStandbyError)) {
			t.Errorf("Promote of %s = %v, want a NotStandbyError", dir, err)
		}
	}
	dir := t.TempDir()
	s := mustOpenStandby(t, dir)
	for _, unfinished := range []bool{false, true} {
		if unfinished {
			begin(t, s, "unfinished")
		}
		err := Promote(imageOf(t, dir), Options{}, noCheck)
		if none := new(store.NoCopyError); !errors.As(err, &none) || none.Unfinished != unfinished {
			t.Errorf("Promote = %v, want a NoCopyError, with a part of a copy: %v", err, unfinished)
		}
	}
}

// Equal records have equal sums, in whatever batches and order they were committed; one other
// record changes the sum of its keyspace, and no other.
func TestSums(t *testing.T) {
	sumsOf := func(st store.Store) (sums [store.NumKeyspaces]uint64) {
		err := st.View(func(r store.Reader) (err error) {
			sums, err = r.(store.Summer).Sums()
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		return sums
	}
	one, other := mustOpen(t, t.TempDir()), mustOpen(t, t.TempDir())
	put := func(b *store.Batch, n byte) { b.PutSealed(store.Keyspace(n%2), []byte{n}, 1, []byte("value")) }
	var all store.Batch
	for n := range byte(20) {
		put(&all, n)
	}
	all.PutSealed(store.Token, []byte("gone"), 1, nil)
	all.Delete(store.Token, []byte("gone"))
	if err := one.Commit(t.Context(), &all); err != nil {
		t.Fatal(err)
	}
	for n := range byte(20) {
		var b store.Batch
		put(&b, 19-n)
		if err := other.Commit(t.Context(), &b); err != nil {
			t.Fatal(err)
		}
	}
	want := sumsOf(one)
	if got := sumsOf(other); got != want {
		t.Errorf("the sums of equal records are %x and %x", want, got)
	}
	var b store.Batch
	b.PutSealed(store.Spec, []byte("more"), 1, nil)
	if err := other.Commit(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	for ks, sum := range sumsOf(other) {
		if differs := sum != want[ks]; differs != (store.Keyspace(ks) == store.Spec) {
			t.Errorf("after a change in %v, the sum of %v differs: %v", store.Spec, store.Keyspace(ks), differs)
		}
	}
}
