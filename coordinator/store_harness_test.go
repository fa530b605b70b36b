package coordinator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// slowStore is a store whose commits take commitTime, and whose reads take readTime.
type slowStore struct {
	*memstore.Store
	commitTime, readTime atomic.Int64 // nanoseconds
}

// Begin implements store.Store.
func (s *slowStore) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, s.Commit), nil
}

func (s *slowStore) Commit(ctx context.Context, b *store.Batch) error {
	time.Sleep(time.Duration(s.commitTime.Load()))
	return s.Store.Commit(ctx, b)
}

func (s *slowStore) View(read func(store.Reader) error) error {
	time.Sleep(time.Duration(s.readTime.Load()))
	return s.Store.View(read)
}

// blockCommits makes every commit wait until release is called.
func blockCommits(st *memstore.Store) (release func()) {
	released := make(chan struct{})
	st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		<-released
		apply()
		return nil
	})
	return func() { close(released) }
}

// submitAndBlockCommit submits a task of the queue "other", and makes its commit wait until release is called. All commands that arrive in the meantime
// go into the next commit together.
func (r *rig) submitAndBlockCommit(t *testing.T, st *memstore.Store) (release func()) {
	t.Helper()
	synctest.Wait()
	release = blockCommits(st)
	go func() {
		spec := &lessorv1.TaskSpec{Queue: "other"}
		if _, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return release
}
