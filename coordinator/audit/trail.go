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

// Bounds of the entries about refusals and calls without effect, and of one step of a sweep.
const (
	window    = time.Minute
	maxKinds  = 10 // kinds with their own entry, for each tenant and window
	sweepStep = 1000
)

// various is the action of an entry that sums up the kinds beyond maxKinds.
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
	counted map[string]map[kind]sum // by tenant: what was seen of each kind in this window and is in no entry yet
}

// kind identifies refusals, or calls without effect, that share an entry. It is an entry without
// the fields that may differ between them.
type kind records.Audit

// sum is how often a kind was seen, and those fields that a kind lacks and that were the same each
// time.
type sum struct {
	times                           uint64
	workspace, object, detail, corr string
}

// sumOf returns the sum of what was seen so often, always as in the entry.
func sumOf(a *records.Audit, times uint64) sum {
	return sum{times, a.Workspace, a.Object, a.Detail, a.Corr}
}

func (s sum) plus(other sum) sum {
	if s.times == 0 {
		return other
	}
	s.times += other.times
	for _, f := range [...]struct{ of, others *string }{
		{&s.workspace, &other.workspace}, {&s.object, &other.object}, {&s.detail, &other.detail}, {&s.corr, &other.corr},
	} {
		if *f.of != *f.others {
			*f.of = ""
		}
	}
	return s
}

// entry returns the entry of a sum.
func (s sum) entry(k kind) records.Audit {
	a := records.Audit(k)
	a.Times, a.Workspace, a.Object, a.Detail, a.Corr = s.times, s.workspace, s.object, s.detail, s.corr
	return a
}

// New returns a trail that keeps entries for the retention.
func New(e Engine, st store.Store, retention time.Duration, log *slog.Logger) *Trail {
	return &Trail{engine: e, st: st, retention: retention, log: log, counted: map[string]map[kind]sum{}}
}

// Record makes an entry durable. It is for what does not change the store; before it takes effect,
// unless it has happened elsewhere.
func (t *Trail) Record(a records.Audit) error { return t.engine.Record(a) }

// NoEffect records that a call succeeded and changed nothing, such as a second cancel of the same
// task. The entry for the first such call of a kind in a window is durable when NoEffect returns
// without an error; the others are counted.
func (t *Trail) NoEffect(a records.Audit) error { return t.sum(a) }

// Refuse records that something was refused, like NoEffect. If the entry cannot be written now, the
// refusal is counted.
func (t *Trail) Refuse(a records.Audit) {
	a.Times = 1
	t.Note(a)
}

// Note is NoEffect for what nobody will repeat: if the entry cannot be written now, it is counted.
func (t *Trail) Note(a records.Audit) {
	if t.sum(a) != nil {
		t.count(a, 1)
	}
}

// sum writes an entry, or counts it for the sum at the end of the window.
func (t *Trail) sum(a records.Audit) error {
	if !t.isFirst(a) {
		t.count(a, 1)
		return nil
	}
	err := t.engine.Record(a)
	if err != nil {
		t.notFirst(a)
	}
	return err
}

// kindOf returns the kind of an entry.
func kindOf(a records.Audit) kind {
	a.Workspace, a.Object, a.Detail, a.Corr, a.Times = "", "", "", "", 0
	return kind(a)
}

// isFirst reports whether an entry is the first of its kind in this window, and the tenant may have
// another kind in this window. Then it gets an entry of its own.
func (t *Trail) isFirst(a records.Audit) bool {
	k := kindOf(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.seenBy(a.Tenant)
	if _, known := seen[k]; known || len(seen) >= maxKinds {
		return false
	}
	seen[k] = sum{}
	return true
}

// notFirst takes back what isFirst has noted about an entry that was not written: the next of its
// kind is the first.
func (t *Trail) notFirst(a records.Audit) {
	k := kindOf(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	if seen := t.seenBy(a.Tenant); seen[k].times == 0 {
		delete(seen, k)
	}
}

// count adds to the sum of a kind at the end of the window, or to that of all kinds beyond
// maxKinds.
func (t *Trail) count(a records.Audit, times uint64) {
	k := kindOf(a)
	t.mu.Lock()
	defer t.mu.Unlock()
	seen := t.seenBy(a.Tenant)
	if _, known := seen[k]; !known && len(seen) >= maxKinds {
		k = kind{Tenant: a.Tenant, Action: various, Outcome: a.Outcome}
	}
	seen[k] = seen[k].plus(sumOf(&a, times))
}

// seenBy returns the counts of a tenant in this window. The caller holds mu.
func (t *Trail) seenBy(tenant string) map[kind]sum {
	seen := t.counted[tenant]
	if seen == nil {
		seen = map[kind]sum{}
		t.counted[tenant] = seen
	}
	return seen
}

// Start begins to write the sums and to remove old entries. stop writes what is counted and not
// written yet, and returns when that is done.
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

// sumUp ends a window: it writes an entry for each kind that was counted. A sum that cannot be
// written is added to that of the next window.
func (t *Trail) sumUp() {
	t.mu.Lock()
	counted := t.counted
	t.counted = map[string]map[kind]sum{}
	t.mu.Unlock()
	for _, seen := range counted {
		for k, s := range seen {
			if s.times == 0 {
				continue
			}
			a := s.entry(k)
			if err := t.engine.Record(a); err != nil {
				t.count(a, s.times)
				t.log.Warn("a sum was not written to the audit yet",
					"tenant", a.Tenant, "action", a.Action, "times", s.times, "error", err)
			}
		}
	}
}

// sweep removes the entries older than the retention. It works in steps, so that other work can run
// in between.
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
