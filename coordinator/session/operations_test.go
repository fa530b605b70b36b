package session

import (
	"fmt"
	"testing"
)

// W13: of each tenant the last operations are remembered, and as many as the numbers of their workers allow; the oldest are forgotten first, but never the one
// that has just begun.
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

// W13: an order that comes again while a worker carries it out, because its operation was forgotten meanwhile, joins it: one event ends both.
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
