package reserve

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

const size = 1 << 20

// disk is a Reserve on a disk with as much space as the test says.
type disk struct {
	*Reserve
	log   bytes.Buffer
	space int64 // free bytes on the disk, those that the file of the reserve takes included
	inner int64 // free bytes inside the store
	file  int64 // bytes of the store that were ever used; the file is larger
}

func open(t *testing.T, space int64) *disk {
	t.Helper()
	d := &disk{space: space, file: 100 * size}
	dir := t.TempDir()
	d.Reserve = &Reserve{
		path: filepath.Join(dir, fileName), size: size,
		log: slog.New(slog.NewTextHandler(&d.log, nil)), allocate: allocate,
	}
	d.stats = func() store.Stats {
		return store.Stats{FileBytes: d.file + size, FreeBytes: d.inner + size, ReusableBytes: d.inner}
	}
	d.freeBytes = func(string) (int64, error) {
		if info, err := os.Stat(d.path); err == nil {
			return d.space - info.Size(), nil
		}
		return d.space, nil
	}
	d.checkAndMake()
	return d
}

// checkAndMake does what Check does, and waits until the file is made, if it is.
func (d *disk) checkAndMake() {
	d.Check()
	d.mu.Lock()
	made := d.making
	d.mu.Unlock()
	if made != nil {
		<-made
	}
}

// wantFull sets the space and checks what Full reports then, and whether the file of the reserve
// exists.
func (d *disk) wantFull(t *testing.T, space int64, full, held bool) {
	t.Helper()
	d.space = space
	time.Sleep(maxAge)
	d.checkAndMake()
	if got := d.Full(); got != full {
		t.Errorf("with %d bytes of space: Full = %v, want %v", space, got, full)
	}
	if _, err := os.Stat(d.path); (err == nil) != held {
		t.Errorf("with %d bytes of space: stat of the file of the reserve = %v, want that it exists: %v", space, err, held)
	}
}

// When a disk fills up, Full becomes true when the free space is less than the size of the
// reserve's file. The file is removed when the free space is less than a quarter of its size, and
// made again when the disk has room for it twice. Full becomes false only when the free space is a
// quarter more than the size of the file, so that it does not switch back and forth. After the
// removal more free space is needed, and the log says how much.
func TestDiskFillsAndEmpties(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		d.wantFull(t, 10*size, false, true)
		d.wantFull(t, 2*size, false, true)
		d.wantFull(t, 2*size-1, true, true)
		d.wantFull(t, 2*size, true, true) // still full: the free space must be a quarter more
		d.wantFull(t, 2*size+size/4, false, true)
		d.wantFull(t, size+size/4, true, true)
		d.wantFull(t, size+size/4-1, true, false)
		d.wantFull(t, 2*size-1, true, false)
		d.wantFull(t, 2*size, true, true)
		d.wantFull(t, 3*size, false, true)
		for _, want := range []string{"new tasks are refused", "is released", "has room again"} {
			if !strings.Contains(d.log.String(), want) {
				t.Errorf("the log does not say %q:\n%s", want, &d.log)
			}
		}
		if want := fmt.Sprintf("free_bytes=%d reserve_bytes=%d needed_bytes=%d\n", size/4-1, size, 2*size+size/4); !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &d.log)
		}
	})
}

// Room returns the free space beside the file of the reserve, and how much of it new tasks need:
// the size of the file, a quarter more while the disk is full, and the file itself while there is
// none; and how much room inside the store they need otherwise.
func TestRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		for _, c := range []struct {
			space        int64
			full, held   bool
			free, needed int64
			inside       int64
		}{
			{10 * size, false, true, 9 * size, size, 0},
			{2 * size, false, true, size, size, 0},
			{2*size - 1, true, true, size - 1, size + size/4, size + size/4},
			{size + size/4, true, true, size / 4, size + size/4, d.file / 4 * 3},
			{size + size/4 - 1, true, false, size + size/4 - 1, 2*size + size/4, 2*size + 2},
			{0, true, false, 0, 2*size + size/4, d.file / 4 * 3},
			{3 * size, false, true, 2 * size, size, 0},
		} {
			d.wantFull(t, c.space, c.full, c.held)
			if free, needed, inside := d.Room(); free != c.free || needed != c.needed || inside != c.inside {
				t.Errorf("with %d bytes of space: Room = %d, %d, %d, want %d, %d, %d",
					c.space, free, needed, inside, c.free, c.needed, c.inside)
			}
		}
		d.space = 5 * size
		time.Sleep(maxAge)
		if free, _, _ := d.Room(); free != 4*size {
			t.Errorf("with %d bytes of space: Room = %d, want a new measurement, %d", d.space, free, 4*size)
		}
	})
}

