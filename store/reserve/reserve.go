// Package reserve keeps disk space for what must be committed even if the disk is full: verdicts,
// cancels, expiries, and the deletions that free space. The reserve is a file without content. If
// the disk has less free space than the size of that file, and the store has not as much free space
// inside, the reserve reports that the disk is full, and the engine accepts no new tasks. If hardly
// any space is free, the reserve removes the file, and commits use its space. If then, with the
// space of the file, less than its size is free again, the reserve reports that it is spent, and
// the engine grants no tasks: what is left is for the reports of those that run. It creates the
// file again once there is enough free space. A disk that the store itself has filled never gets
// it, since the store does not shrink: there, new tasks are accepted without the file once the
// store has much free space inside.
package reserve

import (
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/store"
)

const (
	fileName = "lessor.reserve"
	// maxAge is how long Full uses the last measured free space before it measures again.
	maxAge = 10 * time.Millisecond
	// repeatAfter is how long a failure that stays the same is not logged again: it is tried again
	// and may fail again. It is also how long the log does not say again that the disk is full, or
	// the reserve spent: on a disk that the store itself has filled, that changes as often as tasks
	// come and go.
	repeatAfter = time.Minute
	// After a failure to make the file, it is not tried again for minPause, then for twice as long
	// each time, up to maxPause: the free space may look like enough when it is not, for example
	// because of a quota.
	minPause = time.Second
	maxPause = time.Minute
)

// Reserve is the reserve of one data directory. Its methods may be called by several goroutines.
type Reserve struct {
	path      string
	size      int64
	stats     func() store.Stats
	log       *slog.Logger
	freeBytes func(dir string) (int64, error) // free space of the disk of dir, in bytes
	allocate  func(file *os.File, size int64) error

	mu sync.Mutex
	// making is closed when the file is made, or could not be; nil: nobody makes it. A goroutine of
	// its own does: those who call commit and grant, and cannot wait until a disk has found the
	// space, or until zeros are written where that is how space is found.
	making     chan struct{}
	reserved   bool // the file exists and has its full size
	full       condition
	spent      condition
	measuredAt time.Time     // of the last measurement
	free       int64         // what was measured last, in bytes
	failure    string        // the last failure that was logged; empty once the file was made
	failureAt  time.Time     // when it was logged
	pause      time.Duration // after the last failure to make the file; 0: it was made since
	pauseEnds  time.Time     // when it may be tried again
}

// condition is a state of the disk of which the log tells.
type condition struct {
	holds  bool
	told   bool // the log says last that it holds
	toldAt time.Time
}

// set sets whether the condition holds, and reports whether the log should tell: of a change, but
// not more often than once in repeatAfter that it holds.
func (c *condition) set(holds bool) (tell bool) {
	c.holds = holds
	if holds == c.told || holds && time.Since(c.toldAt) < repeatAfter {
		return false
	}
	if c.told = holds; holds {
		c.toldAt = time.Now()
	}
	return true
}

// Open opens the reserve of a data directory, which must exist. size is in bytes; stats are those
// of the store. The caller holds the lock of the directory. If the disk has no space for the
// reserve, that is no error: Full then reports true.
func Open(dir string, size int64, stats func() store.Stats, log *slog.Logger) *Reserve {
	r := &Reserve{
		path:      filepath.Join(dir, fileName),
		size:      size,
		stats:     stats,
		log:       log,
		freeBytes: Free,
		allocate:  allocate,
	}
	r.adopt()
	if free, err := r.freeBytes(dir); err == nil && !r.reserved && r.mayMake(free) {
		r.make()
	}
	r.Check()
	return r
}

// adopt takes over the file of an earlier process. A copy of the file may have holes, which adopt
// fills where the file system can. A file that is not fit is removed, so that its space counts as
// free until the file is made again.
func (r *Reserve) adopt() {
	info, err := os.Stat(r.path)
	if err != nil {
		return
	}
	if info.Size() == r.size {
		if r.reserved = allocated(info) >= r.size; !r.reserved {
			r.make()
		}
	}
	if r.reserved || info.Size() == 0 {
		return
	}
	if err := Release(filepath.Dir(r.path)); err != nil {
		r.log.Error("cannot release the disk reserve", "error", err)
	}
}

// Release removes the reserve of a data directory, so that a store can be opened on a full disk.
func Release(dir string) error {
	if err := os.Remove(filepath.Join(dir, fileName)); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return nil
}

