package reserve

import (
	"context"

	"github.com/lessor-dev/lessor/store"
)

// Guard returns a store that calls Check of the reserve before each commit.
func Guard(st store.Store, r *Reserve) store.Store { return guarded{st, r} }

type guarded struct {
	store.Store
	reserve *Reserve
}

// Commit implements store.Store.
func (g guarded) Commit(ctx context.Context, b *store.Batch) error {
	g.reserve.Check()
	return g.Store.Commit(ctx, b)
}

// Peek implements store.Peeker.
func (g guarded) Peek(fn func(store.Reader) error) error { return store.Peek(g.Store, fn) }

// Begin implements store.Store.
func (g guarded) Begin(ctx context.Context) (store.Tx, error) {
	g.reserve.Check()
	return g.Store.Begin(ctx)
}
