package engine

import (
	"context"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
)

// keySegment is how many entries of idempotency keys become a segment.
var keySegment = keyindex.DefaultSegmentSize

// moveKeys lets each batch do a part of what the index of idempotency keys has to do: recent entries become a segment, and segments are removed.
func (e *Engine) moveKeys() {
	if !e.set.byKey.Busy() || e.keysMoved == e.batch.number {
		return
	}
	durable := e.batch.number - 1
	if len(e.inflight) > 0 {
		durable = e.inflight[0].number - 1
	}
	var changes keyindex.Changes
	e.set.read(func(r store.Reader) (err error) {
		changes, err = e.set.byKey.Step(r, e.batch.number, durable)
		return err
	})
	if changes != nil {
		e.keysMoved = e.batch.number
		e.batch.puts = append(e.batch.puts, changes)
	}
}

// readKeyFilters reads what Load has left out, so that it does not make the start longer.
func (e *Engine) readKeyFilters(ctx context.Context) {
	unread := e.set.byKey.Unread()
	e.readers.Go(func() {
		for _, segment := range unread {
			if ctx.Err() != nil {
				return
			}
			f, err := keyindex.ReadFilter(e.st.View, segment)
			e.later("", func() {
				if err != nil {
					panic(corrupt{err})
				}
				e.set.byKey.SetFilter(f)
			})
		}
	})
}
