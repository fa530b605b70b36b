package lease_test

import (
	"fmt"
	"time"

	"github.com/lessor-dev/lessor/lease"
)

// worker does with its leases what workers must do (K1 to K6), except that it may be slow, silent
// or a zombie. held are the leases that it believes to have.
type worker struct {
	name    string
	session string // empty: unary
	habit   habit
	held    []*heldLease
}

// habit is how a worker behaves.
type habit struct {
	pace   int  // how often it acts when it is its turn, in percent
	zombie bool // it ignores CANCELLED and continues
}

var habits = []habit{
	{pace: 100},
	{pace: 100},
	{pace: 15},
	{pace: 1}, // silent
	{pace: 60, zombie: true},
}

// heldLease is a lease that a worker believes to have, with what the worker has done under it.
type heldLease struct {
	*claim
	started bool
	stop    bool          // the worker was told to stop (K6)
	report  *lease.Report // waits for its verdict, and is sent again unchanged (K5)
	tries   int           // how often report was sent again
}

const (
	slots    = 3 // how many leases a worker holds at once
	maxTries = 6 // how often it sends a report again before it gives up
)

func (w *world) newWorker(i int) *worker {
	k := &worker{name: fmt.Sprintf("w%d", i), habit: habits[i%len(habits)]}
	w.connect(k)
	return k
}

// connect begins a new session, or none, which makes the worker unary. Sessions with the same part
// before the dash are of one worker process.
func (w *world) connect(k *worker) {
	k.session = pick(w, "", "", "s1-a", "s1-b", "s2-a", "s2-b", "s3", "s4", "s5", "s6", "s7", "s8")
}

// work lets a worker act, or lets a zombie or a stranger send a report.
func (w *world) work() error {
	if w.chance(35) {
		if c, ok := w.strayReport(); ok {
			send(w, &w.net.up, request{nil, c})
		}
		return nil
	}
	k := w.workers[w.rng.IntN(len(w.workers))]
	if len(k.held) > 0 && w.chance(k.habit.pace) {
		w.act(k, k.held[w.rng.IntN(len(k.held))])
	}
	return nil
}

// act sends the next message of a worker under a lease: ack or start, heartbeats, then a report,
// which it repeats until the verdict arrives.
func (w *world) act(k *worker, h *heldLease) {
	r := h.report
	switch {
	case r != nil:
		if h.tries++; h.tries > maxTries && !w.faultsOver {
			k.drop(h)
			return
		}
	case !h.started:
		kind := lease.KindStart
		if k.session != "" && w.faultChance(50) {
			kind = lease.KindAck
		}
		r = w.report(kind)
		h.started = kind == lease.KindStart
	case !w.faultsOver && !h.stop && w.chance(50):
		r = w.report(lease.KindHeartbeat)
	default:
		r = w.finalReport(h)
		h.report = r
	}
	c := *r
	c.TaskID, c.LeaseID, c.Worker, c.Session = h.task, h.lease, k.name, k.session
	if w.chance(50) {
		c.Attempt = h.attempt
	}
	send(w, &w.net.up, request{k, lease.Judge{Tenant: h.tenant, Reports: []*lease.Report{&c}}})
}

// finalReport returns the report of a worker that has finished, or was told to stop.
func (w *world) finalReport(h *heldLease) *lease.Report {
	if w.faultsOver {
		return &lease.Report{Kind: lease.KindComplete, Started: w.chance(50), Result: &lease.Result{}}
	}
	r := w.report(pick(w, lease.KindComplete, lease.KindFail, lease.KindFail, lease.KindRelease))
	if h.stop && r.Failure != nil {
		r.Failure.Category = lease.CategoryCancelled
	}
	return r
}

// deliverNotice delivers a grant or a verdict to a worker.
func (w *world) deliverNotice(k *worker, t notice) {
	if t.claim != nil {
		k.held = appendBounded(k.held, &heldLease{claim: t.claim}, slots)
		return
	}
	for _, h := range k.held {
		if h.lease == t.report.LeaseID {
			k.obey(h, t)
			return
		}
	}
}

// obey does what a verdict asks of the worker (K1 to K3, K6).
func (k *worker) obey(h *heldLease, t notice) {
	switch a := t.answer; {
	case a.Reason == lease.ResultTooLarge: // the lease is still live
		h.report = nil
	case a.Verdict == lease.VerdictCancelled && k.habit.zombie:
	case a.Verdict != lease.VerdictCommitted || t.report.Kind.Closes():
		k.drop(h)
	case a.ShouldCancel:
		h.stop = true
	}
}

func (k *worker) drop(h *heldLease) {
	for i := range k.held {
		if k.held[i] == h {
			k.held = append(k.held[:i], k.held[i+1:]...)
			return
		}
	}
}

// strayReport returns a message of a zombie or a stranger: a report under a recent lease, live or
// not, sometimes with a mistake, or an earlier message again. ok is false if there is no lease yet.
func (w *world) strayReport() (lease.Judge, bool) {
	if len(w.claims) == 0 {
		return lease.Judge{}, false
	}
	if len(w.received) > 0 && w.chance(20) {
		return w.received[w.rng.IntN(len(w.received))], true
	}
	near := min(len(w.claims), pick(w, 3, 3, 40))
	k := w.claims[len(w.claims)-1-w.rng.IntN(near)]
	r := w.report(pick(w, lease.KindStart, lease.KindHeartbeat, lease.KindHeartbeat, lease.KindAck, lease.KindComplete,
		lease.KindFail, lease.KindRelease))
	r.TaskID, r.LeaseID = k.task, k.lease
	if w.chance(50) {
		r.Attempt = k.attempt
	}
	tenant := k.tenant
	if w.chance(15) {
		tenant = w.addMistake(r, tenant)
	}
	return lease.Judge{Tenant: tenant, Reports: []*lease.Report{r}}, true
}

// addMistake puts one mistake into a report, or returns another tenant.
func (w *world) addMistake(r *lease.Report, tenant string) string {
	switch w.rng.IntN(8) {
	case 0:
		r.TaskID = ""
	case 1:
		r.LeaseID = ""
	case 2:
		r.Invalid = &lease.FieldError{Field: "metrics", Problem: "is over the limit"}
	case 3:
		r.LeaseID = w.claims[w.rng.IntN(len(w.claims))].lease // mostly the lease of another task
	case 4:
		r.LeaseID = "forged"
	case 5:
		r.TaskID = pick(w, "nonsense", w.anyTask().String())
	case 6:
		r.Attempt = uint32(w.rng.IntN(4))
	case 7:
		return pick(w, "acme", "other", "third")
	}
	return tenant
}

func (w *world) report(kind lease.Kind) *lease.Report {
	r := &lease.Report{Kind: kind, Started: (kind.Closes() || kind == lease.KindStart) && w.chance(50)}
	if w.chance(20) {
		r.Session = pick(w, "s1", "s9")
	}
	switch kind {
	case lease.KindHeartbeat:
		r.Checkpoint = pick(w, nil, nil, []byte("half"))
	case lease.KindComplete:
		r.Result = &lease.Result{Output: []byte(pick(w, "", "a", "b", "1234", "12345"))}
	case lease.KindFail:
		yes, no := true, false
		r.Failure = &lease.Failure{
			Category: lease.Category(w.rng.IntN(int(lease.CategoryCancelled) + 1)), Message: pick(w, "a", "b"),
			Retryable: pick(w, nil, nil, &yes, &no), RetryAfter: pick(w, 0, 0, time.Second),
		}
	case lease.KindRelease:
		r.Delay = pick(w, 0, 0, time.Millisecond, time.Second)
	}
	return r
}
