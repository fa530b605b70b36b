package audit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// How long entries are kept, by default and at least.
const (
	DefaultRetention = 30 * 24 * time.Hour
	MinRetention     = time.Hour
)

// Bounds of the entries about refusals, and of one step of a sweep.
const (
	window    = time.Minute
	maxKinds  = 10 // kinds of refusals with their own entry, for each tenant and window
	sweepStep = 1000
)

// various is the action of an entry that sums up the refusals beyond maxKinds.
const various = "various"

// Engine is the part of the engine that a Trail needs.
type Engine interface {
	// Record makes an entry durable.
	Record(a records.Audit) error
	// Keep makes changes of the store durable.
	Keep(ctx context.Context, tenant string, put func(*store.Batch)) error
	// Now returns the time of both clocks.
	Now() lease.Now
}

// Trail writes the audit of a store, and removes old entries. It is safe for concurrent use.
type Trail struct {
	engine    Engine
	st        store.Store
	retention time.Duration
	log       *slog.Logger

	mu      sync.Mutex
	refused map[string]map[kind]uint64 // by tenant: how often each kind was refused in this window and is in no entry yet
}

// kind identifies refusals that share an entry. It is an entry without the fields that differ between such refusals.
type kind records.Audit

// New returns a trail that keeps entries for the retention.
func New(e Engine, st store.Store, retention time.Duration, log *slog.Logger) *Trail {
	return &Trail{engine: e, st: st, retention: retention, log: log, refused: map[string]map[kind]uint64{}}
}

// Record makes an entry durable. It is for calls that succeeded but did not change the store.
func (t *Trail) Record(a records.Audit) error { return t.engine.Record(a) }

// Refuse records that something was refused. The entry for the first refusal of a kind in a window is durable when Refuse returns; the
// others are counted.
func (t *Trail) Refuse(a records.Audit) {
	if k, first := t.count(a); first {
		a.Times = 1
		if err := t.engine.Record(a); err != nil {
			t.again(k) // the sum at the end of the window includes it
		}
	}
}

// count counts a refusal for the sum at the end of the window. It does not count the first refusal of a kind if the tenant may have another
// kind in this window: such a refusal gets its own entry.
func (t *Trail) count(a records.Audit) (k kind, first bool) {
	k = kind(a)
	k.Workspace, k.Object, k.Detail, k.Corr = "", "", "", ""
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.refused[a.Tenant]
	if seen == nil {
		seen = map[kind]uint64{}
		t.refused[a.Tenant] = seen
	}
	if _, known := seen[k]; !known && len(seen) < maxKinds {
		seen[k] = 0
		return k, true
	} else if !known {
		k = kind{Tenant: a.Tenant, Action: various, Outcome: a.Outcome}
	}
	seen[k]++
	return k, false
}

func (t *Trail) again(k kind) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen := t.refused[k.Tenant]; seen != nil {
		seen[k]++
	}
}

// Start begins to write the sums and to remove old entries. stop writes what is counted and not written yet, and returns when that is done.
func (t *Trail) Start() (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { t.run(ctx) })
	return func() { cancel(); running.Wait() }
}

func (t *Trail) run(ctx context.Context) {
	defer t.sumUp()
	next := time.NewTicker(window)
	defer next.Stop()
	for {
		t.sweep(ctx)
		select {
		case <-ctx.Done():
			return
		case <-next.C:
			t.sumUp()
		}
	}
}

// sumUp ends a window: it writes an entry for each kind that was counted.
func (t *Trail) sumUp() {
	t.mu.Lock()
	refused := t.refused
	t.refused = map[string]map[kind]uint64{}
	t.mu.Unlock()
	for _, seen := range refused {
		for k, times := range seen {
			if times == 0 {
				continue
			}
			k.Times = times
			if err := t.engine.Record(records.Audit(k)); err != nil {
				t.log.Warn("refusals were not written to the audit", "tenant", k.Tenant, "times", times, "error", err)
			}
		}
	}
}

// sweep removes the entries older than the retention. It works in steps, so that other work can run in between.
func (t *Trail) sweep(ctx context.Context) {
	before := t.engine.Now().Wall.Add(-t.retention)
	for more := true; more && ctx.Err() == nil; {
		var err error
		if more, err = t.drop(before); err != nil {
			t.log.Warn("old entries of the audit were not removed", "error", err)
		}
	}
}

// drop is one step of a sweep: it removes up to sweepStep entries.
func (t *Trail) drop(before lease.Wall) (more bool, err error) {
	var old []store.AuditKey
	err = t.st.View(func(r store.Reader) error {
		old, err = records.OldAudits(r, before, sweepStep)
		return err
	})
	if err != nil || len(old) == 0 {
		return false, err
	}
	err = t.engine.Keep(context.Background(), "", func(b *store.Batch) {
		for _, k := range old {
			records.DropAudit(b, k)
		}
	})
	return err == nil && len(old) == sweepStep, err
}
