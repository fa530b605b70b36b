package session

import (
	"fmt"
	"log/slog"
	"testing"
	"testing/synctest"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
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

// W13: each worker gets the order itself, and a worker that waits for a commit holds up only a few
// others. No more than ordersAtOnce workers wait at a time.
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
		begun := func() (n int) {
			synctest.Wait()
			for _, ss := range workers {
				n += len(ss.packages.underWay)
			}
			return n
		}
		done := make(chan *PackageOperation)
		go func() {
			done <- NewRegistry().CarryOut("t", PackageOrder{Operation: "op", Name: "a", Version: "1"}, workers)
		}()
		if n := begun(); n != ordersAtOnce {
			t.Errorf("%d workers are given the order at once, want %d", n, ordersAtOnce)
		}
		for i, ss := range workers[1:] {
			ss.slotsMu.Unlock()
			if n := begun(); i == 0 && n != ordersAtOnce+1 {
				t.Errorf("%d workers were given the order when one no longer waits, want %d", n, ordersAtOnce+1)
			}
		}
		// the first one holds up those that come after it in its turn
		if n, want := begun(), len(workers)-2; n != want {
			t.Errorf("%d workers were given the order while one waits, want %d", n, want)
		}
		workers[0].slotsMu.Unlock()
		for i, r := range (<-done).Results() {
			if o := workers[i].out; r.GetSessionId() != workers[i].id || len(o.waiting.pushed) != 1 {
				t.Errorf("worker %d has the result of %s, and %d frames", i, r.GetSessionId(), len(o.waiting.pushed))
			}
		}
	})
}
