package engine

import (
	"maps"

	"github.com/lessor-dev/lessor/internal/ordered"
	"github.com/lessor-dev/lessor/lease"
)

// pool holds the lines of a queue from which the same takers may take (W12), ordered by the turns
// of their flows.
type pool struct {
	poolKey
	queue *queue
	needs *lease.Requirements  // nil: none
	turns ordered.Set[*lineup] // one for each flow
}

// poolKey identifies a pool within a queue.
type poolKey struct {
	typ       string
	class     lease.Class // the requirements only
	worker    string      // the worker to which the tasks are pinned or bound; empty: any
	preferred bool        // other workers may take from it while that worker has no room (PREFERRED)
}

// pools are the pools of a queue in which a task waits. For a taker, the engine checks the plain
// pools of its types, the demanding pools, the pools tied to its worker, and the preferred pools.
type pools struct {
	plain     map[string]*pool             // for any worker, without requirements; by type
	demanding map[poolKey]*pool            // for any worker that meets the requirements
	tied      map[string]map[poolKey]*pool // for one worker only; by that worker
	// preferred has those whose tasks one worker gets first, and others while it has no room; by
	// that worker.
	preferred map[string]map[poolKey]*pool

	mostPlain, mostDemanding int // see shrunk
}

func newPools() pools {
	return pools{
		plain:     map[string]*pool{},
		demanding: map[poolKey]*pool{},
		tied:      map[string]map[poolKey]*pool{},
		preferred: map[string]map[poolKey]*pool{},
	}
}

// pool finds a pool or makes it.
func (q *queue) pool(k poolKey, needs *lease.Requirements) *pool {
	p := q.pools.find(k)
	if p == nil {
		p = &pool{poolKey: k, queue: q, needs: needs, turns: ordered.NewSet(lineupLess)}
		q.pools.add(p)
	}
	return p
}

// byWorker returns the pools among which a pool with a worker belongs.
func (ps *pools) byWorker(k poolKey) map[string]map[poolKey]*pool {
	if k.preferred {
		return ps.preferred
	}
	return ps.tied
}

func (k poolKey) isPlain() bool { return k.worker == "" && k.class == "" }

func (ps *pools) find(k poolKey) *pool {
	switch {
	case k.isPlain():
		return ps.plain[k.typ]
	case k.worker == "":
		return ps.demanding[k]
	}
	return ps.byWorker(k)[k.worker][k]
}

func (ps *pools) add(p *pool) {
	switch {
	case p.isPlain():
		ps.plain[p.typ] = p
		return
	case p.worker == "":
		ps.demanding[p.poolKey] = p
		return
	}
	of := ps.byWorker(p.poolKey)
	if of[p.worker] == nil {
		of[p.worker] = map[poolKey]*pool{}
	}
	of[p.worker][p.poolKey] = p
}

// drop removes a pool in which no task waits. It keeps a plain pool as long as there are few plain
// pools, because it is likely to be needed again.
func (ps *pools) drop(p *pool) {
	switch {
	case p.isPlain():
		if len(ps.plain) > keptTypes {
			delete(ps.plain, p.typ)
			ps.plain = shrunk(ps.plain, &ps.mostPlain)
		}
		return
	case p.worker == "":
		delete(ps.demanding, p.poolKey)
		ps.demanding = shrunk(ps.demanding, &ps.mostDemanding)
		return
	}
	of := ps.byWorker(p.poolKey)
	if delete(of[p.worker], p.poolKey); len(of[p.worker]) == 0 {
		delete(of, p.worker)
	}
}

// shrunk returns m, which may have just lost an entry, or a copy of m if it has had far more
// entries: to iterate over a map takes as long as for the most entries that it ever had. Each grant
// would be slow from the time on when many types have waited. most is that number of entries, and
// is kept up to date.
func shrunk[K comparable, V any](m map[K]V, most *int) map[K]V {
	if *most = max(*most, len(m)+1); *most < 1024 || len(m) > *most/8 {
		return m
	}
	*most = len(m)
	small := make(map[K]V, len(m))
	maps.Copy(small, m)
	return small
}

// meets reports whether the taker has what the tasks of a pool require. Every grant calls it, so
// the answer is cached.
func (t *taker) meets(p *pool) bool {
	if p.needs == nil {
		return true
	}
	meets, known := t.fits[p.class]
	if !known {
		if t.fits == nil || len(t.fits) >= keptFits {
			t.fits = map[lease.Class]bool{}
		}
		meets = t.wants.Capabilities.Meet(p.needs)
		t.fits[p.class] = meets
	}
	return meets
}

// keptFits is the most classes for which the answer of meets is cached per taker.
const keptFits = 1024

// lineup holds the lines of one flow that are in one pool, ordered by their first tasks.
type lineup struct {
	pool *pool
	flow *flow
	// begin is where it stands in pool.turns: flow.begin, or a value that flow.begin had before and
	// that is not later.
	begin float64
	lines ordered.Set[*line]
}

func newLineup(p *pool, f *flow) *lineup {
	return &lineup{pool: p, flow: f, begin: f.begin, lines: ordered.NewSet(lineLess)}
}

// lineupLess orders lineups by the turns of their flows.
func lineupLess(a, b *lineup) bool {
	if a.begin != b.begin {
		return a.begin < b.begin
	}
	return a.flow.key < b.flow.key
}

// move puts a lineup where the next turn of its flow begins.
func (up *lineup) move() {
	up.pool.turns.Delete(up)
	up.begin = up.flow.begin
	up.pool.turns.Set(up)
}
