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

// How often an item of a frame is allocated. The bounds may only go down: a frame may have hundreds of items, and there is one for every attempt.
func TestAllocationsOfItems(t *testing.T) {
	const items = 100
	a := &Assigner{Tokens: Tokens{Signer: tasktoken.New([]byte("key"), tasktoken.DefaultTTL)}}
	now := lease.Now{Serving: 1, Wall: 1}
	st := memstore.New()
	g := granted(t, st)
	all := make([]engine.Granted, items)
	said := make([]*lessorv1.Report, items)
	for i := range items {
		all[i] = *g
		said[i] = &lessorv1.Report{Report: &lessorv1.Report_Complete{Complete: &lessorv1.CompleteRequest{TaskId: "t", LeaseId: "l", ReportId: "r"}}}
	}
	for _, tt := range []struct {
		what string
		make func()
		most float64 // for each item
	}{
		{"report", func() { // none
			if r := ParseReports(said, lease.DefaultLimits()); len(r) != items || r[items-1].Result == nil {
				t.Fatal(r)
			}
		}, 0},
		{"assignment", func() { // the id (the task's id is part of it) and a token
			if err := st.View(func(r store.Reader) error {
				m, err := a.Assignments(r, now, all)
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
			t.Errorf("%v allocations for %d items (%s), at most %v were expected", n, items, tt.what, tt.most*items+frame)
		}
	}
}
