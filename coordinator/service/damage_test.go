package service_test

import (
	"bytes"
	"context"
	"sync/atomic"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// damagedStore is a store in memory. Of the values that are read after damage(n), the one after the
// first n is damaged.
type damagedStore struct {
	*memstore.Store
	left atomic.Int64
}

func (s *damagedStore) damage(n int) { s.left.Store(int64(n) + 1) }

func (s *damagedStore) found() bool { return s.left.Load() <= 0 }

func (s *damagedStore) View(fn func(store.Reader) error) error {
	return s.Store.View(func(r store.Reader) error { return fn(damagedReader{r, s}) })
}

type damagedReader struct {
	store.Reader
	of *damagedStore
}

func (r damagedReader) Get(ks store.Keyspace, key []byte) []byte {
	return r.pass(r.Reader.Get(ks, key))
}

func (r damagedReader) Scan(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return r.Reader.Scan(ks, from, to, func(key, value []byte) bool { return fn(key, r.pass(value)) })
}

func (r damagedReader) ScanBack(ks store.Keyspace, from, to []byte, fn func(key, value []byte) bool) error {
	return r.Reader.ScanBack(ks, from, to, func(key, value []byte) bool { return fn(key, r.pass(value)) })
}

func (r damagedReader) pass(value []byte) []byte {
	if len(value) == 0 || r.of.left.Add(-1) != 0 {
		return value
	}
	value = bytes.Clone(value)
	value[len(value)-1] ^= 1
	return value
}

// taskWithAllRecords makes a task that failed once, lost a lease whose result was discarded, and
// completed, and a task that is mounted on it.
func taskWithAllRecords(t *testing.T, r *wiretest.Rig) (id string) {
	t.Helper()
	host := r.Submit(t, func(s *lessorv1.TaskSpec) {
		s.RunId, s.TaskKey, s.Payload, s.HeartbeatTimeout = "run", "host", []byte("payload"), durationpb.New(time.Second)
		s.HeartbeatInterval = durationpb.New(time.Second / 2)
		s.RetryPolicy = &lessorv1.RetryPolicy{MaxAttempts: 5, InitialBackoff: durationpb.New(time.Second)}
	})
	id = host.GetTaskId()
	a := r.Lease(t)
	r.Start(t, a)
	_, err := r.Workers.Heartbeat(t.Context(), &lessorv1.HeartbeatRequest{
		TaskId: id, LeaseId: a.GetLeaseId(), Checkpoint: []byte("half"), Progress: &lessorv1.Progress{Fraction: 0.5},
	})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(time.Millisecond) // the coordinator passes progress on after the answer
	if _, err := r.Workers.Fail(t.Context(), &lessorv1.FailRequest{TaskId: id, LeaseId: a.GetLeaseId(), Error: &lessorv1.TaskError{Message: "m"}}); err != nil {
		t.Fatal(err)
	}
	time.Sleep(2 * time.Second)
	lost := r.Lease(t)
	time.Sleep(5 * time.Second)
	r.Complete(t, lost, "late")
	a = r.Lease(t)
	r.Start(t, a)
	r.Complete(t, a, "output")
	submitMounted(t, r, "run", "mounted", "host", 0)
	return id
}

// A call that reads a damaged record of the store fails with INTERNAL. It does not answer that a
// task does not exist, and leaves nothing out.
func TestDamagedRecordGivesAnError(t *testing.T) {
	st := &damagedStore{Store: memstore.New()}
	wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
		id := taskWithAllRecords(t, r)
		if _, err := r.Tasks.CancelTask(t.Context(), &lessorv1.CancelTaskRequest{TaskId: r.Submit(t, nil).GetTaskId()}); err != nil {
			t.Fatal(err) // the audit now has an entry
		}
		got := r.Get(t, id)
		if len(got.GetDiscarded()) != 1 || len(got.GetDiscarded()[0].GetOutput()) == 0 || got.GetError() == nil || len(got.GetCheckpoint()) == 0 || len(got.GetMiddlewares()) != 1 {
			t.Fatalf("the task lacks a part: %v", got)
		}
		watch := func(req *lessorv1.WatchTaskRequest) error {
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			// the watch of a run has no end
			if err := wiretest.ErrOf(wiretest.WatchAll(ctx, r, req)); status.Code(err) != codes.DeadlineExceeded {
				return err
			}
			return nil
		}
		for name, c := range map[string]struct {
			least int // so many values are read at least
			call  func() error
		}{
			"GetTask": {8, func() error {
				return wiretest.ErrOf(r.Tasks.GetTask(t.Context(), &lessorv1.GetTaskRequest{TaskId: id}))
			}},
			"ListTasks": {4, func() error { return wiretest.ErrOf(r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{})) }},
			"ListTasks, newest first": {4, func() error {
				return wiretest.ErrOf(r.Tasks.ListTasks(t.Context(), &lessorv1.ListTasksRequest{NewestFirst: true}))
			}},
			"ListAuditEvents": {1, func() error {
				return wiretest.ErrOf(r.Admin.ListAuditEvents(t.Context(), &lessorv1.ListAuditEventsRequest{}))
			}},
			"WatchTask":                  {2, func() error { return watch(&lessorv1.WatchTaskRequest{TaskId: id}) }},
			"WatchTask after a sequence": {3, func() error { return watch(&lessorv1.WatchTaskRequest{TaskId: id, AfterSequence: 1}) }},
			"WatchTask of a run":         {3, func() error { return watch(&lessorv1.WatchTaskRequest{RunId: "run"}) }},
		} {
			n := 0
			for ; ; n++ {
				st.damage(n)
				err := c.call()
				if !st.found() {
					if err != nil {
						t.Errorf("%s: %v without damage", name, err)
					}
					break
				}
				if status.Code(err) != codes.Internal || refusal.CodeOf(err) != refusal.CodeInternal {
					t.Errorf("%s: %v with value %d damaged, want INTERNAL and %s", name, err, n, refusal.CodeInternal)
				}
			}
			if n < c.least {
				t.Errorf("%s reads %d values, want at least %d", name, n, c.least)
			}
			st.left.Store(0)
		}
		wiretest.WantContains(t, "the log", r.Log.String(), "read of the store failed")
	})
}
