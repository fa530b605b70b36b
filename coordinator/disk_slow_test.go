package coordinator

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// If the engine does nothing for a second or more while a lease is live, the log says so once. A slow commit is not such a time.
func TestLogOfAStandstill(t *testing.T) {
	st := &slowStore{Store: memstore.New()}
	serve(t, st, func(t *testing.T, r *rig) {
		ended := r.submit(t, nil).GetTaskId()
		r.complete(t, r.lease(t), "")
		r.submit(t, nil)
		r.lease(t)
		standstills := func() int { return strings.Count(r.log.String(), `"msg":"the coordinator stood still`) }
		st.commitTime.Store(int64(5 * time.Second))
		r.submit(t, nil)
		st.commitTime.Store(0)
		time.Sleep(time.Minute)
		if n := standstills(); n != 0 {
			t.Errorf("the log has %d standstills after a slow commit, want none: %s", n, r.log.String())
		}
		st.readTime.Store(int64(5 * time.Second))
		if _, err := r.tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: ended}); err != nil {
			t.Error(err)
		}
		st.readTime.Store(0)
		time.Sleep(time.Minute)
		if n := standstills(); n != 1 {
			t.Errorf("the log has %d standstills after a read on the loop of 5 s, want one: %s", n, r.log.String())
		}
	})
}

// While a commit is slow, /readyz and the metrics show it; when it has ended, the log has it. Calls that waited for the commit are answered.
func TestReadyzShowsASlowDisk(t *testing.T) {
	st := &slowStore{Store: memstore.New()}
	serve(t, st, func(t *testing.T, r *rig) {
		wantReadyz := func(code int, want string) {
			t.Helper()
			if text := getPath(t, r, "/readyz", code); text != want+"\n" {
				t.Errorf("/readyz says %q, want %q", text, want)
			}
		}
		wantReadyz(http.StatusOK, "ready")
		st.commitTime.Store(int64(20 * time.Second))
		began, answered := time.Now(), make(chan error, 1)
		go func() {
			_, err := r.tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
			answered <- err
		}()
		synctest.Wait()
		wantReadyz(http.StatusOK, "ready")
		time.Sleep(3 * time.Second)
		wantReadyz(http.StatusOK, "ready, but the disk is slow: a commit has been under way for 3s")
		// The metrics wait up to a second for the engine, which may happen before this value is read.
		if metrics := getPath(t, r, "/metrics", http.StatusOK); !regexp.MustCompile(`(?m)^lessor_commit_pending_seconds [34]$`).MatchString(metrics) {
			t.Error("the metrics lack lessor_commit_pending_seconds of 3 or 4")
		}
		time.Sleep(10*time.Second - time.Since(began))
		wantReadyz(http.StatusServiceUnavailable, "not ready: the disk does not answer; a commit has been under way for 10s")
		st.commitTime.Store(0)
		if err := <-answered; err != nil {
			t.Errorf("a submit on a slow disk: %v", err)
		}
		synctest.Wait()
		wantReadyz(http.StatusOK, "ready")
		if log := r.log.String(); strings.Count(log, `"msg":"the disk is slow"`) != 1 || !strings.Contains(log, `"commit":20000000000`) {
			t.Errorf("the log does not have the slow commit of 20 s exactly once: %s", log)
		}
	})
}
