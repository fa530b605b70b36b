package store

import "context"

// Collect returns a Tx for a store that can only commit whole batches: it joins all batches of the Tx into one, and passes that to commit in Sync.
func Collect(ctx context.Context, commit func(context.Context, *Batch) error) Tx {
	return &collected{commit: func(b *Batch) error { return commit(ctx, b) }}
}

type collected struct {
	commit func(*Batch) error
	all    []*Batch
}

func (c *collected) Apply(b *Batch) { c.all = append(c.all, b) }

func (c *collected) Write() error { return nil }

func (c *collected) Sync() error {
	if len(c.all) == 1 {
		return c.commit(c.all[0])
	}
	var sum Batch
	for _, b := range c.all {
		sum.Append(b)
	}
	return c.commit(&sum)
}

func (c *collected) Rollback() { c.all = nil }
