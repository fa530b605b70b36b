package session

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/convert"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
)

// W13: of each tenant the last operations are remembered, and as many as the numbers of their
// workers allow; the oldest are forgotten first, but never the one that has just begun.
func TestOldOperationsAreForgotten(t *testing.T) {
	t.Attr("rules", "W13")
	defer func(operations, parts int) { maxOperations, maxParts = operations, parts }(maxOperations, maxParts)
	maxOperations, maxParts = 3, 10
	all := operations{of: map[string][]*PackageOperation{}}
	order := func(i int) PackageOrder { return PackageOrder{Operation: fmt.Sprint(i)} }
	for i, c := range []struct {
		size int
		kept string
	}{{1, "0"}, {1, "01"}, {1, "012"}, {1, "123"}, {7, "234"}, {8, "5"}, {11, "6"}, {1, "7"}} {
		if _, added := all.add("t", order(i), c.size); !added {
			t.Errorf("operation %d was not added", i)
		}
		if again, added := all.add("t", order(i), 1); added || again != all.find("t", order(i)) {
			t.Errorf("operation %d was added twice", i)
		}
		kept := ""
		for j := range i + 1 {
			if all.find("t", order(j)) != nil {
				kept += fmt.Sprint(j)
			}
		}
		if kept != c.kept {
			t.Errorf("operations %s are remembered after %d, want %s", kept, i, c.kept)
		}
	}
	if all.find("other", order(7)) != nil {
		t.Error("another tenant finds an operation")
	}
}

// W13: an order that comes again while a worker carries it out, because its operation was forgotten
// meanwhile, joins it: one event ends both.
func TestForgottenOperationIsJoinedAtTheWorker(t *testing.T) {
	t.Attr("rules", "W13")
	o, v := PackageOrder{Operation: "op", Name: "a", Version: "1"}, inventory{}
	ss := &Session{}
	first, tell := v.begin(ss.newPart(o))
	again, tellAgain := v.begin(ss.newPart(o))
	if first != again || !tell || tellAgain || len(v.underWay) != 1 {
		t.Errorf("the worker has %d parts, and is told %v and %v, want one and once", len(v.underWay), tell, tellAgain)
	}
}

// W13: a worker is told of its orders in the order in which they were given, whichever of those who
// tell it comes first, and of none that has ended meanwhile.
func TestOrdersAreToldInTheirOrder(t *testing.T) {
	t.Attr("rules", "W13")
	ss, v, out := &Session{}, inventory{}, newOutbox(slog.New(slog.DiscardHandler))
	var parts []*packagePart
	for _, id := range []string{"first", "ended", "third", "last"} {
		p, _ := v.begin(ss.newPart(PackageOrder{Operation: id, Name: id, Version: "1"}))
		parts = append(parts, p)
	}
	v.settle(parts[1], failed, "", "")
	for _, i := range []int{2, 0, 1, 3, 2} {
		v.tellUpTo(parts[i], out)
	}
	var told []string
	for _, f := range out.waiting.pushed {
		told = append(told, f.make(lease.Now{}, convert.Tokens{}).GetCorr())
	}
	if want := []string{"first", "third", "last"}; !slices.Equal(told, want) {
		t.Errorf("the worker is told %v, want %v", told, want)
	}
}

// W13: a call waits for no commit to tell workers of its order. Each worker gets the order itself,
// and one that waits for a commit holds up only a few others: no more than ordersAtOnce wait at a
// time.
func TestOrdersToManyWorkers(t *testing.T) {
	t.Attr("rules", "W13")
	synctest.Test(t, func(t *testing.T) {
		srv, workers := &Server{resumes: newResumeTable()}, make([]*Session, 2*ordersAtOnce+6)
		for i := range workers {
			workers[i] = &Session{
				srv: srv, id: fmt.Sprint(i), stream: &line{serving: t.Context()},
				out: newOutbox(slog.New(slog.DiscardHandler)), packages: &inventory{},
				admission: admission{state: &resumeState{}}, view: view{info: &lessorv1.WorkerInfo{}, installs: true},
			}
			workers[i].slotsMu.Lock() // as while a commit goes on
		}
		told := func(want int) {
			t.Helper()
			synctest.Wait()
			n := 0
			for _, ss := range workers {
				n += len(ss.out.waiting.pushed)
			}
			if n != want {
				t.Errorf("%d workers have been told, want %d", n, want)
			}
		}
		began := time.Now()
		p := NewRegistry().CarryOut("t", PackageOrder{Operation: "op", Name: "a", Version: "1"}, workers)
		p.Await(t.Context(), time.Second)
		left, leave := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, leave)
		p.Await(left, time.Hour)
		for i, r := range p.Results() {
			if r.GetSessionId() != workers[i].id || r.GetStatus() != installing {
				t.Errorf("worker %d has the result %v, want it installing", i, r)
			}
		}
		if waited := time.Since(began); waited != 2*time.Second {
			t.Errorf("waited for %v, want a second each", waited)
		}
		for _, ss := range workers[ordersAtOnce:] {
			ss.slotsMu.Unlock()
		}
		told(0) // as many wait as may
		workers[1].slotsMu.Unlock()
		told(3) // and those that come after it in its turn
		for _, ss := range workers[2:ordersAtOnce] {
			ss.slotsMu.Unlock()
		}
		told(len(workers) - 3)
		workers[0].slotsMu.Unlock()
		told(len(workers))
	})
}
