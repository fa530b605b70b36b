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

// What is made of an item of a frame only gets less: a frame has hundreds, and each is made once for every attempt.
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
		most float64 // for an item
	}{
		{"report", func() { // nothing of its own
			if r := ParseReports(said, lease.DefaultLimits()); len(r) != items || r[items-1].Result == nil {
				t.Fatal(r)
			}
		}, 0},
		{"assignment", func() { // its id, which the task's begins, and a token
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
		const frame = 20 // what is not made for each item
		if n := testing.AllocsPerRun(20, tt.make); n > tt.most*items+frame {
			t.Errorf("%v allocations for %d items (%s), at most %v were expected", n, items, tt.what, tt.most*items+frame)
		}
	}
}
