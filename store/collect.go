package store

import "context"

// Collect returns a Tx for a store that can only commit whole batches: it joins all batches of the
// Tx into one, and passes that to commit in Sync.
func Collect(ctx context.Context, commit func(context.Context, *Batch) error) Tx {
	return &collectedTx{commit: func(b *Batch) error { return commit(ctx, b) }}
}

type collectedTx struct {
	commit func(*Batch) error
	all    Batch
}

func (c *collectedTx) Apply(b *Batch) { c.all.Append(b) }

func (c *collectedTx) Write() error { return nil }

func (c *collectedTx) Sync() error { return c.commit(&c.all) }

func (c *collectedTx) Rollback() {}

// CommitInSteps is Commit for a store that commits in steps.
func CommitInSteps(ctx context.Context, st Store, b *Batch) error {
	t, err := st.Begin(ctx)
	if err != nil {
		return err
	}
	t.Apply(b)
	if err := t.Write(); err != nil {
		return err
	}
	return t.Sync()
}
