package engine

import (
	"slices"
	"testing"

	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store/memstore"
)

// A task that was made and deleted in the same batch has no version that was durable, and nobody is
// told of it.
func TestTaskOfOneBatchIsNoChange(t *testing.T) {
	var told [][2]*lease.Task
	c := newCommitter(memstore.New(), newHub(), &Events{Changed: func(before, after *lease.Task) {
		told = append(told, [2]*lease.Task{before, after})
	}})
	made := &lease.Task{}
	c.announce(&batch{changes: []*change{{}, {Change: lease.Change{New: made}}}})
	if want := [][2]*lease.Task{{nil, made}}; !slices.Equal(told, want) {
		t.Errorf("told %v, want %v", told, want)
	}
}

// The committer gets a batch only when it has asked for one and there is something to tell. A batch
// is durable once the committer says so, and all batches before it are.
func TestPipelineKnowsWhatIsDurable(t *testing.T) {
	c := newCommitter(memstore.New(), newHub(), &Events{}) // it does not run: the test is the committer
	var handed, durable []batchNumber
	p := newPipeline(c, func(b *batch) { handed = append(handed, b.number) },
		func(b *batch) { durable = append(durable, b.number) })
	fill := func() { p.current().addOp(op{}) }
	check := func(when string, wantHanded, wantDurable int, last batchNumber) {
		t.Helper()
		if len(handed) != wantHanded || len(durable) != wantDurable || p.lastDurable() != last {
			t.Fatalf("%s: %v were handed over and %v are durable, up to %d; want %d and %d, up to %d",
				when, handed, durable, p.lastDurable(), wantHanded, wantDurable, last)
		}
	}
	p.asked()
	p.handOver()
	check("the batch is empty", 0, 0, 0)
	fill()
	p.handOver()
	check("it has something to tell", 1, 0, 0)
	fill()
	p.handOver()
	check("the committer has not asked again", 1, 0, 0)
	first := <-c.batches
	c.asks <- struct{}{}
	if p.poll() != nil {
		t.Fatal("a request for a batch counts as the end of a commit")
	}
	p.handOver()
	check("it has asked again", 2, 0, 0)
	second := <-c.batches
	c.done <- []*batch{first}
	if b := p.poll(); b != first || p.oldest() != second {
		t.Fatalf("the commit of batch %d has ended, and %d is the oldest that is not durable; want 1 and 2",
			b.number, p.oldest().number)
	}
	check("the first one is durable", 2, 1, 1)
	fill()
	c.asks <- struct{}{}
	p.poll()
	p.handOver()
	third := <-c.batches
	c.done <- []*batch{second, third}
	p.flushTo(2) // takes the end of the commit itself
	check("all are durable", 3, 3, 3)
	if !slices.IsSorted(durable) || p.oldest() != nil {
		t.Errorf("durable in the order %v, and the oldest that is not is %v; want them in their order, and none",
			durable, p.oldest())
	}
	p.flush() // nothing to wait for
}
