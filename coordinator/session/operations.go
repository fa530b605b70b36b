package session

import (
	"context"
	"slices"
	"sync"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/internal/turn"
)

// Bounds of the operations that are remembered of a tenant, so that a repeated call can join them
// (W13). The oldest are forgotten first, and go on.
var (
	maxOperations = 100
	maxParts      = 100_000 // of all of them together
)

// ordersAtOnce is how many workers are given an order at once: there may be thousands, and each may
// have to wait for a commit.
const ordersAtOnce = 32

// PackageOperation is an order that a number of workers carry out.
type PackageOperation struct {
	order PackageOrder
	begun chan struct{} // closed when parts is complete
	parts []*packagePart
	size  int // number of the parts, also before there are any
}

// Await returns when all workers have told what became of the package, or after the time, or when
// ctx ends. The operation goes on.
func (p *PackageOperation) Await(ctx context.Context, wait time.Duration) {
	<-p.begun
	late := time.NewTimer(wait)
	defer late.Stop()
	for _, part := range p.parts {
		select {
		case <-part.ended:
		case <-late.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// Results returns how far each worker is, by worker and session.
func (p *PackageOperation) Results() []*lessorv1.PackageResult {
	<-p.begun
	all := make([]*lessorv1.PackageResult, len(p.parts))
	for i, part := range p.parts {
		all[i] = part.result.Load()
	}
	return all
}

// operations remembers the operations of each tenant, oldest first.
type operations struct {
	mu sync.Mutex
	of map[string][]*PackageOperation
}

// find returns the operation that an order repeats, or nil.
func (all *operations) find(tenant string, o PackageOrder) *PackageOperation {
	all.mu.Lock()
	defer all.mu.Unlock()
	return all.findLocked(tenant, o)
}

func (all *operations) findLocked(tenant string, o PackageOrder) *PackageOperation {
	if i := slices.IndexFunc(all.of[tenant], func(p *PackageOperation) bool { return o.repeats(&p.order) }); i >= 0 {
		return all.of[tenant][i]
	}
	return nil
}

// add remembers a new operation. If another call has begun it meanwhile, add returns that one, and
// false.
func (all *operations) add(tenant string, o PackageOrder, size int) (p *PackageOperation, added bool) {
	all.mu.Lock()
	defer all.mu.Unlock()
	if p := all.findLocked(tenant, o); p != nil {
		return p, false
	}
	p = &PackageOperation{order: o, begun: make(chan struct{}), size: size}
	kept := slices.Concat(all.of[tenant], []*PackageOperation{p})
	parts := 0
	for _, p := range kept {
		parts += p.size
	}
	for len(kept) > 1 && (len(kept) > maxOperations || parts > maxParts) {
		parts -= kept[0].size
		kept = slices.Delete(kept, 0, 1)
	}
	all.of[tenant] = kept
	return p, true
}

// Operation returns the operation that an order repeats: the same one about the same package. It
// returns nil if there is none.
func (r *Registry) Operation(tenant string, o PackageOrder) *PackageOperation {
	return r.operations.find(tenant, o)
}

// CarryOut has the workers of sessions of a tenant carry out an order, unless it repeats another
// one that has begun meanwhile.
func (r *Registry) CarryOut(tenant string, o PackageOrder, workers []*Session) *PackageOperation {
	p, added := r.operations.add(tenant, o, len(workers))
	if !added {
		return p
	}
	defer close(p.begun)
	p.parts = make([]*packagePart, len(workers))
	var running sync.WaitGroup
	for first := range min(ordersAtOnce, len(workers)) {
		running.Go(func() {
			var seen turn.Counter
			for i := first; i < len(workers); i += ordersAtOnce {
				seen.Every(32)
				p.parts[i] = workers[i].carryOut(o)
			}
		})
	}
	running.Wait()
	return p
}
