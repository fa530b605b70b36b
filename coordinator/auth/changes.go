package auth

import (
	"context"
	"sync"
)

// changes lets each tenant make one change at a time. A change waits for its commit, and tenants
// must not wait for the changes of others: one of them may make many, while another one revokes a
// credential (X3, T12).
type changes struct {
	mu sync.Mutex
	of map[string]*tenantChanges
}

// tenantChanges are the changes of one tenant.
type tenantChanges struct {
	turn  chan struct{} // holds one token while a change is under way
	calls int           // under way or waiting
}

func newChanges() changes { return changes{of: map[string]*tenantChanges{}} }

// begin waits until the tenant has no other change under way. The change lasts until end is called.
// If ctx ends before, begin returns its cause.
func (c *changes) begin(ctx context.Context, tenant string) (end func(), err error) {
	c.mu.Lock()
	t := c.of[tenant]
	if t == nil {
		t = &tenantChanges{turn: make(chan struct{}, 1)}
		c.of[tenant] = t
	}
	t.calls++
	c.mu.Unlock()
	select {
	case t.turn <- struct{}{}:
		return func() {
			<-t.turn
			c.leave(tenant, t)
		}, nil
	case <-ctx.Done():
		c.leave(tenant, t)
		return nil, context.Cause(ctx)
	}
}

func (c *changes) leave(tenant string, t *tenantChanges) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if t.calls--; t.calls == 0 {
		delete(c.of, tenant)
	}
}