// Free space inside the store is room for new tasks, too: commits use it before the file grows.
// Otherwise a disk that the store itself has filled would stay full although tasks were deleted. It
// does not count if the disk has so little space that the reserve might have to be released, or was
// released.
func TestRoomInsideTheStore(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		const little = size + size/2 // half of the size of the file is free beside it
		d.wantFull(t, little, true, true)
		d.inner = size
		d.wantFull(t, little, true, true) // still full: a quarter more is asked for
		d.inner = size + size/4
		d.wantFull(t, little, false, true)
		d.inner = size
		d.wantFull(t, little, false, true)
		d.inner = size - 1
		d.wantFull(t, little, true, true)
		d.inner = 10 * size
		d.wantFull(t, little, false, true)
		d.wantFull(t, size+size*3/8, false, true)
		d.wantFull(t, size+size*3/8-1, true, true)
		d.wantFull(t, little, false, true)
		d.inner = size
		d.wantFull(t, size+size/4-1, true, false)
		d.wantFull(t, little, true, false)
	})
}

// The file is made again where it leaves less of the disk than its own size, if with it there is
// room for new tasks. Other files may have gone that had filled the disk, but not as much as the
// store has grown since.
func TestFileIsMadeWhereTheStoreHasRoom(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		d.inner = size + size/4 - 1
		const most = size + (size+size/4)*3/8
		d.wantFull(t, size, true, false)
		d.wantFull(t, most, true, false)
		d.inner++
		d.wantFull(t, most-1, true, false)
		d.wantFull(t, most, false, true)
		d.wantFull(t, size+size*3/8, false, true)
	})
}

// On a disk that the store has filled there is never room for the file again. Then half of the free
// space inside the store stands for it: with what is free on the disk it has to be as much as the
// file and new tasks would need, and a quarter more to begin with.
func TestRoomInsideTheStoreStandsForTheFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		const little = size / 2
		want := func(inner int64, full bool) {
			t.Helper()
			d.inner = inner
			d.wantFull(t, little, full, false)
			if d.Spent() && !full {
				t.Error("new tasks are accepted, and none are granted")
			}
		}
		want(0, true)
		want(2*(2*size+size/4-little)-2, true)
		want(2*(2*size+size/4-little), false)
		want(2*(2*size-little), false)
		want(2*(2*size-little)-2, true)
	})
}

// Where the disk has hardly anything left, new tasks need three quarters of the store: commits of
// large values must find pieces that are large enough, as the store can no longer grow. This also
// holds if the file is there, and would be removed if less were free.
func TestFullDiskNeedsAStoreThatIsMostlyFree(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		for _, c := range []struct {
			space int64
			held  bool
		}{{size + size/4, true}, {size*3/8 - 1, false}, {0, false}} {
			for _, full := range []bool{true, false, true} {
				d.inner = d.file / 4 * 3
				if full {
					d.inner--
				}
				d.wantFull(t, c.space, full, c.held)
			}
		}
		d.file = 4 * size // too small to have as much inside as the file of the reserve and new tasks need
		d.inner = d.file
		d.wantFull(t, 0, true, false)
	})
}

// When the space of the reserve is used up as well, so that less is left than the reserve had, it
// is spent. Half of the free space inside the store counts: in the end, a disk that the store has
// filled has no other. As with Full, a quarter more ends it. As long as the reserve has its file,
// it is not spent.
func TestReserveIsSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		want := func(space, inner int64, spent, held bool) {
			t.Helper()
			d.inner = inner
			d.wantFull(t, space, true, held)
			if got := d.Spent(); got != spent {
				t.Errorf("with %d bytes of space, and %d in the store: Spent = %v, want %v", space, inner, got, spent)
			}
		}
		want(size+size/4, 0, false, true)
		want(size+size/4-1, 0, false, false) // released just now
		want(size, 0, false, false)
		want(size-1, 0, true, false)
		want(size+size/4-1, 0, true, false)
		want(size+size/4, 0, false, false)
		want(size/2, size, false, false)
		want(size/2, size-2, true, false)
		want(0, 2*size+size/2-2, true, false)
		want(0, 2*size+size/2, false, false)
		want(0, 0, true, false)
		want(2*size, 0, false, true)
		for _, text := range []string{"no tasks are granted", "tasks are granted", fmt.Sprintf("free_bytes=%d free_bytes_in_store=0 needed_bytes=%d\n", size-1, size+size/4)} {
			if !strings.Contains(d.log.String(), text) {
				t.Errorf("the log does not say %q:\n%s", text, &d.log)
			}
		}
	})
}

