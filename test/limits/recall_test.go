package limits

import (
	"cmp"
	"math/rand/v2"
	"slices"
	"strings"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// recall repeats the reports on some leases of each tenant, over gRPC and over HTTP. The book
// checks the verdicts: a report that was COMMITTED is so again, for as long as its task exists and
// for an hour longer, and under a lease that was lost nothing is COMMITTED, not even after a
// restore (A4, A10, A11, V4).
func (w *world) recall() {
	for _, tn := range w.everybody() {
		for _, l := range w.book.someLeases(w.fate("recall "+tn.name), tn, 6) {
			r := l.closed
			if r == (report{}) {
				r = w.reportOf(l, "complete")
			}
			web := w.newWeb(l.Assignment, "w")
			for _, by := range []speaker{unary{w, "w"}, web} {
				if by == speaker(web) && r.kind == "release" {
					continue
				}
				if a, ok := by.report(l, r); ok {
					w.count("report again", strings.ToLower(r.kind)+" "+a.verdict.String()+" "+a.reason.String())
				}
			}
			if a, ok := web.beat(l, nil); ok && a.verdict == lessorv1.Verdict_VERDICT_COMMITTED {
				w.problem("A4: %s, attempt %d, was closed by %v or lost (%s), and a heartbeat is COMMITTED",
					l.task, l.attempt, l.closed, l.lostBy)
			}
		}
	}
}

// someLeases returns at most n leases of a tenant that have ended for certain, and were handed out
// as assignments.
func (b *book) someLeases(rng *rand.Rand, tn *tenant, n int) (some []*held) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, id := range b.ids[tn.name] {
		for _, l := range b.grants[id] {
			if l.assignment != nil && (l.closed != (report{}) || !l.lost.IsZero()) {
				some = append(some, &held{l, l.assignment, tn})
			}
		}
	}
	slices.SortFunc(some, func(a, b *held) int { return strings.Compare(a.id, b.id) })
	rng.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
	rare := map[string]int{"cancelled": -2, "fail": -1, "give back": -1, "release": -1} // first
	slices.SortStableFunc(some, func(a, b *held) int { return cmp.Compare(rare[a.closed.kind], rare[b.closed.kind]) })
	return some[:min(n, len(some))]
}
