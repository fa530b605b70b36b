//go:build !race

package convert

import (
	"testing"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/tasktoken"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// An item of a frame may need only this many allocations. The limits may only go down, because a
// frame may have hundreds of items, and every attempt needs one of each kind.
func TestAllocationsOfItems(t *testing.T) {
	const items = 100
	a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
	now := lease.Now{Serving: 1, Wall: 1}
	st := memstore.New()
	g := granted(t, st)
	all := make([]engine.Granted, items)
	reports := make([]*lessorv1.Report, items)
	for i := range items {
		all[i] = *g
		reports[i] = &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{TaskId: "t", LeaseId: "l", ReportId: "r"}}}
	}
	spec := &lessorv1.TaskSpec{Queue: "q", Type: "t", Payload: []byte("payload")}
	for _, tt := range []struct {
		what string
		make func()
		most float64 // for each item
	}{
		{"report", func() { // needs none
			if r := ParseReports(reports, lease.DefaultLimits()); len(r) != items || r[items-1].Result == nil {
				t.Fatal(r)
			}
		}, 0},
		{"spec", func() { // needs itself
			for range items {
				if _, err := ParseSpec(spec, lease.DefaultLimits()); err != nil {
					t.Fatal(err)
				}
			}
		}, 1},
		{"assignment", func() { // needs the attempt id, of which the task id is a part, and a token
			if err := st.View(func(r store.Reader) error {
				m, err := a.Assignments(r, now, "", all)
				if len(m) != items {
					t.Fatalf("%d assignments", len(m))
				}
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}, 2},
	} {
		const frame = 20 // allocations for the frame as a whole
		if n := testing.AllocsPerRun(20, tt.make); n > tt.most*items+frame {
			t.Errorf("%v allocations for %d items (%s), want at most %v", n, items, tt.what, tt.most*items+frame)
		}
	}
}