// On a disk without room for the reserve, tasks are granted as long as there is as much room as the
// reserve would have.
func TestDiskWithoutRoomForTheReserveIsNotSpent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 2*size-1)
		if d.Spent() {
			t.Errorf("with %d bytes of space: Spent = true, want false", d.space)
		}
	})
}

// The log says once a minute that the disk is full and has room again, however often that changes,
// and it never ends with the wrong one of the two for more than a minute. Otherwise tasks that come
// and go on a disk that the store has filled would fill the log, which may be on the same disk.
func TestChangesAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, size+size/2)
		const fullText, roomText = "new tasks are refused", "new tasks are accepted"
		logged := func(full, room int) {
			t.Helper()
			if f, r := strings.Count(d.log.String(), fullText), strings.Count(d.log.String(), roomText); f != full || r != room {
				t.Errorf("the log says %d times that the disk is full and %d times that it has room, want %d and %d",
					f, r, full, room)
			}
		}
		change := func(inner int64, want bool) {
			t.Helper()
			d.inner = inner
			time.Sleep(maxAge)
			if d.Full() != want {
				t.Errorf("with %d bytes inside: Full = %v, want %v", inner, !want, want)
			}
		}
		d.space = 10 * size
		d.wantFull(t, 10*size, false, true)
		d.space = size + size/2
		logged(1, 1)
		for range 100 {
			change(0, true)
			change(2*size, false)
		}
		logged(1, 1)
		change(0, true)
		time.Sleep(repeatAfter)
		change(0, true)
		logged(2, 1)
		change(2*size, false)
		logged(2, 2)
	})
}

func noneInside() store.Stats { return store.Stats{} }

// On a disk without room for the reserve, Full is true from the start and no file is made. The log
// says how much free space is needed.
func TestDiskWithoutRoomIsFullFromTheStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 2*size-1)
		d.wantFull(t, 2*size-1, true, false)
		want := fmt.Sprintf("free_bytes=%d needed_bytes=%d free_bytes_in_store=0 needed_bytes_in_store=%d store_bytes=%d\n", 2*size-1, 2*size+size/4, 2*(size/4+1), d.file+size)
		if !strings.Contains(d.log.String(), want) {
			t.Errorf("the log does not say %q:\n%s", want, &d.log)
		}
		d.wantFull(t, 2*size+size/4, false, true)
	})
}

// If the configured size of the reserve changes, Open makes a new file of that size. A larger file
// would take space that nobody asked for.
func TestOpenChangesTheSizeOfTheFile(t *testing.T) {
	dir := t.TempDir()
	for _, n := range []int64{2 * size, size, 3 * size} {
		var log bytes.Buffer
		Open(dir, n, noneInside, slog.New(slog.NewTextHandler(&log, nil)))
		if info, err := os.Stat(filepath.Join(dir, fileName)); err != nil || info.Size() != n || log.Len() > 0 {
			t.Errorf("opened with a size of %d: stat = %v, %v; the log has %q", n, info, err, &log)
		}
	}
}

// The holes of a file of the right size are filled, since its removal would free nothing. A copy of
// a data directory can have such a file, because some programs copy zeros as holes.
func TestOpenFillsTheHolesOfAFile(t *testing.T) {
	var takes [2]int64
	for i, dir := range []string{t.TempDir(), t.TempDir()} {
		name := filepath.Join(dir, fileName)
		if i == 1 {
			if err := errors.Join(os.WriteFile(name, nil, 0o600), os.Truncate(name, size)); err != nil {
				t.Fatal(err)
			}
		}
		if r := Open(dir, size, noneInside, slog.New(slog.DiscardHandler)); !r.reserved {
			t.Error("after Open, the space is not reserved")
		}
		info, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		takes[i] = allocated(info)
	}
	if takes[1] < takes[0] {
		t.Errorf("a file that had holes takes %d bytes of the disk, want at least the %d of a new one", takes[1], takes[0])
	}
}

