package engine

import (
	"github.com/tidwall/btree"

	"github.com/lessor-dev/lessor/lease"
)

// pool is the lines of a queue that the same takers may take from (W12), by the flows whose turns they are.
type pool struct {
	poolKey
	queue *queue
	needs *lease.Requirements // nil: none
	turns *btree.BTreeG[*flow]
}

// poolKey tells pools apart.
type poolKey struct {
	typ    string
	class  lease.Class // requirements alone
	worker string      // whose it is; empty: anybody's
	loose  bool        // others take from it while the worker has no room
}

// pools are those of a queue in which a task waits. A taker looks at those of its types, at those with requirements, of which there are few, and
// at those of its own name.
type pools struct {
	plain     map[string]*pool // by type: those without requirements
	demanding map[poolKey]*pool
	tied      map[string]map[poolKey]*pool // by worker, and for nobody else
	loose     map[string]map[poolKey]*pool // by worker that goes first
}

func newPools() pools {
	return pools{
		plain: map[string]*pool{}, demanding: map[poolKey]*pool{}, tied: map[string]map[poolKey]*pool{}, loose: map[string]map[poolKey]*pool{},
	}
}

// pool finds a pool or makes it.
func (q *queue) pool(k poolKey, needs *lease.Requirements) *pool {
	p := q.pools.find(k)
	if p == nil {
		p = &pool{poolKey: k, queue: q, needs: needs, turns: newTurns()}
		q.pools.add(p)
	}
	return p
}

// group is where the pools of a kind are.
func (ps *pools) group(k poolKey) map[poolKey]*pool {
	switch {
	case k.loose:
		return ps.loose[k.worker]
	case k.worker != "":
		return ps.tied[k.worker]
	}
	return ps.demanding
}

func (k poolKey) isPlain() bool { return k.worker == "" && k.class == "" }

func (ps *pools) find(k poolKey) *pool {
	if k.isPlain() {
		return ps.plain[k.typ]
	}
	return ps.group(k)[k]
}

func (ps *pools) add(p *pool) {
	of := ps.tied
	switch {
	case p.isPlain():
		ps.plain[p.typ] = p
		return
	case p.worker == "":
		ps.demanding[p.poolKey] = p
		return
	case p.loose:
		of = ps.loose
	}
	if of[p.worker] == nil {
		of[p.worker] = map[poolKey]*pool{}
	}
	of[p.worker][p.poolKey] = p
}

// drop forgets a pool in which nothing waits, unless it is one of the few that come back with the next task.
func (ps *pools) drop(p *pool) {
	switch {
	case p.isPlain():
		if len(ps.plain) > keptTypes {
			delete(ps.plain, p.typ)
		}
		return
	case p.worker == "":
		delete(ps.demanding, p.poolKey)
		return
	}
	delete(ps.group(p.poolKey), p.poolKey)
	if len(ps.tied[p.worker]) == 0 {
		delete(ps.tied, p.worker)
	}
	if len(ps.loose[p.worker]) == 0 {
		delete(ps.loose, p.worker)
	}
}

// open calls visit with each pool from which the taker may take a task now.
func (e *Engine) open(q *queue, t *taker, visit func(*pool)) {
	look := func(p *pool) {
		if p != nil && p.turns.Len() > 0 && t.takes(p.typ) && t.meets(p) {
			visit(p)
		}
	}
	if len(t.wants.Types) > 0 {
		for _, typ := range t.wants.Types {
			look(q.pools.plain[typ])
		}
	} else {
		for _, p := range q.pools.plain {
			look(p)
		}
	}
	for _, p := range q.pools.demanding {
		look(p)
	}
	for _, p := range q.pools.tied[t.wants.Worker] {
		look(p)
	}
	for worker, all := range q.pools.loose {
		for _, p := range all {
			if worker == t.wants.Worker || !e.hasRoom(worker, p) {
				look(p)
			}
		}
	}
}

// meets reports whether the taker has what the tasks of a pool require. It is asked at each grant, so the answer is remembered.
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

// keptFits is how many classes a taker remembers to have been compared with.
const keptFits = 1024

// lineup is the lines of a flow that are in one pool, by their first tasks.
type lineup struct {
	pool  *pool
	lines *btree.BTreeG[*line]
}

func newLineup(p *pool) *lineup {
	return &lineup{pool: p, lines: btree.NewBTreeGOptions(lineLess, btree.Options{NoLocks: true})}
}

func lineLess(a, b *line) bool {
	if a.at != b.at {
		return placeLess(a.at, b.at)
	}
	return a.kind.Class < b.kind.Class
}

// rank puts the line where its first task belongs. Of one that must be read first, the first task is not before the bound of its head.
func (l *line) rank() {
	at, ok := l.head.first()
	if !ok {
		at = l.head.bound
	}
	switch {
	case at == l.at:
	case l.in.lines.Len() == 1: // there is no order to be kept
		l.at = at
	default:
		l.in.lines.Delete(l)
		l.at = at
		l.in.lines.Set(l)
	}
}

// enlist puts a line that holds a task, or may do so, where a taker finds it.
func (e *Engine) enlist(l *line) {
	if l.in != nil {
		l.rank()
		return
	}
	key, needs := e.poolOf(l)
	p := l.queue.pool(key, needs)
	l.in = l.flow.pools[p]
	if l.in == nil {
		l.in = newLineup(p)
		l.flow.pools[p] = l.in
		p.turns.Set(l.flow)
	}
	l.queue.waiting++
	l.at, _ = l.head.first()
	if l.head.dry() {
		l.at = l.head.bound
	}
	l.in.lines.Set(l)
	e.await(l)
}

// unlist is the opposite.
func (e *Engine) unlist(l *line) {
	p := l.in.pool
	l.in.lines.Delete(l)
	if l.in.lines.Len() == 0 {
		delete(l.flow.pools, p)
		if p.turns.Delete(l.flow); p.turns.Len() == 0 {
			l.queue.pools.drop(p)
		}
	}
	l.in = nil
	l.queue.waiting--
	e.unawait(l)
}

// settle takes note that a task has left a line. The memory of one that has become empty goes, unless it is one of the few that come back with
// the next task; the flow goes once it has no turn ahead of it that it has taken already.
func (e *Engine) settle(l *line) {
	switch {
	case l.in == nil:
		return
	case !l.head.empty():
		l.rank()
		return
	}
	e.unlist(l)
	if l.kind.Fairness != "" || l.kind.Class != "" || len(l.flow.lines) > keptTypes {
		delete(l.flow.lines, l.key())
	}
	if len(l.flow.lines) == 0 {
		l.queue.idle.Set(l.flow)
	}
}

// keptTypes is how many types of a queue stay known while none of their tasks waits.
const keptTypes = 16

// poolOf finds where a line belongs at present.
func (e *Engine) poolOf(l *line) (poolKey, *lease.Requirements) {
	k := poolKey{typ: l.kind.Type}
	if l.kind.Class == "" {
		return k, nil
	}
	var needs *lease.Requirements
	if k.class = l.demands(); k.class != "" {
		needs = &l.placement.Requirements
	}
	switch {
	case l.placement.Worker != "":
		k.worker = l.placement.Worker
	case l.placement.Affinity != "":
		if b := l.queue.space.bound[l.placement.Affinity]; b != nil {
			k.worker, k.loose = b.worker, l.placement.Mode == lease.Preferred
		}
	}
	return k, needs
}

// demands is the part of the class of a line that says what a worker must have.
func (l *line) demands() lease.Class {
	return (&lease.Spec{Requirements: &l.placement.Requirements}).Class()
}
