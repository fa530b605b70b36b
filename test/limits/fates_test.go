package limits

import (
	"fmt"
	"math/rand/v2"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// speaker says something about a lease, by unary calls or on a stream, and gives the answer to the
// book. ok is false if there is no answer.
type speaker interface {
	start(l *held) (a answer, ok bool)
	beat(l *held, checkpoint []byte) (a answer, ok bool)
	report(l *held, r report) (a answer, ok bool)
}

// held is a lease in the hands of a worker.
type held struct {
	*leaseRecord
	*lessorv1.Assignment
	tn *tenant
}

// answer is the answer to a report, a start or a heartbeat.
type answer struct {
	verdict   lessorv1.Verdict
	reason    lessorv1.Reason
	cancel    bool
	expiresAt time.Time
}

// handed returns a lease that an instance of a worker was handed; nil: a caller of Lease was.
func (w *world) handed(tn *tenant, a *lessorv1.Assignment, by *instance) *held {
	return &held{w.book.granted(a, by), a, tn}
}

// work does with a lease what its fate says.
func (w *world) work(l *held, by speaker) {
	if w.calm.Load() {
		for w.quiet.Load() {
			time.Sleep(100 * time.Millisecond)
		}
		w.finish(l, by, "complete")
		return
	}
	rng, ttl := w.fate(fmt.Sprint(l.task, l.attempt)), l.GetHeartbeatTimeout().AsDuration()
	switch rng.IntN(12) {
	case 0: // it vanishes
	case 1:
		w.finish(l, by, "fail")
	case 2:
		by.start(l)
		w.finish(l, by, "release")
	case 3: // too late, maybe
		time.Sleep(ttl/2 + upTo(rng, ttl))
		w.finish(l, by, "complete")
	case 4: // says it twice, and something else
		w.busy.Go(func() { w.finish(l, by, "complete") })
		w.busy.Go(func() { w.finish(l, by, "complete") })
		w.finish(l, by, pick(rng, "complete", "fail", "release"))
		w.busy.Go(func() { by.report(l, w.reportOf(l, "complete other")) })
	case 5, 6:
		w.finish(l, by, "complete")
	default:
		w.workHard(rng, l, by)
	}
}

// fewCalls is how many calls a tenant may have under way, apart from submits, so that a heartbeat
// is not late because of them.
const fewCalls = 10

// workHard runs a task as a worker should, which takes several renewals of the lease. No such lease
// may expire: a heartbeat that comes when a half of the TTL is left is in time, whatever other
// tenants do and however many tasks its own tenant submits, unless the coordinator is away.
func (w *world) workHard(rng *rand.Rand, l *held, by speaker) {
	ttl, starts := l.GetHeartbeatTimeout().AsDuration(), w.starts.Load()
	expires := l.GetExpiresAt().AsTime()
	began, crowd := time.Now(), l.tn.calls.Load()
	a, ok := by.start(l)
	for n := rng.IntN(6); n >= 0; n-- {
		if ok && a.verdict == lessorv1.Verdict_VERDICT_CANCELLED {
			if a.reason == lessorv1.Reason_REASON_LEASE_EXPIRED && expires.Sub(began) >= ttl/2 && starts == w.starts.Load() &&
				max(crowd, l.tn.calls.Load()) < fewCalls {
				w.problem("T12: %s: the lease of %s, attempt %d, expires at %v, and a heartbeat of %v was too late",
					l.tn.name, l.task, l.attempt, expires, began)
			}
			return
		}
		if ok && a.cancel {
			w.finish(l, by, "cancelled")
			return
		}
		if ok && !a.expiresAt.IsZero() {
			expires = a.expiresAt
		}
		time.Sleep(ttl / 3)
		began, crowd = time.Now(), l.tn.calls.Load()
		a, ok = by.beat(l, make([]byte, rng.IntN(64)))
	}
	w.finish(l, by, pick(rng, "complete", "complete", "complete", "fail", "release"))
}

// finish reports the end of an attempt, and reports it again, unchanged, until there is an answer
// or the coordinator is away for too long.
func (w *world) finish(l *held, by speaker, kind string) {
	r := w.reportOf(l, kind)
	for range 5 {
		if _, ok := by.report(l, r); ok {
			return
		}
		time.Sleep(time.Second)
	}
}

func (w *world) reportOf(l *held, kind string) report {
	r := report{kind: kind}
	switch kind {
	case "complete":
		r.output = fmt.Sprint(l.task, " ", l.attempt)
	case "complete other":
		r = report{"complete", "other"}
	}
	return r
}
