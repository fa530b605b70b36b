package wiretest

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

// SlowStore is a store whose commits take CommitTime, and whose reads take ReadTime.
type SlowStore struct {
	*memstore.Store
	CommitTime, ReadTime atomic.Int64 // nanoseconds
}

// Begin implements store.Store.
func (s *SlowStore) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, s.Commit), nil
}

// Commit implements store.Store.
func (s *SlowStore) Commit(ctx context.Context, b *store.Batch) error {
	time.Sleep(time.Duration(s.CommitTime.Load()))
	return s.Store.Commit(ctx, b)
}

// View implements store.Store.
func (s *SlowStore) View(read func(store.Reader) error) error {
	time.Sleep(time.Duration(s.ReadTime.Load()))
	return s.Store.View(read)
}

// BlockCommits makes every commit wait until release is called.
func BlockCommits(st *memstore.Store) (release func()) {
	released := make(chan struct{})
	st.SetHook(func(_ context.Context, _ *store.Batch, apply func()) error {
		<-released
		apply()
		return nil
	})
	return func() { close(released) }
}

// SubmitAndBlockCommit submits a task of the queue "other", and makes its commit wait until release
// is called. All commands that arrive in the meantime go into the next commit together.
func (r *Rig) SubmitAndBlockCommit(t *testing.T, st *memstore.Store) (release func()) {
	t.Helper()
	synctest.Wait()
	release = BlockCommits(st)
	go func() {
		spec := &lessorv1.TaskSpec{Queue: "other"}
		if _, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: spec}); err != nil {
			t.Error(err)
		}
	}()
	synctest.Wait()
	return release
}
