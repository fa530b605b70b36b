package engine

import (
	"crypto/rand"
	"fmt"
	mathrand "math/rand/v2"
	"sync"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// Engine is the owner of a partition. Make one with Open, run it with Run. The other methods are
// safe for concurrent use. A method that changes something returns after the change is durable,
// unless its comment says that it does not wait.
//
// Engine itself decides: it asks the rules about each operation and each timer (step), updates what
// changes with a task (apply), and matches tasks with takers (match). What it decides on is in the
// types below. Each is the only one that uses its fields, and says what it has; internal/lint
// checks that.
type Engine struct {
	// Any goroutine may use these. They have locks, or do not change after Open.
	cfg         Config
	st          store.Store
	rules       *lease.Rules
	clock       *clock
	inbox       *inbox     // operations that wait for the loop
	hub         *hub       // who watches what
	dir         *directory // the numbers of workspaces
	invalidated int        // how many leases of an older epoch Open has ended

	// All others belong to the loop. These say how far it is.
	clocks   *clocks   // what time it is
	stalls   *stalls   // the time that leases get back
	intake   *intake   // operations out of the inbox
	pipeline *pipeline // what is decided, and what of it is durable
	effort   *effort   // how much it has tried

	// Tasks and workspaces.
	set    *workset // tasks in memory
	spaces *spaces  // workspaces, tenants, and the counts of what they have
	timers *timers  // of tasks
	alarms *alarms  // all else that waits for its time

	// Who takes tasks, and who holds leases.
	sessions *sessions // streams, and leases that wait for one
	requests *requests // calls for work
	workers  *workers  // who is there, and what waits for those who are not

	// What waits, and who gets it.
	lines    *lines    // tasks that wait for a taker
	parking  *parking  // tasks that wait for their concurrency key
	bindings *bindings // affinity keys of workers
	agenda   *agenda   // queues to be matched
	search   *search   // the task that a taker gets

	memory     lease.Memory   // for the changes of a step
	lastAudit  store.AuditKey // key of the newest audit entry
	grantsNone bool           // match has found that nothing may be granted
	readers    sync.WaitGroup // goroutines that read the store for the loop
}

// Open reads the store and returns an engine that is ready to run. How long it takes does not
// depend on the number of waiting tasks.
func Open(st store.Store, cfg Config) (*Engine, error) {
	cfg.fill()
	identity, err := identify(st, cfg.Recovery)
	if err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	e := newEngine(st, cfg, identity)
	if err := e.load(); err != nil {
		return nil, fmt.Errorf("read the store: %w", err)
	}
	return e, nil
}

// newEngine returns an engine that has not read the store.
func newEngine(st store.Store, cfg Config, identity records.Identity) *Engine {
	e := &Engine{cfg: cfg, st: st, inbox: newInbox(), hub: newHub(), dir: newDirectory()}
	authority := lease.NewAuthority(identity.Epoch, identity.Key)
	authority.KnownFrom = identity.KnownFrom
	e.rules = &lease.Rules{
		Authority: authority,
		Limits:    cfg.Limits,
		Entropy:   entropy(),
		AckWithin: lease.DefaultAckWithin,
	}
	e.clocks, e.stalls, e.effort = &clocks{}, &stalls{}, &effort{}
	e.intake = newIntake(e.inbox)
	e.pipeline = newPipeline(newCommitter(st, e.hub, &e.cfg.Events), e.finishBatch, e.batchDurable)
	e.set = newWorkset(st)
	e.spaces = newSpaces(e.dir, identity.Epoch)
	e.timers = newTimers(e.set, e.pipeline)
	e.alarms = newAlarms(e.clocks)
	e.sessions, e.requests = newSessions(), newRequests()
	e.workers = newWorkers(e.alarms, cfg.ResourceWait, e.loseResources)
	e.agenda = newAgenda()
	e.lines = &lines{
		readings: map[*readAhead]struct{}{}, readers: &e.readers, st: st, inbox: e.inbox,
		spaces: e.spaces, set: e.set, pipeline: e.pipeline, workers: e.workers, agenda: e.agenda, effort: e.effort,
	}
	e.parking = newParking(e.spaces, e.set, e.pipeline, e.workers)
	e.bindings = &bindings{spaces: e.spaces, alarms: e.alarms, lines: e.lines}
	e.search = &search{
		clocks:  e.clocks,
		set:     e.set,
		workers: e.workers,
		lines:   e.lines,
		parking: e.parking,
		effort:  e.effort,
	}
	return e
}

// entropy returns a source of unpredictable bits for the loop.
func entropy() func() uint64 {
	var seed [32]byte
	_, _ = rand.Read(seed[:]) // never fails
	return mathrand.NewChaCha8(seed).Uint64
}

// now returns both clocks as the loop has read them last.
func (e *Engine) now() lease.Now { return e.clocks.now() }

// batch returns the batch that the loop fills now: all that it decides goes there.
func (e *Engine) batch() *batch { return e.pipeline.current() }
