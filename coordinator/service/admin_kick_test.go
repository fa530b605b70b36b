package service_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"testing/synctest"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/lessor-dev/lessor/coordinator/auth"
	"github.com/lessor-dev/lessor/coordinator/gate"
	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// openInstance opens a session of an instance of worker w, which has a task under a lease that it
// has started.
func openInstance(t *testing.T, r *wiretest.Rig, instance string) (s *wiretest.Worker, a *lessorv1.Assignment, session string) {
	t.Helper()
	s, session = unregistered(t, r, "w", instance)
	s.Send(wiretest.Registration(1))
	r.SubmitAll(t, 1)
	a = s.ReceiveAssignments(1)[0]
	wiretest.WantCommitted(t, s.Report(wiretest.Started(a)))
	return s, a, session
}

// wantKicked kicks with requeue, and checks how many leases and sessions the answer says were
// ended.
func wantKicked(t *testing.T, r *wiretest.Rig, session string, leases, sessions uint32) {
	t.Helper()
	res, err := r.Admin.KickWorker(t.Context(),
		&lessorv1.KickWorkerRequest{WorkerId: "w", SessionId: session, Requeue: true, Reason: "gone"})
	if err != nil || res.GetRevoked() != leases || res.GetSessions() != sessions || len(res.GetWorkers()) != int(sessions) {
		t.Errorf("the kick ended %v (%v), want %d leases and %d sessions", res, err, leases, sessions)
	}
}

// wantRevoked checks that the first lease of a task was revoked, which counts in no budget, and
// that another worker may have the task.
func wantRevoked(t *testing.T, r *wiretest.Rig, all ...*lessorv1.Assignment) {
	t.Helper()
	for _, a := range all {
		task := r.Get(t, a.GetTask().GetTaskId())
		x, err := r.Tasks.ExplainTask(t.Context(), &lessorv1.ExplainTaskRequest{TaskId: task.GetTaskId()})
		if err != nil {
			t.Fatal(err)
		}
		got := fmt.Sprintf("%v, %d losses: %v, %s",
			task.GetState(), task.GetLosses(), x.GetLastLease().GetCause(), x.GetLastLease().GetDetail())
		wiretest.WantEqual(t, "the task", got,
			"TASK_STATE_READY, 0 losses: REASON_REVOKED, an operator revoked the worker's leases: gone")
	}
}

// W10: a kick with requeue also ends the leases of processes of the name that are gone, whether or
// not one of that name is connected again, and those from calls of Lease. Without requeue they live
// on, and are no worker to kick.
func TestKickOfAProcessThatIsGone(t *testing.T) {
	t.Attr("rules", "W10")
	for _, back := range []bool{true, false} {
		wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
			dead, a, _ := openInstance(t, r, "first")
			dead.Cut()
			synctest.Wait()
			sessions, held := uint32(0), []*lessorv1.Assignment{a}
			if back {
				_, b, _ := openInstance(t, r, "second")
				sessions, held = 1, append(held, b)
			} else if _, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w"}); status.Code(err) != codes.NotFound {
				t.Errorf("a kick without requeue: error %v, want NOT_FOUND", err)
			}
			r.SubmitAll(t, 1)
			held = append(held, r.Lease(t))
			wantKicked(t, r, "", uint32(len(held)), sessions)
			wantRevoked(t, r, held...)
			entries := r.AuditEvents(t.Context(), t, &lessorv1.ListAuditEventsRequest{Action: "KickWorker"})
			entries = slices.DeleteFunc(entries, func(e *lessorv1.AuditEvent) bool { return e.GetOutcome() != "OK" })
			if len(entries) != 1 {
				t.Errorf("the audit has %v, want one kick that took place", entries)
			}
		})
	}
}

// W10: a kick with requeue of a session that is gone ends what its process still holds, and leaves
// another process of the name alone. It finds nothing once the process has a session again.
func TestKickOfASessionThatIsGone(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		dead, a, session := openInstance(t, r, "first")
		dead.Cut()
		synctest.Wait()
		alive, b, _ := openInstance(t, r, "second")
		r.SubmitAll(t, 1)
		c := r.Lease(t)
		wantKicked(t, r, session, 1, 0)
		wantRevoked(t, r, a)
		wiretest.WantCommitted(t, alive.Report(wiretest.Completed(b, "")))
		r.Complete(t, c, "")

		cut, d, session := openInstance(t, r, "third")
		cut.Cut()
		synctest.Wait()
		again, _ := unregistered(t, r, "w", "third")
		again.Send(wiretest.Registration(1))
		synctest.Wait()
		for _, gone := range []string{session, "-"} {
			_, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w", SessionId: gone, Requeue: true})
			wiretest.WantEqual(t, "the error", status.Convert(err).Message(),
				"the worker has no open session with this id, and no lease waits for it")
		}
		wiretest.WantCommitted(t, again.Report(wiretest.Completed(d, "")))
	})
}

// W10: a name without a session and without leases is not found, and a kick that is repeated finds
// nothing more. It ends no lease of another name.
func TestKickFindsNothing(t *testing.T) {
	t.Attr("rules", "W10")
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		dead, _, _ := openInstance(t, r, "first")
		dead.Cut()
		synctest.Wait()
		other := r.OpenSession(t, "other", 1)
		r.SubmitAll(t, 1)
		a := other.ReceiveAssignments(1)[0]
		wantKicked(t, r, "", 1, 0)
		wiretest.WantCommitted(t, other.Report(wiretest.Completed(a, "")))
		_, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true})
		wiretest.WantEqual(t, "the code", status.Code(err).String(), codes.NotFound.String())
		wiretest.WantEqual(t, "the error", status.Convert(err).Message(),
			"no worker of this name has an open session, and none holds a lease")
	})
}

// X2: an operator ends no lease of another tenant, also if its worker has the same name.
func TestKickOfAnotherTenant(t *testing.T) {
	t.Attr("rules", "X2")
	wiretest.WithAuth(t, gate.Auth{}, func(t *testing.T, r *wiretest.Rig) {
		leaseOf := func(tenant string) (id string) {
			as := func(role auth.Role) context.Context {
				token, _ := r.Issue(t, tenant, role)
				return wiretest.WithToken(t.Context(), token)
			}
			_, err1 := r.Tasks.SubmitTask(as(auth.Producer), &lessorv1.SubmitTaskRequest{Task: &lessorv1.TaskSpec{Queue: "q"}})
			res, err2 := r.Workers.Lease(as(auth.Worker), &lessorv1.LeaseRequest{WorkerId: "w", Queues: []string{"q"}})
			if err1 != nil || err2 != nil {
				t.Fatal(err1, err2)
			}
			return res.GetAssignments()[0].GetTask().GetTaskId()
		}
		ours, theirs := leaseOf("ours"), leaseOf("theirs")
		state := func(tenant, id string) string {
			res, err := r.Tasks.GetTask(r.OperatorContext(t, tenant), &lessorv1.GetTaskRequest{TaskId: id})
			if err != nil {
				t.Fatal(err)
			}
			return res.GetTask().GetState().String()
		}
		_, err := r.Admin.KickWorker(r.OperatorContext(t, "ours"), &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true})
		if err != nil {
			t.Fatal(err)
		}
		wiretest.WantEqual(t, "our task", state("ours", ours), "TASK_STATE_READY")
		wiretest.WantEqual(t, "their task", state("theirs", theirs), "TASK_STATE_LEASED")
	})
}