// Full reports whether the disk has so little free space that new tasks should be refused.
func (r *Reserve) Full() bool { return r.now(&r.full) }

// Spent reports whether there is so little free space, with that of the reserve, that it should be
// left to the reports of tasks that run: no task should be granted. Then Full is true, too.
func (r *Reserve) Spent() bool { return r.now(&r.spent) }

// now reports whether a condition holds, of which the last measurement is not older than maxAge.
func (r *Reserve) now(c *condition) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refreshLocked()
	return c.holds
}

// Room returns the free space of the disk, and with how much new tasks are accepted although there
// is no room inside the store: both in bytes, without the space of the reserve's file. While the
// disk is full, more is needed than before. inside is how much free space inside the store is
// enough instead; if that is more than the store has, only the disk can give the room; 0 while the
// disk is full means that new tasks wait for the file of the reserve.
func (r *Reserve) Room() (free, needed, inside int64) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.refreshLocked()
	needed = r.size
	if r.full.holds {
		needed = r.neededLocked()
	}
	if !r.awaitedLocked(r.free) {
		inside = max(0, r.insideLocked(r.free))
	}
	return r.free, needed, inside
}

// refreshLocked measures the free space if the last measurement is older than maxAge.
func (r *Reserve) refreshLocked() {
	if time.Since(r.measuredAt) >= maxAge {
		r.checkLocked()
	}
}

// Check measures the free space, and removes the file of the reserve, or lets it be made,
// accordingly. Call it before each commit. If the disk becomes full while the file is made, it
// waits for that: then the file is removed.
func (r *Reserve) Check() {
	if made := r.check(); made != nil {
		<-made
		r.check()
	}
}

// check is Check, but it does not wait: it returns what there is to wait for.
func (r *Reserve) check() (made <-chan struct{}) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if short := r.checkLocked(); short {
		return r.making
	}
	return nil
}

// mayMake reports whether there is room for the file, and it is time to try.
func (r *Reserve) mayMake(free int64) bool {
	return r.fits(free) && !time.Now().Before(r.pauseEnds)
}

// fits reports whether the file leaves enough of the disk: as much as it takes itself, or less if
// then there is room for new tasks.
func (r *Reserve) fits(free int64) bool {
	most := r.size + r.size/4
	return free >= 2*r.size || free-r.size >= least(most) && r.reusable() >= most
}

// reusable is how many bytes commits can write without more space of the disk.
func (r *Reserve) reusable() int64 { return r.stats().ReusableBytes }

// checkLocked reports whether a commit may need the space of the file.
func (r *Reserve) checkLocked() (short bool) {
	r.measuredAt = time.Now()
	free, err := r.freeBytes(filepath.Dir(r.path))
	if err != nil { // the next commit reports the fault of the disk
		return false
	}
	short = free < r.size/4
	switch {
	case r.reserved && short && r.releaseLocked(free):
		free += r.size
	case r.making != nil:
		if info, err := os.Stat(r.path); err == nil {
			free += allocated(info) // the file is not in the way: it is removed if it gets no further
		}
	case !r.reserved && r.mayMake(free):
		made := make(chan struct{})
		r.making = made
		go func() {
			defer close(made)
			r.make()
			r.check()
		}()
	}
	r.free = free
	r.setFullLocked(r.awaitedLocked(free) || !r.roomLocked(free), free)
	r.setSpentLocked(!r.reserved && !r.resultsFitLocked(free), free)
	return short
}

// awaitedLocked reports whether new tasks have to wait for the file: it is being made, or should
// be. If it cannot be made although there seems to be room, for a quota for example, the free space
// is not what it seems.
func (r *Reserve) awaitedLocked(free int64) bool {
	return !r.reserved && (r.making != nil || r.fits(free))
}

// roomLocked reports whether there is room for new tasks: on the disk, or inside the store.
func (r *Reserve) roomLocked(free int64) bool {
	inside := r.insideLocked(free)
	return inside <= 0 || r.reusable() >= inside
}

