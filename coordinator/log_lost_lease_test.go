package coordinator_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/lessor-dev/lessor/coordinator/internal/wiretest"
	lessorv1 "github.com/lessor-dev/lessor/gen/lessor/v1"
)

// Whoever asks why a task ran twice finds in the log which worker lost it, at which attempt, and
// why: after a silence, and after a kick with requeue.
func TestLostLeasesAreLogged(t *testing.T) {
	wiretest.Serve(t, nil, func(t *testing.T, r *wiretest.Rig) {
		id := r.Submit(t, func(spec *lessorv1.TaskSpec) { spec.HeartbeatTimeout = durationpb.New(30 * time.Second) }).GetTaskId()
		r.Start(t, r.Lease(t))
		time.Sleep(time.Minute)
		r.Start(t, r.Lease(t))
		if _, err := r.Admin.KickWorker(t.Context(), &lessorv1.KickWorkerRequest{WorkerId: "w", Requeue: true, Reason: "gone"}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		for _, want := range []string{
			`"tenant":"default","task_id":"` + id + `","queue":"q","worker":"w","attempt":1,"cause":"LEASE_EXPIRED","detail":"no heartbeat came after the start"`,
			`"worker":"w","attempt":2,"cause":"REVOKED","detail":"an operator revoked the worker's leases: gone","losses":1`,
		} {
			if n := strings.Count(r.Log.String(), want); n != 1 {
				t.Errorf("%d lines of the log have %s, want one:\n%s", n, want, r.Log.String())
			}
		}
	})
}
