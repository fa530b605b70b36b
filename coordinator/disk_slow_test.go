package coordinator

import (
	"context"
	"net/http"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// slowStore delays each commit.
type slowStore struct {
	*memstore.Store
	commitTime atomic.Int64 // nanoseconds
}

// Begin implements store.Store.
func (s *slowStore) Begin(ctx context.Context) (store.Tx, error) {
	return store.Collect(ctx, s.Commit), nil
}

func (s *slowStore) Commit(ctx context.Context, b *store.Batch) error {
	time.Sleep(time.Duration(s.commitTime.Load()))
	return s.Store.Commit(ctx, b)
}

// /readyz and the metrics show a slow commit while it is under way, and the log has it afterwards. Calls that waited for the commit are answered.
func TestReadyzShowsASlowDisk(t *testing.T) {
	st := &slowStore{Store: memstore.New()}
	serve(t, st, func(t *testing.T, r *rig) {
		ready := func(code int, want string) {
			t.Helper()
			if text := getPath(t, r, "/readyz", code); text != want+"\n" {
				t.Errorf("/readyz says %q, want %q", text, want)
			}
		}
		ready(http.StatusOK, "ready")
		st.commitTime.Store(int64(20 * time.Second))
		began, answered := time.Now(), make(chan error, 1)
		go func() {
			_, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
			answered <- err
		}()
		synctest.Wait()
		ready(http.StatusOK, "ready")
		time.Sleep(3 * time.Second)
		ready(http.StatusOK, "ready, but the disk is slow: a commit has been under way for 3s")
		// The metrics wait up to a second for the engine, which may happen before this value is read.
		if metrics := getPath(t, r, "/metrics", http.StatusOK); !regexp.MustCompile(`(?m)^lessor_commit_pending_seconds [34]$`).MatchString(metrics) {
			t.Error("the metrics do not tell of the commit under way")
		}
		time.Sleep(10*time.Second - time.Since(began))
		ready(http.StatusServiceUnavailable, "not ready: the disk does not answer; a commit has been under way for 10s")
		st.commitTime.Store(0)
		if err := <-answered; err != nil {
			t.Errorf("a submit on a slow disk: %v", err)
		}
		synctest.Wait()
		ready(http.StatusOK, "ready")
		if log := r.log.String(); strings.Count(log, `"msg":"the disk is slow"`) != 1 || !strings.Contains(log, `"commit":20000000000`) {
			t.Errorf("the log: %s", log)
		}
	})
}