// Open takes over the file of the reserve that an earlier process made: on a full disk it could not
// make another one. Release removes the file, and returns no error if there is none.
func TestOpenAndRelease(t *testing.T) {
	dir := t.TempDir()
	name, mark := filepath.Join(dir, fileName), []byte("made by the first Open")
	for i := range 2 {
		if r := Open(dir, size, noneInside, slog.New(slog.DiscardHandler)); r.Full() || !r.reserved {
			t.Errorf("full is %v and reserved is %v, want false and true", r.full, r.reserved)
		}
		data, err := os.ReadFile(name)
		if err != nil || len(data) != size || bytes.HasPrefix(data, mark) != (i == 1) {
			t.Fatalf("the file has %d bytes and begins with %q (%v), want %d and, after the second Open, %q",
				len(data), data[:min(len(data), len(mark))], err, size, mark)
		}
		if err := os.WriteFile(name, append(mark, data[len(mark):]...), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		if err := Release(dir); err != nil {
			t.Error(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, fileName)); err == nil {
		t.Error("the file of the reserve exists after Release")
	}
}

// If the file of the reserve cannot be made, Full is true: submits would take the space that
// verdicts need. If it cannot be removed, Release returns an error. A directory stands for such a
// file, because not even root can write to it or remove it.
func TestFileThatCannotBeMade(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, fileName, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	r := &Reserve{
		path: filepath.Join(dir, fileName), size: size, stats: noneInside, log: slog.New(slog.DiscardHandler),
		allocate: allocate,
	}
	r.freeBytes = func(string) (int64, error) { return 10 * size, nil }
	if !r.Full() {
		t.Error("Full is false although there is no reserve")
	}
	if err := Release(dir); err == nil {
		t.Error("Release returns no error although the file remains")
	}

	file, err := os.Create(filepath.Join(dir, "file"))
	if err != nil {
		t.Fatal(err)
	}
	if err := file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := allocate(file, size); err == nil {
		t.Error("allocate returns no error for a file that is closed")
	}
}

// A file that got only a part of its space is removed. It was not released when the disk became
// full, because it counted as not made: commits failed for want of the space that it held.
func TestFileWithAPartOfItsSpaceIsRemoved(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 0)
		d.allocate = func(file *os.File, _ int64) error {
			_, err := file.WriteString("a part")
			return errors.Join(err, errors.New("quota exceeded"))
		}
		d.wantFull(t, 10*size, true, false)
		d.allocate = allocate
		time.Sleep(minPause)
		d.wantFull(t, 10*size, false, true)
	})
}

// A file that cannot be made is tried again after 1 s, then after waits that double, up to 1 min,
// however often the reserve is asked: those who ask commit and grant. After a success the waits
// begin anew.
func TestFailureToMakeTheFileIsFollowedByAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 0)
		var tries []time.Duration
		began := time.Now()
		d.allocate = func(*os.File, int64) error {
			tries = append(tries, time.Since(began))
			return errors.New("quota exceeded")
		}
		ask := func(span time.Duration) {
			for until := time.Now().Add(span); time.Now().Before(until) && len(tries) < 20; time.Sleep(maxAge) {
				d.Full()
				d.Spent()
				d.checkAndMake()
			}
		}
		d.space = 10 * size
		ask(4 * time.Minute)
		if want := seconds(0, 1, 3, 7, 15, 31, 63, 123, 183); !slices.Equal(tries, want) {
			t.Errorf("with room that cannot be allocated, the file was tried after %v, want %v", tries, want)
		}

		fails := d.allocate
		d.allocate = allocate
		time.Sleep(maxPause)
		d.wantFull(t, 10*size, false, true)
		d.wantFull(t, 0, true, false)
		d.allocate, tries, began, d.space = fails, nil, time.Now(), 10*size
		ask(2 * time.Second)
		if want := seconds(0, 1); !slices.Equal(tries, want) {
			t.Errorf("after a success, the file was tried after %v, want %v", tries, want)
		}
	})
}

func seconds(all ...time.Duration) []time.Duration {
	for i := range all {
		all[i] *= time.Second
	}
	return all
}

