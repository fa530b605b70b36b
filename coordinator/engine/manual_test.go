package engine

import (
	"strconv"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// manualEngine runs the parts of the engine's round one by one, without the loop, so that the cost
// of each part can be measured. It commits nothing: it encodes a batch, and then treats the batch
// as durable.
type manualEngine struct {
	testing.TB
	*Engine
	payload []byte
	encoded store.Batch
}

// newManualEngine makes an engine with the given number of sessions, each with the given number of
// slots.
func newManualEngine(tb testing.TB, takers, slots int) *manualEngine {
	tb.Helper()
	e, err := Open(memstore.New(), Config{})
	if err != nil {
		tb.Fatal(err)
	}
	h := &manualEngine{TB: tb, Engine: e, payload: make([]byte, 256)}
	e.clocks.start()
	for i := range takers {
		instance := strconv.Itoa(i)
		e.Join(&Member{
			Session: NewSessionID(home.Tenant, "w", instance), Slots: slots, Deliver: func([]Granted) {},
			Notify: func([]Notice) {}, Displaced: func(string) {},
			Wants: Wants{Space: home, Worker: "w" + instance, Queues: []string{"q"}},
		})
	}
	for ops := e.inbox.take(nil, maxBatchOps); len(ops) > 0; ops = e.inbox.take(nil, maxBatchOps) {
		for _, o := range ops {
			o.run()
		}
	}
	h.match() // nothing waits yet
	return h
}

// specs returns n tasks as the RPC handlers would pass them to the engine.
func (h *manualEngine) specs(n int) ([]*lease.Spec, []lease.Digest) {
	specs := make([]*lease.Spec, n)
	for i := range specs {
		specs[i] = &lease.Spec{Queue: "q", Type: "t", Payload: h.payload}
		if err := specs[i].Fill(lease.DefaultLimits()); err != nil {
			h.Fatal(err)
		}
	}
	return specs, make([]lease.Digest, n)
}

// submitSpecs submits the tasks.
func (h *manualEngine) submitSpecs(specs []*lease.Spec, digests []lease.Digest) {
	if out := h.submit(home, specs, digests); out.Err != nil {
		h.Fatal(out.Err)
	}
}

// completions returns a Complete for each grant of the batch; there must be n of them.
func (h *manualEngine) completions(n int) []*lease.Report {
	reports := make([]*lease.Report, 0, n)
	for _, tell := range h.batch().deliveries {
		for _, g := range tell.granted {
			reports = append(reports, &lease.Report{
				Kind: lease.KindComplete, Session: tell.member.Session, TaskID: g.Task.ID.String(), LeaseID: g.LeaseID,
				Result: &lease.Result{Output: h.payload[:16]},
			})
		}
	}
	if len(reports) != n {
		h.Fatalf("%d tasks were granted, want %d", len(reports), n)
	}
	return reports
}

// withStarts puts a Start before each report, as a short task sends both in one frame.
func withStarts(reports []*lease.Report) []*lease.Report {
	var all []*lease.Report
	for _, r := range reports {
		all = append(all, &lease.Report{Kind: lease.KindStart, Session: r.Session, TaskID: r.TaskID, LeaseID: r.LeaseID}, r)
	}
	return all
}

// complete has the reports judged; all must be COMMITTED.
func (h *manualEngine) complete(reports []*lease.Report) {
	for _, a := range h.judge(home.Tenant, reports) {
		if a.Verdict != lease.VerdictCommitted {
			h.Fatal(a)
		}
	}
}

// encodeBatch encodes what is in the batch.
func (h *manualEngine) encodeBatch() {
	h.encoded.Reset()
	if err := h.batch().encode(&h.encoded, h.st); err != nil {
		h.Fatal(err)
	}
}

// endBatch treats the batch as durable, and begins the next one.
func (h *manualEngine) endBatch() {
	p, b := h.pipeline, h.batch()
	p.batch = newBatch(b.number+1, &p.memory)
	p.inflight = append(p.inflight, b)
	p.durable([]*batch{b})
	h.afterCommit(b)
}
