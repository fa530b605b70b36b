package limits

import (
	"bytes"
	"context"
	"crypto/sha256"
	"maps"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/engine"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
	"github.com/lessor-dev/lessor/store/records"
)

// backup is a backup, with what the callers had been told by then: all of that is in it.
type backup struct {
	data   []byte
	began  time.Time
	before map[string]task // tasks that were known before it began
	closed map[*leaseRecord]report
	byKey  map[keyOf]string
	tokens map[*tenant]*credential
	ended  time.Time
	after  map[string]task // tasks that were known when it had ended
	sent   map[*leaseRecord]bool
}

// beginBackup notes what is in a backup that begins now.
func (b *book) beginBackup() *backup {
	b.mu.Lock()
	defer b.mu.Unlock()
	k := &backup{
		began: time.Now(), before: map[string]task{}, closed: map[*leaseRecord]report{},
		byKey: maps.Clone(b.byKey), tokens: b.w.tokens(),
	}
	for id, t := range b.tasks {
		k.before[id] = *t
	}
	for _, all := range b.grants {
		for _, l := range all {
			k.closed[l] = l.closed
		}
	}
	return k
}

// endBackup notes what may be in a backup that has ended.
func (b *book) endBackup(k *backup) {
	b.mu.Lock()
	defer b.mu.Unlock()
	k.after, k.sent, k.ended = map[string]task{}, map[*leaseRecord]bool{}, time.Now()
	for id, t := range b.tasks {
		k.after[id] = *t
	}
	for _, all := range b.grants {
		for _, l := range all {
			k.sent[l] = len(l.sent) > 0
		}
	}
}

// restored begins a new epoch. What callers were told since the backup does not hold any more:
// tasks and outcomes are lost, and no lease lives on.
func (b *book) restored(k *backup) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.epochs++
	b.since = time.Now()
	b.began = append(b.began, b.since)
	b.byKey = maps.Clone(k.byKey)
	for id, t := range b.tasks {
		before, sure := k.before[id]
		after := k.after[id]
		t.lost = t.lost || t.made.After(k.ended)
		t.maybe = before.maybe || !sure
		t.done, t.output, t.adopted, t.gone = before.done, before.output, before.adopted, before.gone
		t.deleted, t.purged = after.deleted, after.purged
		if b.active[t.place] > 0 || !time.Now().After(b.gone[t.place]) { // a sweep goes on
			t.deleted, t.purged = true, true
		}
	}
	for _, all := range b.grants {
		for _, l := range all {
			if l.closed = k.closed[l]; l.closed == (report{}) && !k.sent[l] && l.lost.IsZero() {
				l.lost, l.lostBy = time.Now(), "a new epoch"
			}
		}
	}
	b.forgetKicks(k.began)
	for _, r := range b.ruled {
		r.paused.end()
		r.inflight.end()
	}
}

// tokens returns the credentials of the tenants.
func (w *world) tokens() map[*tenant]*credential {
	all := map[*tenant]*credential{}
	for _, tn := range w.tenants {
		all[tn] = tn.token.Load()
	}
	return all
}

// backs makes a backup.
func (w *world) backs(*tenant) {
	w.note("backup")
	w.ask(w.modest, "Backup", 0, func(ctx context.Context, c *client) error {
		k := w.book.beginBackup()
		stream, err := c.admin.Backup(ctx, &lessorv1.BackupRequest{})
		if err != nil {
			return err
		}
		for {
			m, err := stream.Recv()
			if err != nil {
				return err
			}
			k.data = append(k.data, m.GetData()...)
			if end := m.GetEnd(); end != nil {
				if sum := sha256.Sum256(k.data); end.GetBytes() != uint64(len(k.data)) || !bytes.Equal(sum[:], end.GetSha256()) {
					w.problem("A11: a backup of %d bytes ends as one of %d, or with another sum", len(k.data), end.GetBytes())
				}
				// otherwise it is not known whether a credential is in it, and is not revoked
				if w.book.endBackup(k); maps.Equal(k.tokens, w.tokens()) {
					w.kept.Store(k)
				}
				return nil
			}
		}
	})
}

// restores starts a coordinator on the newest backup, whose store begins a new epoch. At times it
// only revokes all leases, as --recovery=invalidate does.
func (w *world) restores(tn *tenant) {
	k, kill, invalidate := w.kept.Load(), one(w.rng, 2), one(w.rng, 4)
	if k == nil && !invalidate {
		w.backs(tn)
		return
	}
	w.note("restore, kill %v, invalidate %v", kill, invalidate)
	w.log.allow(kill)
	w.shutDown(kill)
	for _, tn := range w.tenants {
		for _, p := range tn.peers {
			for _, l := range p.allLines() { // what has come on them must not be read later
				l.cut()
			}
		}
	}
	time.Sleep(upTo(w.rng, 3*time.Second))
	synctest.Wait()
	recovery := engine.InvalidateLeases
	if invalidate {
		k = w.book.beginBackup()
		w.book.endBackup(k)
	} else {
		recovery = w.restoreStore(k.data)
	}
	w.book.restored(k)
	for tn, c := range k.tokens { // newer ones are not known any more; that it was revoked since is not either
		tn.token.Store(&credential{id: c.id, token: c.token})
	}
	w.start(recovery)
	w.log.allow(false)
	w.note("the coordinator is back")
}

// restoreStore replaces the store by a backup of it. The new epoch begins here, as with the
// command, or with the start, as the returned recovery says.
func (w *world) restoreStore(data []byte) engine.Recovery {
	st, err := memstore.Restore(bytes.NewReader(data))
	if err != nil {
		w.Fatal(err)
	}
	w.st = st
	w.checkStore()
	if one(w.rng, 2) {
		return engine.RestoredStore
	}
	var b store.Batch
	now := lease.WallOf(time.Now())
	if err := st.View(func(r store.Reader) error { _, err := records.MakeIndependent(&b, r, now); return err }); err != nil {
		w.Fatal(err)
	}
	time.Sleep(lease.UntilNextEpoch(now))
	if err := st.Commit(w.Context(), &b); err != nil {
		w.Fatal(err)
	}
	return engine.KeepLeases
}
