//go:build faults

package authority

import (
	"fmt"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// watch holds leases over several processes of a coordinator: leases of silent workers, and one
// that is renewed.
type watch struct {
	*rig
	serving
	ttl    time.Duration
	silent []*silent
	held   *lessorv1.Assignment
	ended  int
	// longest is the longest serving time (its lower bound) after which a silent lease was seen
	// alive.
	longest time.Duration
}

// silent is a lease whose worker sends nothing after its Start.
type silent struct {
	a               *lessorv1.Assignment
	askedAt, served time.Time // before and after the Start
	over            bool
}

func newWatch(r *rig, ttl time.Duration) *watch { return &watch{rig: r, ttl: ttl} }

func (w *watch) startCoordinator() {
	w.t.Helper()
	w.launch()
	w.c.Start()
	w.last().answered = time.Now()
}

func (w *watch) kill() {
	w.t.Helper()
	w.last().killed = time.Now()
	w.c.Kill()
	w.last().ended = time.Now()
}

// take submits a task and starts its lease. If the machine stood still for a whole lease before the
// Start, it takes the next lease.
func (w *watch) take(queue string, ttl time.Duration) (*lessorv1.Assignment, time.Time) {
	w.t.Helper()
	w.submit(1, spec(queue, ttl))
	for {
		before := time.Now()
		a, err := w.lease(queue)
		must(w.rig, a, err)
		askedAt := time.Now()
		m, err := w.start(a)
		if must(w.rig, m, err).GetVerdict() == lessorv1.Verdict_VERDICT_COMMITTED {
			return a, askedAt
		}
		if m.GetReason() != lessorv1.Reason_REASON_LEASE_EXPIRED || time.Since(before) < ttl {
			w.t.Fatalf("Start = %v, want COMMITTED", m)
		}
	}
}

// holdLease takes the lease that is renewed. Its timeout is longer than what the test does between
// two heartbeats, even on a busy machine.
func (w *watch) holdLease() { w.held, _ = w.take("held", w.heldTTL()) }

func (w *watch) heldTTL() time.Duration { return max(w.ttl, 10*time.Second) }

func (w *watch) addSilentLease() {
	a, askedAt := w.take(fmt.Sprintf("watch%d", len(w.silent)), w.ttl)
	w.silent = append(w.silent, &silent{a: a, askedAt: askedAt, served: time.Now()})
}

// check renews the held lease, and checks the silent ones (A9). It returns how many of them are
// alive.
func (w *watch) check() (alive int) {
	w.t.Helper()
	w.renewHeldLease()
	for _, s := range w.silent {
		if !s.over && w.alive(s) {
			alive++
		}
	}
	return alive
}

// renewHeldLease renews the held lease. That must succeed, however often the coordinator was killed
// and whatever the wall clock says.
func (w *watch) renewHeldLease() {
	w.t.Helper()
	m, err := w.workers().Heartbeat(w.ctx,
		&lessorv1.HeartbeatRequest{TaskId: w.held.GetTask().GetTaskId(), LeaseId: w.held.GetLeaseId()})
	in := must(w.rig, m, err).GetExpiresIn().AsDuration()
	if m.GetVerdict() != lessorv1.Verdict_VERDICT_COMMITTED || in <= 0 || in > 2*w.heldTTL()+time.Second {
		w.t.Fatalf("A8, A9: Heartbeat of the held lease = %v, want COMMITTED with at most %v left", m, 2*w.heldTTL()+time.Second)
	}
}

// standstill is how long a busy machine or its disk may stand still. Here this counts as serving
// time, but it ends no lease.
const standstill = 3 * time.Second

// alive checks a silent lease: it must live for a whole TTL of serving time, and at most for two
// TTL, one second for each start since, and standstill.
func (w *watch) alive(s *silent) bool {
	w.t.Helper()
	from := time.Now()
	task, err := w.get(s.a.GetTask().GetTaskId())
	must(w.rig, task, err)
	if s.over = task.GetLease() == nil; s.over {
		w.ended++
		if d := w.atMost(s.askedAt, time.Now()); d < w.ttl {
			w.t.Errorf("A8, A9: a lease of %v was cut short after %v", w.ttl, d)
		}
		return false
	}
	d, most := w.atLeast(s.served, from), 2*w.ttl+time.Duration(w.starts(s.served))*time.Second+standstill
	if w.longest = max(w.longest, d); d > most {
		w.t.Fatalf("A9: a silent lease of %v is still alive after %v of serving time and %d starts", w.ttl, d, w.starts(s.served))
	}
	return true
}