// A file that cannot be made or removed is tried again, but the failure is logged only once a
// minute, and again when it fails after a success.
func TestFailureIsLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 0)
		logged := func(text string, want int) {
			t.Helper()
			if n := strings.Count(d.log.String(), text); n != want {
				t.Errorf("the log says %q %d times, want %d:\n%s", text, n, want, &d.log)
			}
		}
		block := func() { // the file cannot be removed or opened for writing, not even by root
			t.Helper()
			if err := errors.Join(os.RemoveAll(d.path), os.MkdirAll(filepath.Join(d.path, "below"), 0o700)); err != nil {
				t.Fatal(err)
			}
		}
		commits := func(space int64) {
			d.space = space
			for range 100 {
				d.checkAndMake()
				time.Sleep(repeatAfter / 100)
			}
		}
		const create, release = "cannot create the disk reserve", "cannot release the disk reserve"
		block()
		commits(10 * size)
		logged(create, 1)
		time.Sleep(maxPause)
		d.checkAndMake()
		logged(create, 2)

		remove := func() {
			t.Helper()
			if err := os.RemoveAll(d.path); err != nil {
				t.Fatal(err)
			}
		}
		remove()
		time.Sleep(maxPause)
		d.checkAndMake() // makes the file
		remove()
		d.space = 0
		d.checkAndMake() // has released it
		block()
		commits(10 * size)
		logged(create, 3)

		remove()
		time.Sleep(maxPause)
		d.checkAndMake()
		block()
		const released = "the disk reserve is released"
		before := strings.Count(d.log.String(), released)
		commits(size / 8)
		logged(release, 1)
		logged(released, before) // the file is still there
	})
}

// Those who ask while the file is made do not wait for it: they commit and grant. The disk is full
// until it is made.
func TestNobodyWaitsUntilTheFileIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 0)
		made := make(chan struct{})
		d.allocate = func(file *os.File, size int64) error {
			<-made
			return allocate(file, size)
		}
		d.space = 10 * size
		for range 3 {
			d.Check()
			time.Sleep(maxAge)
			if !d.Full() || d.Spent() {
				t.Error("without the file of the reserve, Full is false or Spent true")
			}
		}
		close(made)
		synctest.Wait()
		if d.Full() || !d.reserved {
			t.Error("the file is made, and the disk is full")
		}
	})
}

// A disk that becomes full while the file is made is not full because of the file: commits have its
// space, too. Check waits until it is removed.
func TestDiskFillsWhileTheFileIsMade(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 0)
		goOn := make(chan struct{})
		d.allocate = func(file *os.File, size int64) error {
			if err := allocate(file, size); err != nil {
				return err
			}
			<-goOn
			return errors.New("no space left")
		}
		d.space = 2*size + size/8
		d.Check()
		synctest.Wait()
		time.Sleep(maxAge)
		d.space -= size / 4
		if d.Check(); d.Spent() || !d.Full() {
			t.Error("while the file is made, the disk counts as if it were gone: Spent must be false, and Full true")
		}
		d.space = size + size/8
		time.AfterFunc(time.Minute, func() { close(goOn) })
		began := time.Now()
		d.Check()
		if _, err := os.Stat(d.path); err == nil || time.Since(began) != time.Minute {
			t.Errorf("Check returned after %v, and the file is there: %v; want that it waits for its end",
				time.Since(began), err == nil)
		}
	})
}

// Full is called for each submit, and measures the free space at most once in maxAge.
func TestFullMeasuresOnlyNowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		measured := 0
		free := d.freeBytes
		d.freeBytes = func(dir string) (int64, error) {
			measured++
			return free(dir)
		}
		for want := range 3 {
			for range 10 {
				d.Full()
			}
			if measured != want {
				t.Errorf("the free space was measured %d times within %v, want %d", measured, time.Duration(want)*maxAge, want)
			}
			time.Sleep(maxAge)
		}
	})
}

// If the free space cannot be measured, nothing changes: the next commit reports the fault of the
// disk.
func TestDiskThatCannotBeMeasured(t *testing.T) {
	if _, err := Free(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("Free of a directory that does not exist returns no error")
	}
	synctest.Test(t, func(t *testing.T) {
		d := open(t, 10*size)
		d.freeBytes = func(string) (int64, error) { return 0, os.ErrInvalid }
		d.wantFull(t, 0, false, true)
	})
}

// A guarded store checks the reserve before each commit, so that the commit that finds the disk
// almost full can use the space of the reserve.
func TestGuardChecksBeforeEachCommit(t *testing.T) {
	for name, commit := range map[string]func(store.Store) error{
		"Commit": func(s store.Store) error { return s.Commit(t.Context(), new(store.Batch)) },
		"Begin": func(s store.Store) error {
			tx, err := s.Begin(t.Context())
			if err == nil {
				tx.Rollback()
			}
			return err
		},
	} {
		d := open(t, 10*size)
		d.space = size
		if err := commit(Guard(memstore.New(), d.Reserve)); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(d.path); err == nil {
			t.Errorf("%s did not release the reserve of a disk that is almost full", name)
		}
	}
}
