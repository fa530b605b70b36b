package auth

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
)

// X3: a change waits for the one before it, and for no other; who gives up has no turn, and nothing
// is kept of tenants without changes.
func TestChangesTakeTurns(t *testing.T) {
	t.Attr("rules", "X3")
	synctest.Test(t, func(t *testing.T) {
		c := newChanges()
		begin := func(ctx context.Context, tenant string) func() {
			end, err := c.begin(ctx, tenant)
			if err != nil {
				t.Error(err)
			}
			return end
		}
		end, other := begin(t.Context(), "acme"), begin(t.Context(), "other")
		ctx, giveUp := context.WithCancelCause(t.Context())
		left := errors.New("left")
		gone := make(chan error)
		go func() {
			_, err := c.begin(ctx, "acme")
			gone <- err
		}()
		began := make(chan struct{})
		go func() {
			defer close(began)
			begin(t.Context(), "acme")()
		}()
		synctest.Wait()
		giveUp(left)
		if err := <-gone; !errors.Is(err, left) {
			t.Errorf("who gave up got %v, want the cause", err)
		}
		select {
		case <-began:
			t.Error("a change has begun beside another one of its tenant")
		default:
		}
		end()
		<-began
		other()
		if len(c.of) != 0 {
			t.Errorf("%d tenants are kept after their changes, want none", len(c.of))
		}
	})
}
