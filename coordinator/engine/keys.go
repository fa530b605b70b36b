package engine

import (
	"context"

	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/keyindex"
)

func (w *workset) loadKeys(r store.Reader, segment int) (err error) {
	w.byKey, err = keyindex.Load(r, segment)
	return err
}

// moveKeys does a part of what the index of idempotency keys has to do: recent entries become a
// segment, and segments are removed. The next part waits until this one is durable, so that a
// commit has one part at most, however many batches it has.
func (w *workset) moveKeys(p *pipeline) {
	if w.movedIn > p.lastDurable() || !w.byKey.Busy() {
		return
	}
	var changes keyindex.Changes
	w.read(func(r store.Reader) (err error) {
		changes, err = w.byKey.Step(r)
		return err
	})
	if changes != nil {
		w.movedIn = p.current().number
		p.current().addPut(changes)
	}
}

// unreadKeys returns the numbers of the segments of which loadKeys has not read the filter.
func (w *workset) unreadKeys() []uint32 { return w.byKey.Unread() }

// setKeyFilter adds the filter of a segment.
func (w *workset) setKeyFilter(f keyindex.Filter) { w.byKey.SetFilter(f) }

// readKeyFilters reads what Load has left out, so that it does not make the start longer. It ends
// early if ctx ends.
func (e *Engine) readKeyFilters(ctx context.Context) {
	unread := e.set.unreadKeys()
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
			e.inbox.later("", func() {
				if err != nil {
					panic(corrupt{err})
				}
				e.set.setKeyFilter(f)
			})
			if err != nil {
				return
			}
		}
	})
}
