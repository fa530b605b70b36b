package coordinator_test

import (
	"net/http"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store/memstore"
)

// If the engine does nothing for a second or more while a lease is live, the log says so once. A
// slow commit is not such a time.
func TestLogOfAStandstill(t *testing.T) {
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		ended := r.Submit(t, nil).GetTaskId()
		r.Complete(t, r.Lease(t), "")
		r.Submit(t, nil)
		r.Lease(t)
		standstills := func() int { return strings.Count(r.Log.String(), `"msg":"the coordinator stood still`) }
		st.CommitTime.Store(int64(5 * time.Second))
		r.Submit(t, nil)
		st.CommitTime.Store(0)
		time.Sleep(time.Minute)
		if n := standstills(); n != 0 {
			t.Errorf("the log has %d standstills after a slow commit, want none: %s", n, r.Log.String())
		}
		st.ReadTime.Store(int64(5 * time.Second))
		if _, err := r.Tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: ended}); err != nil {
			t.Error(err)
		}
		st.ReadTime.Store(0)
		time.Sleep(time.Minute)
		if n := standstills(); n != 1 {
			t.Errorf("the log has %d standstills after a read on the loop of 5 s, want one: %s", n, r.Log.String())
		}
	})
}

// While a commit is slow, /readyz and the metrics show it; when it has ended, the log has it. Calls
// that waited for the commit are answered.
func TestReadyzShowsASlowDisk(t *testing.T) {
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		wantReadyz := func(code int, want string) {
			t.Helper()
			if text := wiretest.GetPath(t, r, "/readyz", code); text != want+"\n" {
				t.Errorf("/readyz says %q, want %q", text, want)
			}
		}
		wantReadyz(http.StatusOK, "ready")
		st.CommitTime.Store(int64(20 * time.Second))
		began, answered := time.Now(), make(chan error, 1)
		go func() {
			_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
			answered <- err
		}()
		synctest.Wait()
		wantReadyz(http.StatusOK, "ready")
		time.Sleep(3 * time.Second)
		wantReadyz(http.StatusOK, "ready, but the disk is slow: a commit has been under way for 3s")
		// The metrics wait up to a second for the engine, which may happen before this value is
		// read.
		if metrics := wiretest.GetPath(t, r, "/metrics", http.StatusOK); !regexp.MustCompile(`(?m)^lessor_commit_pending_seconds [34]$`).MatchString(metrics) {
			t.Error("the metrics lack lessor_commit_pending_seconds of 3 or 4")
		}
		time.Sleep(10*time.Second - time.Since(began))
		wantReadyz(http.StatusServiceUnavailable, "not ready: the disk does not answer; a commit has been under way for 10s")
		st.CommitTime.Store(0)
		if err := <-answered; err != nil {
			t.Errorf("a submit on a slow disk: %v", err)
		}
		synctest.Wait()
		wantReadyz(http.StatusOK, "ready")
		if log := r.Log.String(); strings.Count(log, `"msg":"the disk is slow"`) != 1 || !strings.Contains(log, `"commit":20000000000`) {
			t.Errorf("the log does not have the slow commit of 20 s exactly once: %s", log)
		}
	})
}

// The log tells of a slow commit while it is under way, once after about a second and once after
// about ten, so also of one on a disk that never answers. A fast commit is not told.
func TestLogOfACommitUnderWay(t *testing.T) {
	st := &wiretest.SlowStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		want := func(slow, stuck, ended int) {
			t.Helper()
			synctest.Wait()
			for text, n := range map[string]int{
				`"msg":"the disk is slow: a commit is under way"`: slow,
				`"msg":"the disk does not answer: `:               stuck,
				`"msg":"the disk is slow"`:                        ended,
			} {
				if got := strings.Count(r.Log.String(), text); got != n {
					t.Errorf("the log has %d lines with %s, want %d: %s", got, text, n, r.Log.String())
				}
			}
		}
		r.Submit(t, nil)
		time.Sleep(time.Minute)
		want(0, 0, 0)
		for i := range 2 { // each commit is told
			st.CommitTime.Store(int64(time.Minute))
			answered := make(chan error, 1)
			go func() {
				_, err := r.Tasks.SubmitTask(t.Context(), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
				answered <- err
			}()
			synctest.Wait()
			time.Sleep(900 * time.Millisecond)
			want(i, i, i)
			time.Sleep(1200 * time.Millisecond)
			want(i+1, i, i)
			time.Sleep(7 * time.Second)
			want(i+1, i, i)
			time.Sleep(2 * time.Second)
			want(i+1, i+1, i)
			st.CommitTime.Store(0)
			if err := <-answered; err != nil {
				t.Error(err)
			}
			want(i+1, i+1, i+1)
		}
	})
}
