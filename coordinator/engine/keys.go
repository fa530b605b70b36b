package engine

import (
	"context"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
)

// moveKeys does a part of what the index of idempotency keys has to do: recent entries become a segment, and segments are removed. The next part waits until this
// one is durable, so that a commit has one part at most, however many batches it has.
func (e *Engine) moveKeys() {
	if e.keysMoved > e.pipeline.lastDurable() || !e.set.byKey.Busy() {
		return
	}
	var changes keyindex.Changes
	e.set.read(func(r store.Reader) (err error) {
		changes, err = e.set.byKey.Step(r)
		return err
	})
	if changes != nil {
		e.keysMoved = e.batch().number
		e.batch().addPut(changes)
	}
}

// readKeyFilters reads what Load has left out, so that it does not make the start longer. It ends early if ctx ends.
func (e *Engine) readKeyFilters(ctx context.Context) {
	unread := e.set.byKey.Unread()
	view := func(fn func(store.Reader) error) error {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		return e.st.View(func(r store.Reader) error { return fn(store.Polite(r)) })
	}
	e.readers.Go(func() {
		for _, segment := range unread {
			f, err := keyindex.ReadFilter(view, segment)
			if ctx.Err() != nil {
				return
			}
			e.later("", func() {
				if err != nil {
					panic(corrupt{err})
				}
				e.set.byKey.SetFilter(f)
			})
			if err != nil {
				return
			}
		}
	})
}
