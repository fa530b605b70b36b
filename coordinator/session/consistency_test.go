package session

import (
	"slices"

	"github.com/lessor-dev/lessor/coordinator/quota"
	"github.com/lessor-dev/lessor/lease"
)

// inspect checks the memory of the sessions: the indexes must agree with each other, and everything
// must be within its limits (W11). It is called when nothing happens except slow commits.
func (w *world) inspect() {
	all, stuck := w.streams.resumes, w.book.stuck()
	all.mu.Lock()
	defer all.mu.Unlock()
	bytes := 0
	for e := all.kept.Front(); e != nil; e = e.Next() {
		d := e.Value.(*resumeState)
		bytes += d.bytes
		if d.kept != e || d.stream != nil || all.byID[d.id] != d || all.newest[lease.InstanceOf(d.id)] != d {
			w.Errorf("session %s is kept, but has a stream or is not indexed", d.id)
		}
	}
	if bytes != all.bytes || bytes > maxKeptBytes {
		w.Errorf("the kept sessions have %d bytes, and %d are counted; the limit is %d", bytes, all.bytes, maxKeptBytes)
	}
	for id, d := range all.byID {
		if d.stream == nil && d.kept == nil {
			w.Errorf("session %s has no stream and is not kept, so that nothing will end it", id)
		}
		w.inspectOutbox(d, stuck[id])
		w.inspectFeedback(d)
	}
	for instance, d := range all.newest {
		if all.byID[d.id] != d {
			w.Errorf("the newest session of instance %s is not indexed by its id", instance)
		}
	}
	w.inspectStreams()
}

// inspectOutbox checks the frames of a session that wait to be sent, and those that were sent.
// stalled says that a line of the session stands still.
func (w *world) inspectOutbox(d *resumeState, stalled bool) {
	o := d.out
	o.mu.Lock()
	defer o.mu.Unlock()
	bytes := 0
	for n, f := range o.sent.frames {
		bytes += f.bytes
		if want := o.sent.last - uint64(len(o.sent.frames)-n-1); f.seq != want {
			w.Errorf("session %s: a retained frame has seq %d, want %d", d.id, f.seq, want)
		}
		if f.seq <= o.sent.acked {
			w.Errorf("session %s: frame %d is retained, although the frames up to %d are acknowledged", d.id, f.seq, o.sent.acked)
		}
	}
	if bytes != o.sent.bytes || bytes > maxRetainedBytes && len(o.sent.frames) > 1 || len(o.sent.frames) > maxRetained {
		w.Errorf("session %s: %d frames of %d bytes are retained, and %d bytes are counted",
			d.id, len(o.sent.frames), bytes, o.sent.bytes)
	}
	leases := 0
	for _, f := range o.unacked.frames {
		leases += len(f.leases)
	}
	if leases != o.unacked.leases || leases > maxUnacked {
		w.Errorf("session %s: %d leases are not acknowledged, and %d are counted", d.id, leases, o.unacked.leases)
	}
	reserved := 0
	for _, a := range o.waiting.answers {
		reserved += a.reserved
	}
	if (o.writer == nil) != (d.stream == nil) || o.writer != nil && o.writer != &d.stream.writer {
		w.Errorf("session %s and its outbox have different streams", d.id)
	}
	switch {
	case o.reserved < reserved, !w.slow && !stalled && o.reserved != reserved:
		w.Errorf("session %s: answers of %d bytes wait, and %d are reserved", d.id, reserved, o.reserved)
	case o.writer != nil && !stalled && !o.paused && (!o.waiting.empty() || len(o.sent.toResend) > 0):
		w.Errorf("session %s: frames wait to be sent, and no writer sends them", d.id)
	}
	if o.reserved > maxHeld {
		w.Errorf("session %s: %d bytes are reserved for answers, want at most %d", d.id, o.reserved, maxHeld)
	}
}

// inspectFeedback checks the feedback of a session that waits for the engine.
func (w *world) inspectFeedback(d *resumeState) {
	q := d.feeds
	q.mu.Lock()
	defer q.mu.Unlock()
	bytes := 0
	for i := range q.waiting {
		bytes += q.waiting[i].Size()
	}
	if bytes != q.bytes || bytes > maxFeedback && len(q.waiting) > 1 || len(q.lost) > maxLost {
		w.Errorf("session %s: %d items of feedback of %d bytes wait, and %d bytes are counted; the limit is %d",
			d.id, len(q.waiting), bytes, q.bytes, maxFeedback)
	}
	if q.inEngine < 0 || !w.slow && (q.inEngine > 0 || bytes > 0) {
		w.Errorf("session %s: feedback of %d bytes waits, and the engine has %d bytes, although it has nothing to do",
			d.id, bytes, q.inEngine)
	}
}

// inspectPackages checks that the engine knows what is installed.
func (w *world) inspectPackages() {
	for _, ss := range w.open.ofTenant(home.Tenant) {
		ss.slotsMu.Lock()
		ss.mu.Lock()
		if has := ss.packages.installed(); ss.member != nil && !ss.left && !slices.Equal(ss.enginePackages, has) {
			w.Errorf("session %s has %v, and the engine knows %v", ss.id, has, ss.enginePackages)
		}
		ss.mu.Unlock()
		ss.slotsMu.Unlock()
	}
}

// inspectStreams checks that exactly the streams that are served are listed and counted.
func (w *world) inspectStreams() {
	w.mu.Lock()
	served := len(w.lines)
	w.mu.Unlock()
	w.open.mu.Lock()
	defer w.open.mu.Unlock()
	for ss := range w.open.all {
		if l := ss.stream.(*line); !l.open() && !l.down.standsStill() && !w.slow {
			w.Errorf("line %s has ended, but its session %s is still listed", l.name, ss.id)
		}
	}
	for _, u := range w.quotas.Usage(quota.Caller{Tenant: home.Tenant}) {
		if u.Limit == quota.Sessions && u.Of == "tenant" && u.Used != served {
			w.Errorf("%d streams are served, and %d are counted", served, u.Used)
		}
	}
}

// empty checks that nothing is left in memory after all workers have left.
func (w *world) empty() {
	all := w.streams.resumes
	w.open.rememberDrain(home.Tenant, "", nil) // also forgets the drains that have expired
	for what, n := range map[string]int{
		"known sessions": len(all.byID), "newest sessions": len(all.newest), "kept sessions": all.kept.Len(), "bytes of kept sessions": all.bytes,
		"open sessions": w.open.Len(), "instances": len(w.open.open), "remembered drains": len(w.open.drains.byInstance) + len(w.open.drains.ended),
	} {
		if n != 0 {
			w.Errorf("%d %s are left after all workers have left, want none", n, what)
		}
	}
}
