package engine

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/records"
)

// consistent waits until nothing is under way, and compares what the loop keeps in memory with the
// tasks: counts, lines, pools, parked tasks, timers, holders of leases, workers that tasks wait
// for. It also checks that no task waits although a taker with room may have it, and that no task
// stays parked although its key has room.
func (r *rig) consistent() (tasks map[lease.TaskID]*lease.Task) {
	r.Helper()
	idle := func() bool {
		return r.batch().empty() && len(r.pipeline.inflight) == 0 && len(r.lines.readings) == 0 && r.agenda.empty() &&
			len(r.parking.roomy) == 0
	}
	for range 100 { // commits may be slow
		if synctest.Wait(); onLoop(r, idle) {
			break
		}
		time.Sleep(10 * time.Millisecond)
	}
	found := onLoop(r, func() *inspection { return inspect(r.Engine) })
	for _, problem := range found.problems {
		r.Error(problem)
	}
	if leases := onLoop(r, func() [2]int { return [2]int{r.liveByEvents, r.set.live} }); leases[0] != leases[1] {
		r.Errorf("by the events there are %d live leases, and there are %d", leases[0], leases[1])
	}
	return found.tasks
}

// inspection collects contradictions in the memory of an engine. It runs on the loop.
type inspection struct {
	*Engine
	tasks    map[lease.TaskID]*lease.Task // the newest versions
	problems []string
}

func inspect(e *Engine) *inspection {
	e.pipeline.flush()
	i := &inspection{Engine: e, tasks: map[lease.TaskID]*lease.Task{}}
	i.collect()
	i.checkCounts()
	i.checkLines()
	i.checkKeys()
	i.checkTimers()
	i.checkLeases()
	i.checkBindings()
	i.checkWorkers()
	i.checkTakers()
	i.checkExplanations()
	i.checkSpaces()
	i.checkFeedback()
	return i
}

func (i *inspection) problem(format string, args ...any) {
	i.problems = append(i.problems, fmt.Sprintf(format, args...))
}

