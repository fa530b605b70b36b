package session_test

import (
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/lessor-dev/lessor/coordinator/engine"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	"github.com/lessor-dev/lessor/coordinator/refusal"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
	"github.com/lessor-dev/lessor/lease"
	"github.com/lessor-dev/lessor/store"
	"github.com/lessor-dev/lessor/store/memstore"
)

// faultyStore is a store in memory. While a fault is set, a read calls the fault instead.
type faultyStore struct {
	*memstore.Store
	fault atomic.Pointer[func() error]
}

func (s *faultyStore) View(fn func(store.Reader) error) error {
	if fault := s.fault.Load(); fault != nil {
		return (*fault)()
	}
	return s.Store.View(fn)
}

// W14: an internal error or a panic ends only the stream in which it happens, with INTERNAL. The
// leases of its worker stay live, and other streams are not affected.
func TestFaultEndsItsStream(t *testing.T) {
	t.Attr("rules", "W14")
	for name, fault := range map[string]func() error{
		"a store that cannot be read": func() error { return errors.New("EIO") },
		"a panic":                     func() error { panic("a bug") },
	} {
		t.Run(name, func(t *testing.T) {
			st := &faultyStore{Store: memstore.New()}
			wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
				other := r.OpenStream(t, "other")
				other.Handshake()
				worker := r.OpenSession(t, "w", 1)
				st.fault.Store(&fault)
				r.SubmitAll(t, 1)
				if err := worker.WaitForEnd(); status.Code(err) != codes.Internal || refusal.CodeOf(err) != refusal.CodeInternal {
					t.Errorf("the stream ended with %v, want INTERNAL and %s", err, refusal.CodeInternal)
				}
				st.fault.Store(nil)
				other.WantNoFrame()
				again := r.OpenSession(t, "w", 1)
				wiretest.WantCommitted(t, again.Report(wiretest.Completed(again.ReceiveAssignments(1)[0], "")))
			})
		})
	}
}

// W14, W3: if the coordinator cannot judge a report, the report gets an error with a wait in the
// place of its verdict. The stream does not end.
func TestReportThatCannotBeJudgedGetsAnError(t *testing.T) {
	t.Attr("rules", "W14 W3")
	items := []*lessorv1.Report{
		wiretest.Started(&lessorv1.Assignment{LeaseId: "x"}),
		wiretest.Started(&lessorv1.Assignment{LeaseId: "y"}),
	}
	wantNone := func(t *testing.T, verdicts []*lessorv1.ReportVerdict, code string) {
		t.Helper()
		for i, v := range verdicts {
			if v.GetVerdict() != 0 || v.GetLeaseId() != items[i].GetStart().GetLeaseId() || v.GetError().GetRetryAfter() == nil {
				t.Errorf("item %d is %v, want an error", i, v)
			}
			wiretest.WantEqual(t, "code", v.GetError().GetCode(), code)
		}
	}
	t.Run("the engine is overloaded", func(t *testing.T) {
		st := memstore.New()
		wiretest.Serve(t, st, func(t *testing.T, r *wiretest.Rig) {
			worker := r.OpenSession(t, "w", 1)
			r.SubmitAll(t, 1)
			work := worker.ReceiveAssignments(1)
			synctest.Wait()
			defer wiretest.BlockCommits(st)()
			worker.Send(&lessorv1.Reports{Reports: []*lessorv1.Report{wiretest.Started(work[0])}})
			synctest.Wait()
			for range 2 { // fill the queue twice, because the engine takes some commands out after the first time
				for !errors.Is(r.Engine.Post(gate.DefaultTenant, nil, func([]lease.Answer, error) {}), engine.ErrOverloaded) {
				}
				synctest.Wait()
			}
			wantNone(t, worker.Report(items...), refusal.CodeOverloaded)
		})
	})
	t.Run("the engine has stopped", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			worker := withoutEngine(t).OpenSession(t, "w", 1)
			wantNone(t, worker.Report(items...), refusal.CodeStopping)
			worker.Send(&lessorv1.Goodbye{})
			if err := worker.WaitForEnd(); err != nil {
				t.Errorf("the stream ended with %v, want OK", err)
			}
		})
	})
}

// withoutEngine returns a rig that serves workers with an engine that has stopped.
func withoutEngine(t *testing.T) *wiretest.Rig {
	t.Helper()
	s, lis := grpc.NewServer(grpc.ForceServerCodecV2(wiretest.Codec()),
		grpc.ChainStreamInterceptor(wiretest.OpenGate(t).Stream)), bufconn.Listen(1<<10)
	lessorv1.RegisterWorkerServiceServer(s, wiretest.Stopped(t).Services.Workers)
	go func() { _ = s.Serve(lis) }()
	conn := wiretest.Dial(t, lis)
	t.Cleanup(func() { _ = conn.Close(); s.Stop() })
	return &wiretest.Rig{Workers: lessorv1.NewWorkerServiceClient(conn)}
}
