package limits

import (
	"cmp"
	"fmt"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// workerOf is a worker by its name. What operators ask of it concerns those of its instances that
// have a session.
type workerOf struct {
	tenant *tenant
	name   string
}

// workerRecord is what is known of a worker with streams.
type workerRecord struct {
	instances map[string]*instance
	changes   int // calls that drain it or take that back, and stops of the coordinator, since the beginning
	open      int // such calls without an answer
}

// instance is a process of a worker. Its leases go from one stream of it to the next, and so does a
// drain.
type instance struct {
	worker  workerOf
	id      string
	sdk     bool // its streams are not known
	lines   []*line
	left    time.Time // when it first said goodbye, or another one replaced it: then its leases may end; zero: never
	drained setting   // 1: an operator drains it
	drains  setting   // 1: it drains by itself
}

// String implements fmt.Stringer.
func (i *instance) String() string {
	if i == nil {
		return "a caller of Lease"
	}
	return fmt.Sprintf("%s of %s of %s", i.id, i.worker.name, i.worker.tenant.name)
}

// instance returns an instance of a worker. The caller holds mu.
func (b *book) instance(of workerOf, id string) *instance {
	all := b.worker(of).instances
	if all[id] == nil {
		all[id] = &instance{worker: of, id: id}
	}
	return all[id]
}

func (b *book) worker(of workerOf) *workerRecord {
	if b.workers[of] == nil {
		b.workers[of] = &workerRecord{instances: map[string]*instance{}}
	}
	return b.workers[of]
}

// instances returns the instances of the sessions in an answer, in order. The caller holds mu.
func (b *book) instances(tn *tenant, sessions []*lessorv1.Worker) (all []*instance) {
	// of the SDK, the test does not know the instance id, but gives each worker a version of its
	// own
	for _, s := range sessions {
		i := b.instance(workerOf{tn, s.GetWorkerId()}, cmp.Or(s.GetInfo().GetVersion(), s.GetInfo().GetInstanceId()))
		b.sessions[s.GetSessionId()] = i
		all = append(all, i)
	}
	return all
}

// ofSDK returns the instance of a new worker of the SDK.
func (b *book) ofSDK(of workerOf, version string) *instance {
	b.mu.Lock()
	defer b.mu.Unlock()
	i := b.instance(of, version)
	i.sdk = true
	return i
}

// connects notes that an instance opens a stream. What it said on earlier ones may not hold on it.
func (b *book) connects(of workerOf, id string, l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.of = b.instance(of, id)
	l.of.lines = append(l.of.lines, l)
	l.of.drains.end()
}

// accepted notes the session of a stream. fresh: nothing comes on the stream that was sent on an
// earlier one.
func (b *book) accepted(l *line, session string, fresh bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.session, l.fresh, l.since = session, fresh, time.Now()
	b.sessions[session] = l.of
}

// disconnected notes that a stream has ended.
func (b *book) disconnected(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	l.until = time.Now()
}

// leaves notes that an instance says goodbye, or is replaced.
func (b *book) leaves(of workerOf, id string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if i := b.instance(of, id); i.left.IsZero() {
		i.left = time.Now()
	}
}

// drains notes that the coordinator knows that the session of a stream drains. The stream is the
// newest one of its instance; if another one is still open, it is not known which of them gets
// work.
func (b *book) drains(l *line) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, other := range l.of.lines {
		if other != l && other.until.IsZero() {
			return
		}
	}
	l.of.drains.is(1)
	b.w.count("drain", "by a worker")
}

// draining notes that a call drains a worker, or takes that back. answered must be called with its
// answer.
func (b *book) draining(of workerOf, c *client, undo bool) (answered func(*lessorv1.DrainWorkerResponse, error)) {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.worker(of)
	for _, i := range p.instances {
		i.drained.end()
	}
	alone := p.open == 0 // of two calls at the same time, either may be the last
	p.open++
	p.changes++
	n, value := p.changes, uint32(1)
	if undo {
		value = 0
	}
	return func(res *lessorv1.DrainWorkerResponse, err error) {
		b.mu.Lock()
		defer b.mu.Unlock()
		if p.open--; err != nil || !alone || n != p.changes || !b.w.isCurrent(of.tenant, c) {
			return
		}
		for n, i := range b.instances(of.tenant, res.GetWorkers()) {
			i.drained.is(value)
			if w := res.GetWorkers()[n]; undo == (w.GetDrain() != nil) {
				b.w.problem("W10: DrainWorker with undo %v answers with %v", undo, w)
			}
		}
	}
}

// stopped notes that the coordinator does not run: it forgets who drains.
func (b *book) stopped() {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range b.workers {
		p.changes++
		for _, i := range p.instances {
			i.drained.end()
			i.drains.end()
		}
	}
}

// shown checks what a list of workers says of drains against what was known when the call began.
func (b *book) shown(tn *tenant, all []*lessorv1.Worker, began time.Time) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for n, i := range b.instances(tn, all) {
		if s := &i.drained; !s.since.IsZero() && s.since.Before(began) && (s.now == 1) != (all[n].GetDrain() != nil) {
			b.w.problem("W10: since %v it is %d that an operator drains %v, and it is listed as %v", s.since, s.now, i, all[n])
		}
	}
}

// told checks that nobody has taken back a drain of which a worker is told.
func (b *book) told(l *line, m *lessorv1.Drain) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if s := &l.of.drained; l.fresh && s.now == 0 && !s.since.IsZero() && s.since.Before(l.since) {
		b.w.problem("W10: %v is told to drain, on a stream since %v; that was taken back at %v: %v", l.of, l.since, s.since, m)
	}
}

// checkDrains checks a grant against the drains of the instance that got it (W10).
func (b *book) checkDrains(g *grant) {
	if g.by == nil {
		return
	}
	for who, s := range map[string]*setting{"an operator": &g.by.drained, "itself": &g.by.drains} {
		if is, ok := s.at(g.at); ok && is == 1 {
			b.w.problem("W10: attempt %d of %s was granted at %v to %v, which is drained by %s",
				g.attempt, g.task, g.at, g.by, who)
		}
	}
}