func (i *inspection) collect() {
	err := i.st.View(func(r store.Reader) error {
		for number := range i.spaces.byNumber {
			err := records.Tasks(r, number, "", 0, func(t *lease.Task) bool {
				i.tasks[t.ID] = i.set.task(t.ID)
				return true
			})
			if err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		i.problem("tasks: %v", err)
	}
	live := 0
	for id, h := range i.set.tasks {
		if i.tasks[id] == nil {
			i.problem("task %v is held in memory, and is not in the store", id)
		}
		if isLeased(h.task) {
			live++
		}
	}
	if live != i.set.live {
		i.problem("%d live leases are counted, and %d are held", i.set.live, live)
	}
	for id, t := range i.tasks {
		if isLeased(t) && i.set.tasks[id] == nil {
			i.problem("task %v has a lease and is not held in memory", id)
		}
	}
}

// eachQueue calls visit with every queue.
func (i *inspection) eachQueue(visit func(*queue)) {
	for _, s := range i.spaces.byName {
		for _, q := range s.queues {
			visit(q)
		}
	}
}

// eachTaker calls visit with all sessions and waiting unary requests.
func (i *inspection) eachTaker(visit func(*taker)) {
	for _, t := range i.sessions.byID {
		visit(t)
	}
	for _, p := range i.workers.byKey {
		for t := range p.takers {
			if t.member == nil {
				visit(t)
			}
		}
	}
}

func (i *inspection) queueOf(t *lease.Task) *queue { return i.spaces.of(t.ID).queues[t.Spec.Queue] }

func (i *inspection) checkCounts() {
	counted, has := map[*queue]tally{}, map[string]tenantTally{}
	for _, t := range i.tasks {
		q := i.queueOf(t)
		if q == nil {
			i.problem("task %v has no queue", t.ID)
			continue
		}
		n := counted[q]
		n.counts[q.space.countedAs(t.ID, countOf(t))]++
		if isParked(t) {
			n.parked++
		}
		counted[q] = n
	}
	var total tally
	i.eachQueue(func(q *queue) {
		total.add(q.tally)
		tasks, of := counted[q], has[q.space.name.Tenant]
		if !records.OlderKnown(q.counts[countOlder]) {
			tasks.counts[countOlder] = q.counts[countOlder]
		}
		if q.tally != tasks {
			i.problem("queue %q counts %v, and its tasks are %v", q.name, q.tally, tasks)
		}
		of.add(tasks)
		has[q.space.name.Tenant] = of
		if q.unused() && q.writtenIn < i.batch().number {
			i.problem("queue %q is unused, and nobody forgets it", q.name)
		}
	})
	if i.spaces.total != total {
		i.problem("the counts of all tasks are %v, and those of the queues sum up to %v", i.spaces.total, total)
	}
	for _, s := range i.spaces.byNumber {
		of := has[s.name.Tenant]
		of.spaces++
		for _, q := range s.queues {
			of.settings += settingsOf(q.settings)
		}
		has[s.name.Tenant] = of
	}
	for tenant, of := range has {
		if n := i.spaces.tenant(tenant); n == nil || *n != of {
			i.problem("tenant %q has %+v, and %+v are counted", tenant, of, n)
		}
	}
	i.spaces.tenants.Scan(func(tenant string, n *tenantTally) bool {
		if *n != has[tenant] {
			i.problem("tenant %q has %+v, and %+v are counted", tenant, has[tenant], *n)
		}
		return true
	})
	for _, s := range i.spaces.byName {
		if s.tenant != i.spaces.tenant(s.name.Tenant) {
			i.problem("workspace %v counts for another tenant", s.name)
		}
	}
}

// checkSpaces checks that each task, idempotency key and lease belongs to the space and tenant
// under which it is found (T1, X2), and that a space without a number is in memory only while a
// taker waits in it.
func (i *inspection) checkSpaces() {
	for number, s := range i.spaces.byNumber {
		if found, ok := i.dir.lookup(s.name); s.number != number || i.spaces.byName[s.name] != s || !ok || found != number {
			i.problem("space %d is %v, which has number %d in memory and %d in the directory", number, s.name, s.number, found)
		}
	}
	for name, s := range i.spaces.byName {
		if s.number == 0 && len(s.queues) == 0 {
			i.problem("space %v is remembered for nothing", name)
		}
		if s.byQueueName.Len() != len(s.queues) {
			i.problem("space %v has %d queues, and %d in the order of their names", name, len(s.queues), s.byQueueName.Len())
		}
	}
	for id, t := range i.tasks {
		if s := i.spaces.of(id).name; s != (Space{t.Tenant, t.Workspace}) {
			i.problem("task %v of tenant %q and workspace %q is in space %v", id, t.Tenant, t.Workspace, s)
		}
		if key := t.Spec.IdempotencyKey; key != "" {
			if found, _, ok := i.set.key(id.Space, key); !ok || found != id {
				i.problem("task %v has idempotency key %q, under which task %v is found", id, key, found)
			}
		}
		if h := i.set.holderOf(id); h != nil && h.wants.Space.Tenant != t.Tenant {
			i.problem("task %v of tenant %q has a lease of worker %q of tenant %q",
				id, t.Tenant, h.wants.Worker, h.wants.Space.Tenant)
		}
	}
	for _, r := range i.requests.byKey {
		for _, id := range r.leases {
			first, t := i.tasks[r.leases[0]], i.tasks[id]
			if isLeased(first) && isLeased(t) && (first.ID.Space != id.Space || first.Lease.Worker != t.Lease.Worker || first.Lease.Request != t.Lease.Request) {
				i.problem("one request has leases of the tasks %v and %v, which were leased by two", first.ID, id)
			}
		}
	}
}

// checkFeedback checks that the engine keeps words of live attempts only.
func (i *inspection) checkFeedback() {
	i.hub.mu.Lock()
	defer i.hub.mu.Unlock()
	for id, said := range i.hub.recent {
		if t := i.tasks[id]; !leasedAs(t, said.Attempt) {
			i.problem("words of attempt %d of task %v are kept, and that attempt is not live", said.Attempt, id)
		}
	}
}

// checkLines checks that takers find exactly the tasks that wait.
func (i *inspection) checkLines() {
	waiting := map[*line]map[place]lease.TaskID{}
	for _, t := range i.tasks {
		if !isInLine(t) {
			continue
		}
		f := i.queueOf(t).flows[t.Spec.FairnessKey]
		if f == nil || f.lines[lineKey{t.Spec.Type, t.Spec.Class()}] == nil {
			i.problem("task %v waits, and has no line", t.ID)
			continue
		}
		l, at := f.lines[lineKey{t.Spec.Type, t.Spec.Class()}], placeOf(t)
		if _, there := l.head.entries.Get(at); !there && !l.head.beyond(at) {
			i.problem("task %v waits, and is not in its line", t.ID)
		}
		if waiting[l] == nil {
			waiting[l] = map[place]lease.TaskID{}
		}
		waiting[l][at] = t.ID
	}
	i.eachQueue(func(q *queue) {
		listed := map[*line]bool{}
		for before, l := (*line)(nil), q.waiting.first; l != nil && !listed[l]; before, l = l, l.behind {
			if listed[l] = true; l.before != before || l.behind == nil && l != q.waiting.last {
				i.problem("queue %q: its list of lines is torn at line %+v", q.name, l.kind)
			}
		}
		n := 0
		for _, f := range q.flows {
			for _, l := range f.lines {
				i.checkLine(l, waiting[l])
				if l.lineup != nil {
					n++
				}
				if listed[l] != (l.lineup != nil) {
					i.problem("queue %q: that line %+v is in the list of lines is %v", q.name, l.kind, listed[l])
				}
			}
			if _, idle := q.idle.Get(f); idle != (len(f.lines) == 0) {
				i.problem("queue %q, flow %q: it has %d lines, and idle is %v", q.name, f.key, len(f.lines), idle)
			}
		}
		if n != q.waiting.Len() || n != len(listed) {
			i.problem("queue %q: tasks wait in %d lines, %d are counted, and %d are in the list",
				q.name, n, q.waiting.Len(), len(listed))
		}
		i.checkPools(q)
	})
}

func (i *inspection) checkLine(l *line, waiting map[place]lease.TaskID) {
	name := fmt.Sprintf("queue %q, flow %q, line %q", l.queue.name, l.flow.key, l.kind.Type)
	l.head.entries.Scan(func(p place) bool {
		if _, waits := waiting[p]; !waits {
			i.problem("%s: task %d is in it, and does not wait", name, p.seq)
		}
		return true
	})
	if l.lineup == nil {
		if !l.head.empty() {
			i.problem("%s: tasks wait in it, and takers do not find it", name)
		}
		return
	}
	if l.head.empty() {
		i.problem("%s: takers find it, and it is empty", name)
	}
	key, _ := i.lines.poolOf(l)
	p := l.lineup.pool
	if p.poolKey != key || l.queue.pools.find(key) != p || l.flow.pools[p] != l.lineup {
		i.problem("%s: it is in the pool %+v, and belongs in %+v", name, p.poolKey, key)
	}
	if at, ok := l.head.first(); ok && at != l.at {
		i.problem("%s: its first place is %v, and it is ordered by %v", name, at, l.at)
	}
	if _, there := l.lineup.lines.Get(l); !there {
		i.problem("%s: it is not in its lineup", name)
	}
	if _, there := p.turns.Get(l.lineup); !there {
		i.problem("%s: its flow has no turn in its pool", name)
	}
	if l.lineup.begin > l.flow.begin {
		i.problem("%s: it stands in its pool after the turn of its flow", name)
	}
	s := l.queue.space
	if k := l.placement.Affinity; l.placement.Worker == "" && k != "" {
		if _, there := s.affinityLines[k][l]; !there {
			i.problem("%s: its affinity key %q does not know it", name, k)
		}
	}
	if w := l.placement.Worker; w != "" {
		there := i.workers.byKey[workerKey{s.name.Tenant, w}]
		if there == nil {
			i.problem("%s: it waits for worker %q, which is unknown", name, w)
		} else if _, waits := there.pinned[l]; !waits {
			i.problem("%s: worker %q does not know that it waits", name, w)
		}
	}
}

func (i *inspection) checkPools(q *queue) {
	check := func(p *pool) {
		if p.turns.Len() == 0 && !p.isPlain() {
			i.problem("queue %q: nothing waits in the pool %+v", q.name, p.poolKey)
		}
		p.turns.Scan(func(up *lineup) bool {
			if f := up.flow; f.pools[p] != up || up.lines.Len() == 0 {
				i.problem("queue %q, flow %q: it has a turn in the pool %+v, and nothing waits there", q.name, f.key, p.poolKey)
			}
			return true
		})
	}
	for _, p := range q.pools.plain {
		check(p)
	}
	for _, p := range q.pools.demanding {
		check(p)
	}
	for _, groups := range []map[string]map[poolKey]*pool{q.pools.tied, q.pools.preferred} {
		for _, group := range groups {
			for _, p := range group {
				check(p)
			}
		}
	}
}

// keyOf identifies a concurrency key.
type keyOf struct {
	space uint32
	key   string
}

func (i *inspection) checkKeys() {
	holders, parked := map[keyOf][]holder{}, map[keyOf]map[lease.Line][]*lease.Task{}
	for id, t := range i.tasks {
		k := keyOf{id.Space, t.Spec.ConcurrencyKey}
		switch {
		case k.key == "":
		case isLeased(t):
			holders[k] = append(holders[k], holderOf(t))
		case isParked(t):
			if parked[k] == nil {
				parked[k] = map[lease.Line][]*lease.Task{}
			}
			parked[k][t.Line()] = append(parked[k][t.Line()], t)
			if s := i.spaces.of(id); s.keys[k.key] == nil {
				i.problem("task %v is parked, and its key %q is unknown", id, k.key)
			}
		}
	}
	for _, all := range holders {
		slices.SortFunc(all, func(a, b holder) int { return cmp.Or(cmp.Compare(a.since, b.since), a.task.Compare(b.task)) })
	}
	if len(i.parking.roomy) > 0 {
		i.problem("%d keys wait to be unparked, and nobody looks at them", len(i.parking.roomy))
	}
	for number, s := range i.spaces.byNumber {
		for name, k := range s.keys {
			at := keyOf{number, name}
			if have := slices.Collect(k.holders.Scan); !slices.Equal(have, holders[at]) {
				i.problem("key %q: its holders are %v, and it counts %v", name, holders[at], have)
			}
			limits := map[uint32]int{}
			for _, h := range holders[at] {
				limits[h.limit]++
			}
			counted := map[uint32]int{}
			k.limits.Scan(func(limit uint32, n int) bool {
				counted[limit] = n
				return true
			})
			if !maps.Equal(limits, counted) {
				i.problem("key %q: its limits are %v, and it counts %v", name, limits, counted)
			}
			needed := len(holders[at]) > 0 || len(parked[at]) > 0
			for kind, l := range k.parked {
				// what is in the store is read when the next task of the key is granted or ends
				needed = needed || l.head.dry()
				i.checkParked(l, parked[at][kind])
			}
			if !needed {
				i.problem("key %q: nobody holds it or waits for it", name)
			}
			i.checkBlocker(k, holders[at])
			for kind := range parked[at] {
				if k.parked[kind] == nil {
					i.problem("key %q: a line of parked tasks is unknown", name)
				}
			}
		}
	}
}

// checkBlocker checks that the oldest lease of a key is among the blockers of its space if tasks
// are parked under the key, and that the key knows their queues.
func (i *inspection) checkBlocker(k *concurrencyKey, holders []holder) {
	lines := map[string]int{}
	for kind := range k.parked {
		lines[kind.Queue]++
	}
	counted := map[string]int{}
	k.queues.Scan(func(queue string, n int) bool {
		counted[queue] = n
		return true
	})
	if !maps.Equal(lines, counted) {
		i.problem("key %q: its parked lines are of the queues %v, and it counts %v", k.key, lines, counted)
	}
	var want, have []holder
	if len(lines) > 0 && len(holders) > 0 {
		want = holders[:1]
	}
	k.space.blockers.Scan(func(b blocker) bool {
		if b.key == k {
			have = append(have, b.holder)
		}
		return true
	})
	if !slices.Equal(have, want) {
		i.problem("key %q: its blockers are %v, want %v", k.key, have, want)
	}
}

func (i *inspection) checkParked(l *parkedLine, tasks []*lease.Task) {
	k, h := l.key, l.head
	for _, t := range tasks {
		if _, there := h.entries.Get(placeOf(t)); !there && !h.beyond(placeOf(t)) {
			i.problem("key %q: task %v is parked, and is not in its line", k.key, t.ID)
		}
	}
	if h.entries.Len() > len(tasks) {
		i.problem("key %q: %d tasks are parked, and its line has %d", k.key, len(tasks), h.entries.Len())
	}
	if len(tasks) == 0 {
		return
	}
	if w := tasks[0].Spec.Pinned(); w != "" {
		if there := i.workers.byKey[workerKey{k.space.name.Tenant, w}]; there == nil {
			i.problem("key %q: a parked task waits for worker %q, which is unknown", k.key, w)
		} else if _, waits := there.parked[l]; !waits {
			i.problem("key %q: worker %q does not know that a parked task waits", k.key, w)
		}
	}
	first := slices.MinFunc(tasks, func(a, b *lease.Task) int {
		if placeLess(placeOf(a), placeOf(b)) {
			return -1
		}
		return 1
	})
	if !k.state().Room(first.Spec.ConcurrencyLimit) {
		return
	}
	for _, t := range i.tasks { // first need not come back while an earlier one of its line waits for a taker
		if isInLine(t) && t.ID.Space == first.ID.Space && t.Spec.ConcurrencyKey == k.key && t.Line() == l.line && placeLess(placeOf(t), placeOf(first)) {
			return
		}
	}
	i.problem("key %q: task %v is parked, and there is room for it", k.key, first.ID)
}

func (i *inspection) checkTimers() {
	due := map[timerKey]bool{}
	for id, t := range i.tasks {
		serving, wall := t.Due()
		for tl, at := range map[*timeline]int64{i.timers.serving: int64(serving), i.timers.wall: int64(wall)} {
			if at == 0 {
				continue
			}
			k := timerKey{at, id}
			due[k] = true
			_, inLeased := tl.leased.Get(k)
			_, atRest := tl.rest.entries.Get(k)
			recent := i.timers.recent.Has(tl.inStore(k))
			if isLeased(t) && !inLeased || !isLeased(t) && !atRest && !tl.rest.beyond(k) && !recent {
				i.problem("task %v, %v: its timer is not set", id, t.State())
			}
		}
	}
	for _, tl := range []*timeline{i.timers.serving, i.timers.wall} {
		stale := func(k timerKey) bool {
			if i.tasks[k.task] != nil && !due[k] {
				i.problem("task %v, %v: a timer is set that it does not have", k.task, i.tasks[k.task].State())
			}
			return true
		}
		tl.leased.Scan(stale)
		tl.rest.entries.Scan(stale)
	}
}

func (i *inspection) checkLeases() {
	for id, t := range i.tasks {
		if !isLeased(t) {
			if i.set.holderOf(id) != nil {
				i.problem("task %v has no lease, and a holder", id)
			}
			continue
		}
		l, holder := t.Lease, i.set.holderOf(id)
		switch {
		case l.Epoch != i.Epoch():
			i.problem("task %v has a lease of epoch %d, and the engine is in epoch %d", id, l.Epoch, i.Epoch())
		case holder != nil && holder.leases[id] != l.Attempt:
			i.problem("task %v: its holder has attempt %d of it, and the lease is of attempt %d",
				id, holder.leases[id], l.Attempt)
		case holder != nil && holder.member != nil && i.sessions.byID[holder.member.Session] != holder:
			i.problem("task %v: its holder is gone", id)
		case holder != nil && holder.member == nil: // a call is answered in the round of its grant
			i.problem("task %v: its holder has its answer already", id)
		case holder == nil && l.Session != "" && i.sessions.orphans[lease.InstanceOf(l.Session)][id] != l.Attempt:
			i.problem("task %v: nobody holds its lease", id)
		}
		if r := i.requests.byKey[keyOfRequest(t)]; l.Request != "" && (r == nil || !slices.Contains(r.leases, id)) {
			i.problem("task %v: its request %q is unknown", id, l.Request)
		}
	}
	for k, r := range i.requests.byKey {
		for _, id := range r.leases {
			if t := i.tasks[id]; !isLeased(t) || keyOfRequest(t) != k {
				i.problem("task %v has no lease of request %q, which has it", id, k.request)
			}
		}
		if len(r.leases) == 0 && (r.call == nil || r.call.gone) {
			i.problem("request %q is remembered for nothing", k.request)
		}
	}
	for instance, leases := range i.sessions.orphans {
		for id := range leases {
			if t := i.tasks[id]; !isLeased(t) || lease.InstanceOf(t.Lease.Session) != instance || i.set.holderOf(id) != nil {
				i.problem("task %v is an orphan of %s, and is not leased to it or has a holder", id, instance)
			}
		}
		if i.sessions.current[instance] != "" {
			i.problem("instance %s has a session, and orphans", instance)
		}
	}
	i.eachTaker(func(t *taker) {
		again := &taker{wants: t.wants, leases: t.leases}
		i.recountUsage(again)
		var bytes uint64 // their sizes at the grants: a checkpoint may have come since
		for _, b := range t.used.leases {
			bytes += b.bytes
		}
		if !maps.Equal(again.used.types, t.used.types) || !maps.Equal(again.used.keys, t.used.keys) || bytes != t.used.bytes {
			i.problem("worker %q: its leases take %+v, and it counts %+v", t.wants.Worker, again.used, t.used)
		}
		for id := range t.leases {
			if i.set.holderOf(id) != t {
				i.problem("worker %q: it counts the lease of task %v, and does not hold it", t.wants.Worker, id)
			}
		}
	})
}

func (i *inspection) checkBindings() {
	type kin struct {
		space uint32
		key   string
	}
	held := map[kin]map[string]int{}
	for id, t := range i.tasks {
		if t.Spec.Affinity != nil && isLeased(t) {
			k := kin{id.Space, t.Spec.Affinity.Key}
			if held[k] == nil {
				held[k] = map[string]int{}
			}
			held[k][t.Lease.Worker]++
			b := i.spaces.of(id).bindings[k.key]
			if sticky := t.Spec.Affinity.Mode == lease.Sticky && t.Spec.Pinned() == ""; sticky && (b == nil || !b.sticky || b.worker != t.Lease.Worker) {
				i.problem("task %v has a lease of worker %s, and its affinity key %q has the binding %+v",
					id, t.Lease.Worker, k.key, b)
			}
		}
	}
	for number, s := range i.spaces.byNumber {
		for key, b := range s.bindings {
			if !maps.Equal(b.held, held[kin{number, key}]) {
				i.problem("affinity key %q: it counts the leases %v, and has %v", key, b.held, held[kin{number, key}])
			}
			if b.held[b.worker] == 0 != i.isSet(b.end) {
				i.problem("affinity key %q: the end of its binding to %s, which has %d leases, is set: %v",
					key, b.worker, b.held[b.worker], i.isSet(b.end))
			}
		}
	}
}

// isSet reports whether an alarm is set.
func (i *inspection) isSet(a *alarm) bool {
	if a == nil {
		return false
	}
	_, there := i.alarms.set.Get(a)
	return there
}

func (i *inspection) checkWorkers() {
	takers, leases, known := map[workerKey]int{}, i.countLeases().callers, map[*alarm]bool{}
	for k := range leases {
		if i.workers.byKey[k] == nil {
			i.problem("worker %q has leases, and is unknown", k.worker)
		}
	}
	i.eachTaker(func(t *taker) {
		takers[t.key()]++
		known[t.makesRoom] = true
		paused := 0
		for key, k := range t.refused.keys {
			if known[k.end] = true; k.end != nil {
				paused++
			}
			if k.end != nil && !i.isSet(k.end) {
				i.problem("worker %q gets no task of key %q for ever", t.wants.Worker, key)
			}
		}
		if paused != t.refused.paused {
			i.problem("worker %q has %d concurrency keys that it refused, and %d are counted",
				t.wants.Worker, paused, t.refused.paused)
		}
		if p := i.workers.byKey[t.key()]; p == nil {
			i.problem("worker %q is there, and is unknown", t.wants.Worker)
		} else if _, there := p.takers[t]; !there {
			i.problem("worker %q does not know one of its sessions", t.wants.Worker)
		}
	})
	present := 0
	for k, p := range i.workers.byKey {
		present += len(p.takers)
		for t := range p.takers {
			if _, there := i.workers.takers[t]; !there {
				i.problem("worker %q has a session that the engine does not know", k.worker)
			}
			if t.wants.Space.Tenant != k.tenant || t.wants.Worker != k.worker {
				i.problem("worker %q of tenant %q has a session of worker %q of tenant %q",
					k.worker, k.tenant, t.wants.Worker, t.wants.Space.Tenant)
			}
		}
		if len(p.takers) != takers[k] {
			i.problem("worker %q has %d sessions, and %d are known", k.worker, takers[k], len(p.takers))
		}
		if p.leases != leases[k] {
			i.problem("worker %q has %d leases without a session, and %d are counted", k.worker, leases[k], p.leases)
		}
		for t := range p.takers {
			if t.gone {
				i.problem("worker %q: one of its takers has left", k.worker)
			}
		}
		for l := range p.pinned {
			if l.lineup == nil {
				i.problem("worker %q: a line that is empty waits for it", k.worker)
			}
		}
		for l := range p.parked {
			if l.isDropped() || l.head.empty() {
				i.problem("worker %q: a line without parked tasks waits for it", k.worker)
			}
		}
		lines := len(p.pinned) + len(p.parked)
		switch waited := takers[k]+leases[k] == 0 && lines > 0; {
		case takers[k]+leases[k]+lines == 0:
			i.problem("worker %q is remembered for nothing", k.worker)
		case waited != i.isSet(p.end):
			i.problem("worker %q has %d sessions, %d lines wait for it, and the end of that is set: %v",
				k.worker, len(p.takers), lines, i.isSet(p.end))
		}
		known[p.end] = true
	}
	if len(i.workers.takers) != present {
		i.problem("the workers have %d sessions, and the engine knows %d", present, len(i.workers.takers))
	}
	for _, s := range i.spaces.byNumber {
		for _, b := range s.bindings {
			known[b.end] = true
		}
	}
	i.alarms.set.Scan(func(a *alarm) bool {
		if !known[a] {
			i.problem("an alarm is set that nobody can stop")
		}
		return true
	})
}

// checkTakers checks that no taker with room waits although there is a task for it.
func (i *inspection) checkTakers() {
	attending := map[*queue]int{}
	i.eachTaker(func(t *taker) {
		for _, q := range t.queues {
			attending[q]++
		}
		if t.free() <= 0 {
			return
		}
		for _, q := range t.queues {
			if t.placeIn[q] == nil {
				i.problem("worker %q has room, and does not ask queue %q", t.wants.Worker, q.name)
			}
			i.checkIdle(q, t)
		}
	})
	throttled := map[*queue]lease.Instant{}
	i.agenda.throttled.Scan(func(t throttle) bool {
		throttled[t.queue] = t.until
		if t.queue.waiting.n == 0 {
			i.problem("queue %q waits for its rate limit, and has no task in line", t.queue.name)
		}
		return true
	})
	if n := i.agenda.throttled.Len(); n != len(throttled) {
		i.problem("%d queues wait for their rate limit, at %d times", len(throttled), n)
	}
	i.eachQueue(func(q *queue) {
		if q.throttled != throttled[q] {
			i.problem("queue %q waits for its rate limit until %v, and is looked at again at %v",
				q.name, q.throttled, throttled[q])
		}
		if q.attending != attending[q] {
			i.problem("queue %q has %d takers, and counts %d", q.name, attending[q], q.attending)
		}
		if q.marked {
			i.problem("queue %q is marked, and nobody looks at it", q.name)
		}
	})
}

func (i *inspection) checkIdle(q *queue, t *taker) {
	blocked := q.state().Blocked(i.now().Serving)
	var found []lease.TaskID
	waiting := 0
	for id, task := range i.tasks {
		if !isInLine(task) || i.queueOf(task) != q {
			continue
		}
		if waiting++; i.isFor(t, task) {
			found = append(found, id)
		}
	}
	if t.wants.limitsByTask() && waiting > min(mostPassed, linePart()) { // such a taker does not look at all of them
		found = nil
	}
	l, at := i.search.best(q, t)
	switch {
	case l == nil && len(found) > 0:
		i.problem("queue %q: task %v is for worker %q, which does not find it", q.name, found[0], t.wants.Worker)
	case l == nil:
	case blocked == lease.BlockedByRate && !i.wakes(q, q.settings.Rate.Next(q.bucket, i.now().Serving)):
		i.problem("queue %q waits for its rate limit, and nobody wakes it", q.name)
	case t.wants.limitsByTask() && i.parking.isFull(i.tasks[lease.TaskID{Space: q.space.number, Seq: at.seq}]):
		// the task did not suit it before its key was full
	case !t.hasBytesFor(dataSize(i.tasks[lease.TaskID{Space: q.space.number, Seq: at.seq}])):
		// it may be passed over no more; there is no other task for the taker
	case blocked == lease.NoBlock && !i.wakes(q, i.now().Serving):
		i.problem("queue %q: worker %q has room for task %d, which waits", q.name, t.wants.Worker, at.seq)
	}
}

// wakes reports whether the loop looks at a queue again when its rate limit allows a grant, at the
// time by. That time is computed in floating point and may be slightly off.
func (i *inspection) wakes(q *queue, by lease.Instant) (found bool) {
	i.agenda.throttled.Scan(func(t throttle) bool {
		found = t.queue == q && t.until <= by.Add(time.Microsecond)
		return !found
	})
	return found
}

// isFor reports whether a taker may have a waiting task, as far as only the two matter: not the
// state of the queue, nor that of other tasks.
func (i *inspection) isFor(t *taker, task *lease.Task) bool {
	s := task.Spec
	switch {
	case !t.takes(s.Type), !t.wants.Capabilities.Meet(s.Requirements), !t.suits(task, dataSize(task)):
		return false
	case s.Pinned() != "":
		return s.Pinned() == t.wants.Worker
	case s.Affinity == nil:
		return true
	}
	b := i.spaces.of(task.ID).bindings[s.Affinity.Key]
	return b == nil || b.worker == t.wants.Worker
}

// checkExplanations checks that what Explain finds about each waiting task is the truth.
func (i *inspection) checkExplanations() {
	n := i.countLeases()
	for id, t := range i.tasks {
		q := i.queueOf(t)
		if !isReady(t) || i.wakes(q, i.now().Serving) { // the loop is about to look at the queue
			continue
		}
		x := lease.Explain(i.now(), view{i.Engine}, t)
		i.addObstacles(t, &x)
		var rules, workers []lease.Finding
		for _, f := range x.Findings {
			switch {
			case slices.Contains(fromRules, f.Code):
				rules = append(rules, f)
			case heldBack(f.Code) && f.Code != lease.FoundDiskFull && f.Code != lease.FoundStoreGone:
				workers = append(workers, f)
			}
		}
		why := i.heldByRules(q, t, &n)
		if !slices.EqualFunc(rules, why, func(f lease.Finding, c lease.FindingCode) bool { return f.Code == c }) {
			i.problem("task %v waits because of %v, and the findings are %+v", id, why, x.Findings)
		}
		workers = append(workers, lease.Finding{}) // nothing is wrong with the workers
		if problem := i.disprove(q, t, &workers[0], &n); problem != "" || len(workers) > 2 || len(workers) == 1 && len(rules) == 0 {
			i.problem("task %v waits, and %s; the findings are %+v", id, problem, x.Findings)
		}
	}
}

// fromRules are the findings that the rules make about a READY task.
var fromRules = []lease.FindingCode{
	lease.FoundQueuePaused, lease.FoundMaxInflight, lease.FoundRateLimit,
	lease.FoundConcurrencyKey,
}

// standings are the live leases, counted by what tasks have to wait for.
type standings struct {
	queues  map[*queue]int
	keys    map[keyOf]lease.Holders
	callers map[workerKey]int // leases of workers without a stream
}

func (i *inspection) countLeases() standings {
	n := standings{map[*queue]int{}, map[keyOf]lease.Holders{}, map[workerKey]int{}}
	for id, t := range i.tasks {
		if !isLeased(t) {
			continue
		}
		n.queues[i.queueOf(t)]++
		k := keyOf{id.Space, t.Spec.ConcurrencyKey}
		h := n.keys[k]
		if h.Count++; h.Count == 1 {
			h.Limit = t.Spec.ConcurrencyLimit
		}
		h.Limit = min(h.Limit, t.Spec.ConcurrencyLimit)
		n.keys[k] = h
		if t.Lease.Session == "" {
			n.callers[workerKey{t.Tenant, t.Lease.Worker}]++
		}
	}
	return n
}

// heldByRules is what keeps a task from every worker.
func (i *inspection) heldByRules(q *queue, t *lease.Task, n *standings) (all []lease.FindingCode) {
	h, key := n.keys[keyOf{t.ID.Space, t.Spec.ConcurrencyKey}], t.Spec.ConcurrencyKey
	s := q.settings
	for code, holds := range []bool{
		s.Paused,
		s.MaxInflight != 0 && n.queues[q] >= int(s.MaxInflight),
		s.Rate.PerSecond != 0 && s.Rate.Next(q.bucket, i.now().Serving) > i.now().Serving,
		isParked(t) || key != "" && h.Count > 0 && h.Count >= min(h.Limit, t.Spec.ConcurrencyLimit),
	} {
		if holds {
			all = append(all, fromRules[code])
		}
	}
	return all
}

// disprove says what contradicts the finding why the workers do not get a task; empty if nothing
// does. The code of the finding is 0 if they would get it.
func (i *inspection) disprove(q *queue, t *lease.Task, f *lease.Finding, n *standings) string {
	worker, sticky := t.Spec.Pinned(), false
	if a := t.Spec.Affinity; worker == "" && a != nil && a.Mode == lease.Sticky && i.spaces.of(t.ID).bindings[a.Key] != nil {
		worker, sticky = i.spaces.of(t.ID).bindings[a.Key].worker, true
	}
	connected := n.callers[workerKey{t.Tenant, worker}]
	attending, handling, able, meant, slots, working, free, roomy, clear := 0, 0, 0, 0, 0, 0, 0, 0, 0
	count := func(n *int, ok bool) bool {
		if ok {
			*n++
		}
		return ok
	}
	i.eachTaker(func(w *taker) {
		count(&connected, w.wants.Space.Tenant == t.Tenant && w.wants.Worker == worker)
		_ = count(&attending, slices.Contains(w.queues, q)) && count(&handling, w.wants.handles(t.Spec.Type)) &&
			count(&able, w.wants.Capabilities.Meet(t.Spec.Requirements)) &&
			count(&meant, worker == "" || w.wants.Worker == worker) &&
			count(&slots, w.slots > 0) && count(&working, len(w.leases) < w.slots) && count(&free, w.free() > 0) &&
			count(&roomy, w.takes(t.Spec.Type) && w.hasBytesFor(dataSize(t))) && count(&clear, !w.keyTaken(t.Spec.ConcurrencyKey))
	})
	words := func(s string) bool { return strings.Contains(f.Message, s) }
	for _, c := range []struct {
		holds bool
		code  lease.FindingCode
		words string
	}{
		{t.Spec.Pinned() != "" && connected == 0, lease.FoundPinnedWorker, "is not connected"},
		{t.Spec.Pinned() != "" && meant == 0, lease.FoundPinnedWorker, "does not ask for such work"},
		{attending == 0, lease.FoundNoWorker, "no worker"},
		{handling == 0, lease.FoundNoWorkerForType, "handles"},
		{able == 0, lease.FoundRequirements, "lacks"},
		{sticky && connected == 0, lease.FoundAffinity, "is not connected"},
		{sticky && meant == 0, lease.FoundAffinity, "does not ask for such work"},
		{sticky && slots == 0, lease.FoundAffinity, "takes no new work"},
		{sticky && working == 0, lease.FoundAffinity, "has no free slot"},
		{sticky && free == 0, lease.FoundAffinity, "gets no work: it "},
		{sticky && roomy == 0, lease.FoundAffinity, "has no room for the task"},
		{slots == 0, lease.FoundWorkersBusy, "takes new work"},
		{working == 0, lease.FoundWorkersBusy, "has a free slot"},
		{free == 0, lease.FoundWorkersBusy, "gets work"},
		{roomy == 0, lease.FoundWorkersBusy, "has room for the task"},
		{clear == 0, lease.FoundSingleFlight, "one task of a key at a time"},
	} {
		switch {
		case !c.holds:
		case f.Code != c.code || !words(c.words):
			return fmt.Sprintf("it should say %q", c.words)
		default:
			return ""
		}
	}
	if f.Code == 0 {
		return ""
	}
	// beyond, a taker with limits by task may not look
	if before, _ := q.before(t); before < min(mostPassed, linePart()) {
		return fmt.Sprintf("%d workers have room for it", clear)
	}
	return ""
}