// insideLocked returns how much free space inside the store is enough for new tasks if the disk has
// that much. It may be more than the store has bytes.
//
// Beside the file of the reserve, space inside counts like that of the disk. But it may be in
// pieces too small for a large value, and then the file of the store still grows. So if there is no
// file, or the disk is close to the point where it is removed, half of the space inside counts, and
// together with what is free and what the file holds it has to be as much as the file and new tasks
// need on the disk. If the disk has hardly anything left by which the store could grow, most of the
// store has to be free, too: then the pieces are large.
func (r *Reserve) insideLocked(free int64) int64 {
	enough := r.size
	if r.full.holds {
		enough += r.size / 4 // otherwise full would change again and again
	}
	held := int64(0)
	if r.reserved {
		held = r.size
	}
	switch {
	case r.reserved && free >= enough:
		return 0
	case r.reserved && free >= least(enough):
		return enough
	}
	inside := 2 * (enough + r.size - held - free)
	if free < least(enough) {
		stats := r.stats()
		// the rest of the file, behind its last page, has no space of the disk
		inside = max(inside, (stats.FileBytes-stats.FreeBytes+stats.ReusableBytes)/4*3)
	}
	return inside
}

// least is how much of the disk is free at least where the store may grow by new tasks, if that
// much is enough for them.
func least(enough int64) int64 { return enough * 3 / 8 }

// resultsFitLocked reports whether there is as much room for the results of tasks as the reserve
// had. Because of the pieces, only half of the free space inside the store counts, but that always:
// the file never shrinks, so on a disk that the store has filled no other room comes back.
func (r *Reserve) resultsFitLocked(free int64) bool {
	enough := r.size
	if r.spent.holds {
		enough += r.size / 4
	}
	return free+r.reusable()/2 >= enough
}

func (r *Reserve) releaseLocked(free int64) (done bool) {
	if err := Release(filepath.Dir(r.path)); err != nil {
		r.failedLocked("cannot release the disk reserve", err)
		return false
	}
	r.reserved = false
	r.log.Warn("the disk is almost full: the disk reserve is released for verdicts, cancels and expiries",
		"free_bytes", free, "reserve_bytes", r.size, "needed_bytes", r.neededLocked())
	return true
}

// make creates the file of the reserve, and notes whether it could.
func (r *Reserve) make() {
	err := r.create()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.making = nil; err != nil {
		r.failedLocked("cannot create the disk reserve", err)
		r.pause = min(max(2*r.pause, minPause), maxPause)
		r.pauseEnds = time.Now().Add(r.pause)
		return
	}
	r.reserved, r.failure, r.pause = true, "", 0
}

// create creates the file of the reserve. A file that got only a part of its space, for example up
// to a quota, is removed: commits need that part.
func (r *Reserve) create() error {
	file, err := os.OpenFile(r.path, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(r.allocate(file, r.size), file.Close()); err != nil {
		err = errors.Join(err, Release(filepath.Dir(r.path)))
	}
	return err
}

// failedLocked logs a failure, unless the same one was logged less than repeatAfter ago.
func (r *Reserve) failedLocked(msg string, err error) {
	failure := msg + ": " + err.Error()
	if failure == r.failure && time.Since(r.failureAt) < repeatAfter {
		return
	}
	r.failure, r.failureAt = failure, time.Now()
	r.log.Error(msg, "error", err)
}

func (r *Reserve) setFullLocked(full bool, free int64) {
	switch {
	case !r.full.set(full):
	case full:
		stats := r.stats()
		r.log.Warn("the disk is nearly full: new tasks are refused until there is room",
			"free_bytes", free, "needed_bytes", r.neededLocked(),
			"free_bytes_in_store", stats.ReusableBytes, "needed_bytes_in_store", r.insideLocked(free),
			"store_bytes", stats.FileBytes)
	default:
		r.log.Info("the disk has room again: new tasks are accepted",
			"free_bytes", free, "free_bytes_in_store", r.reusable())
	}
}

func (r *Reserve) setSpentLocked(spent bool, free int64) {
	switch {
	case !r.spent.set(spent):
	case spent:
		r.log.Warn("hardly any room is left: no tasks are granted until there is; running tasks continue",
			"free_bytes", free, "free_bytes_in_store", r.reusable(), "needed_bytes", r.size+r.size/4)
	default:
		r.log.Info("there is room for the results of tasks again: tasks are granted",
			"free_bytes", free, "free_bytes_in_store", r.reusable())
	}
}

// neededLocked returns how much free space on the disk is enough for new tasks again.
func (r *Reserve) neededLocked() int64 {
	needed := r.size + r.size/4
	if !r.reserved {
		needed += r.size // the file is made first
	}
	return needed
}
