package standby

import (
	"context"
	"time"
)

// settled notes that a commit is durable here, and waits for a standby if commits do. It returns
// how long it has waited.
func (f *Feed) settled(number uint64) time.Duration {
	f.mu.Lock()
	f.durable = max(f.durable, number)
	if f.waiting++; f.waiting == 1 {
		f.waitingSince = time.Now()
	}
	began := time.Now()
	f.wake()
	f.mu.Unlock()
	f.awaitSafe(number)
	f.mu.Lock()
	defer f.mu.Unlock()
	f.waiting--
	return time.Since(began)
}

// Waiting returns for how long commits that are durable here have been waiting for a standby by
// now; 0 if none does.
func (f *Feed) Waiting() time.Duration {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.waiting == 0 {
		return 0
	}
	return time.Since(f.waitingSince)
}

// awaitSafe waits until a standby has a commit and all before it, if commits wait for that. If none
// has it in time, commits no longer do.
func (f *Feed) awaitSafe(number uint64) {
	safe := func() bool { return !f.waits || f.has(number) }
	f.mu.Lock()
	ok := safe()
	f.mu.Unlock()
	if ok {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), f.opts.Wait)
	defer cancel()
	if !f.await(ctx, safe) {
		f.change(func() {
			if !safe() {
				f.waits, f.told = false, false
			}
		})
	}
}

// has reports whether a standby that is complete has a commit and all before it. The caller holds
// the lock.
func (f *Feed) has(number uint64) bool {
	for _, fl := range f.followers {
		if fl.complete() && fl.acked >= number {
			return true
		}
	}
	return false
}

// acknowledged lets commits begin to wait for a standby that keeps up, and has just acknowledged
// something. They are said to wait only when a standby has all that did not wait, too.
func (f *Feed) acknowledged(fl *Follower) {
	if f.opts.Wait == 0 {
		return
	}
	f.change(func() {
		s := fl.status()
		keepsUp := s.Complete && s.Behind <= f.opts.Wait/2 && f.followers[fl.name] == fl
		if keepsUp && !f.waits && !f.gaveUp {
			f.waits, f.waitsSince = true, f.last
		}
		f.told = f.waits && (f.told || f.has(f.waitsSince))
	})
}

// GiveUp lets commits wait no longer, and never again: the coordinator stops.
func (f *Feed) GiveUp() {
	f.change(func() { f.gaveUp, f.waits, f.told = true, false, false })
}

// change calls set, which may change told, under the lock, and tells if it has.
func (f *Feed) change(set func()) {
	f.telling.Lock()
	defer f.telling.Unlock()
	f.mu.Lock()
	before := f.told
	set()
	told := f.told
	f.wake()
	f.mu.Unlock()
	if told != before {
		f.opts.OnWait(told)
	}
}

// Waits reports whether everything that was acknowledged is on a standby: commits wait for one, and
// it has all that did not.
func (f *Feed) Waits() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.told
}

// miss is for a standby that leaves: commits wait no longer if by the time that they would wait for
// it none has what is durable now, even if no commit comes that waits in vain. A standby that has
// come back, and left again, has that time once more. The caller holds the lock.
func (f *Feed) miss(fl *Follower) {
	if !f.waits || !fl.complete() {
		return
	}
	f.missed++
	nth, number := f.missed, f.durable
	time.AfterFunc(f.opts.Wait, func() {
		f.change(func() {
			if f.missed == nth && !f.has(number) {
				f.waits, f.told = false, false
			}
		})
	})
}
